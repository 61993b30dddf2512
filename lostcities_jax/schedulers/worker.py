"""A process that walks traversals, and asks the server for every decision.

With one traversal at a time it blocks on every request; with more it goes on with whichever
is answered. Requests beyond its slots wait here until answers free some.
"""

import collections
import multiprocessing
import signal
import time
from collections.abc import Callable, Generator
from multiprocessing.connection import Connection, wait

import numpy as np

from lostcities_jax.schedulers.answers import Request
from lostcities_jax.schedulers.blueprint import (
    PATIENCE_S,
    POLL_S,
    Blueprint,
    ServiceSettings,
    one_line,
)
from lostcities_jax.schedulers.host_game import host_game
from lostcities_jax.schedulers.slots import SlotTable, attach_table, release, slots_of
from lostcities_jax.schedulers.walk import Walk, walk

Steps = Generator[Request, np.ndarray, Walk]


def work(
    blueprint: Blueprint,
    settings: ServiceSettings,
    index: int,
    table_name: str,
    trainer: Connection,
    server: Connection,
) -> None:
    """Main function of worker `index`: walks the ranges it is given until it is told to stop.

    Messages from the trainer are `("walk", first index, keys uint32[n, 2])` and `("stop",)`;
    to it `("ready",)`, `("walked", index, Walk)` and `("error", text)`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the trainer decides when to stop
    table = None
    try:
        game = blueprint.make_game()
        compiled = host_game(game, blueprint.plan.branches, blueprint.plan.has_critic)
        table = attach_table(table_name, compiled.layout, settings.slots)
        own_slots = slots_of(index, settings.workers, settings.slots)
        trainer.send(("ready",))
        while True:
            kind, *rest = trainer.recv()
            if kind == "stop":
                return
            first, keys = rest

            def start(offset: int, keys: np.ndarray = keys) -> Steps:
                return walk(compiled, blueprint.plan, blueprint.trace, keys[offset])

            def report(offset: int, walked: Walk, first: int = first) -> None:
                trainer.send(("walked", first + offset, walked))

            _walk_all(start, len(keys), settings.traversals, own_slots, table, server, report)
    except (EOFError, ConnectionError):
        return  # the trainer or the server is gone, which the trainer sees for itself
    except Exception as error:
        trainer.send(("error", f"worker {index}: {one_line(error)}"))
    finally:
        if table is not None:
            release(table)


def _walk_all(
    start: Callable[[int], Steps],
    count: int,
    traversals: int,
    own_slots: range,
    table: SlotTable,
    server: Connection,
    report: Callable[[int, Walk], None],
) -> None:
    """Walks `count` traversals, so many at a time, and reports each as it ends."""
    requests, answers = table.requests, table.answers
    assert requests is not None and answers is not None
    free = list(own_slots)
    ready: collections.deque[tuple[int, Steps, Request]] = collections.deque()
    waiting: dict[int, tuple[int, Steps]] = {}
    started = 0

    def start_next() -> None:
        nonlocal started
        if started < count:
            steps = start(started)
            ready.append((started, steps, next(steps)))
            started += 1

    for _ in range(traversals):
        start_next()
    while ready or waiting:
        posted = []
        while ready and free:
            offset, steps, request = ready.popleft()
            slot = free.pop()
            requests[slot, : len(request.row)] = request.row
            waiting[slot] = (offset, steps)
            posted.append((slot, request.group, request.head))
        if posted:
            server.send_bytes(np.array(posted, np.int32).tobytes())
        for slot in _answered(server):
            offset, steps = waiting.pop(slot)
            free.append(slot)
            try:
                # A copy: the slot is another request's before this answer is forgotten.
                ready.append((offset, steps, steps.send(answers[slot].copy())))
            except StopIteration as end:
                report(offset, end.value)
                start_next()


def _answered(server: Connection) -> list[int]:
    """Waits for the server; the slots that it has answered.

    Raises:
      EOFError: if the server or the trainer is gone.
      TimeoutError: if the server lives and says nothing.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    limit = time.monotonic() + PATIENCE_S
    while time.monotonic() < limit:
        found = wait([server, parent.sentinel], POLL_S)
        if server in found:
            return np.frombuffer(server.recv_bytes(), np.int32).tolist()
        if found:
            raise EOFError
    raise TimeoutError(f"no answer from the inference server in {PATIENCE_S:.0f} s")
