"""The inference process: answers the requests of all workers with batched network calls.

The first request opens a window in which others may join it. The window closes early when the
batch is full, or when no traversal is left that could still ask.
"""

import dataclasses
import multiprocessing
import selectors
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax.schedulers.answers import Answers, Calls, make_answer
from lostcities_jax.schedulers.blueprint import (
    POLL_S,
    Blueprint,
    ServedSeat,
    ServiceSettings,
    one_line,
)
from lostcities_jax.schedulers.slots import SlotTable, attach_table, release
from lostcities_jax.traversal.lockstep import Seat

Kind = tuple[int, int]  # group and head


@dataclasses.dataclass
class _Server:
    """What the loop keeps.

    Attributes:
      answer: see `make_answer`.
      table: the rows.
      trainer: its messages set parameters and seats.
      workers: the pipe of every worker that lives.
      settings: sizes.
      networks: pushed parameters by name.
      version: of the last push.
      answers: who answers in this batch.
      pending: requests not answered yet, as (worker, slot) by group and head.
      deadline: when the window closes.
      calls, rows: of this batch.
    """

    answer: Callable[[Answers, int, int, np.ndarray], np.ndarray]
    table: SlotTable
    trainer: Connection
    workers: dict[int, Connection]
    settings: ServiceSettings
    networks: dict[str, Any] = dataclasses.field(default_factory=dict)
    version: int = 0
    answers: Answers | None = None
    pending: dict[Kind, list[tuple[int, int]]] = dataclasses.field(default_factory=dict)
    deadline: float = 0.0
    calls: int = 0
    rows: int = 0


def serve(
    blueprint: Blueprint,
    settings: ServiceSettings,
    table_name: str,
    trainer: Connection,
    workers: list[Connection],
) -> None:
    """Main function of the inference process: serves until it is told to stop.

    Messages from the trainer are `("weights", version, {name: params})`, `("batch", seats,
    name of the critic's parameters or None)`, `("calls",)` and `("stop",)`; all but the last are
    acknowledged by `("weights", version)`, `("batch", version)` and `("calls", Calls)`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the trainer decides when to stop
    table = None
    try:
        game = blueprint.make_game()
        players = blueprint.build(game, blueprint.settings)
        plan = blueprint.plan
        table = attach_table(table_name, blueprint.layout(game), settings.slots)
        answer = make_answer(game, players, plan.branches, plan.has_critic)
        trainer.send(("ready",))
        _loop(_Server(answer, table, trainer, dict(enumerate(workers)), settings))
    except (EOFError, ConnectionError):
        return  # the trainer is gone
    except Exception as error:
        trainer.send(("error", f"inference server: {one_line(error)}"))
    finally:
        if table is not None:
            release(table)


def _loop(server: _Server) -> None:
    """Receives and answers; the selector's timeouts are exact to the microsecond."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    with selectors.SelectSelector() as selector:
        selector.register(parent.sentinel, selectors.EVENT_READ, "parent")
        selector.register(server.trainer, selectors.EVENT_READ, "trainer")
        for index, worker in server.workers.items():
            selector.register(worker, selectors.EVENT_READ, index)
        while True:
            count = sum(len(asking) for asking in server.pending.values())
            timeout = max(server.deadline - time.monotonic(), 0.0) if count else POLL_S
            for key, _ in selector.select(timeout):
                if key.data == "parent":
                    return
                if key.data == "trainer":
                    if not _obey(server, server.trainer.recv()):
                        return
                    continue
                try:
                    _take(server, key.data, server.workers[key.data].recv_bytes())
                except (EOFError, ConnectionError):
                    selector.unregister(server.workers.pop(key.data))
            count = sum(len(asking) for asking in server.pending.values())
            is_full = count >= min(server.settings.max_batch, server.settings.most_requests)
            if count and (is_full or time.monotonic() >= server.deadline):
                _answer_pending(server)


def _obey(server: _Server, message: tuple) -> bool:
    """Does what the trainer says; whether to go on."""
    kind, *rest = message
    if kind == "weights":
        server.version, networks = rest
        server.networks.update(jax.device_put(networks))
        server.trainer.send(("weights", server.version))
    elif kind == "batch":
        seats, critic = rest
        server.answers = Answers(
            (_seat(server, seats[0]), _seat(server, seats[1])),
            None if critic is None else server.networks[critic],
        )
        server.calls = server.rows = 0
        server.trainer.send(("batch", server.version))
    elif kind == "calls":
        server.trainer.send(("calls", Calls(server.calls, server.rows)))
    return kind != "stop"


def _seat(server: _Server, seat: ServedSeat) -> Seat:
    params = server.networks[seat.network]
    return Seat(params, jnp.float32(seat.epsilon), jnp.asarray(seat.is_traverser))


def _take(server: _Server, worker: int, message: bytes) -> None:
    """Enters a worker's requests; the first of a batch opens the window."""
    if not server.pending:
        server.deadline = time.monotonic() + server.settings.window_s
    for slot, group, head in np.frombuffer(message, np.int32).reshape(-1, 3).tolist():
        server.pending.setdefault((group, head), []).append((worker, slot))


def _answer_pending(server: _Server) -> None:
    """Answers every group and head, and tells the workers after each call."""
    requests, answers = server.table.requests, server.table.answers
    assert requests is not None and answers is not None and server.answers is not None
    pending, server.pending = server.pending, {}
    size = server.settings.max_batch
    for (group, head), asking in pending.items():
        for start in range(0, len(asking), size):
            batch = asking[start : start + size]
            slots = [slot for _, slot in batch]
            found = server.answer(server.answers, group, head, requests[slots])
            answers[slots, : found.shape[1]] = found
            server.calls, server.rows = server.calls + 1, server.rows + len(batch)
            for worker in {worker for worker, _ in batch} & server.workers.keys():
                own = [slot for asker, slot in batch if asker == worker]
                try:
                    server.workers[worker].send_bytes(np.array(own, np.int32).tobytes())
                except ConnectionError:
                    continue  # it is gone, which the next read of its pipe tells
