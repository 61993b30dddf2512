"""Worker processes around one inference process, started once and kept across iterations.

Every wait has an end and watches all processes: whichever dies ends the batch with one line,
and the shared memory is removed whatever happens.
"""

import contextlib
import multiprocessing
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection, wait
from typing import Any, Self

import jax

from lostcities_jax.errors import UserError
from lostcities_jax.schedulers.answers import Calls
from lostcities_jax.schedulers.blueprint import (
    PATIENCE_S,
    POLL_S,
    Blueprint,
    ServedSeat,
    ServiceSettings,
)
from lostcities_jax.schedulers.collected import Collected, collect, traversal_keys
from lostcities_jax.schedulers.server import serve
from lostcities_jax.schedulers.slots import create_table, release
from lostcities_jax.schedulers.walk import Walk
from lostcities_jax.schedulers.worker import work

_SPAWN = multiprocessing.get_context("spawn")
_SERVER = "inference server"
_STOP_S = 5.0  # until a process that was told to stop is ended


class SchedulerError(UserError):
    """A process of a service died, failed or fell silent."""


class InferenceService:
    """Starts the processes; a context manager, and `close` may be called more than once.

    After a `SchedulerError` it is closed. Main modules of programs that use it need the guard
    `if __name__ == "__main__"`, as always with spawned processes.
    """

    def __init__(self, blueprint: Blueprint, settings: ServiceSettings):
        self._blueprint = blueprint
        self._version = 0
        self._names: set[str] = set()
        layout = blueprint.layout(blueprint.make_game())
        self._table = create_table(layout, settings.slots)
        self._unlink = weakref.finalize(self, release, self._table, unlink=True)
        self.processes: dict[str, Any] = {}
        self._pipes: dict[str, Connection] = {}
        try:
            self._start(settings)
            for name in self._pipes:
                self._await(name, "ready")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, settings: ServiceSettings) -> None:
        to_workers = [_SPAWN.Pipe() for _ in range(settings.workers)]
        common = (self._blueprint, settings)
        name = self._table.memory.name
        ends = [end for end, _ in to_workers]
        self._launch(_SERVER, serve, (*common, name), ends, ends)
        for index, (_, end) in enumerate(to_workers):
            self._launch(f"worker {index}", work, (*common, index, name), end, [end])

    def _launch(
        self, title: str, target: Callable[..., None], arguments: tuple, pipes: Any, ends: list
    ) -> None:
        """Starts a process with a pipe to this one behind its arguments, then `pipes`."""
        own, other = _SPAWN.Pipe()
        self._pipes[title] = own
        process = _SPAWN.Process(
            target=target, args=(*arguments, other, pipes), name=title, daemon=True
        )
        with _environment(is_worker=target is work):
            process.start()
        self.processes[title] = process
        # A pipe tells of a death only when nobody else holds its other end.
        for end in (other, *ends):
            end.close()

    def push_weights(self, networks: Mapping[str, Any]) -> int:
        """Replaces the parameters of some networks, and waits until the server has them.

        Args:
          networks: parameters by name, as the players' functions take them.

        Returns:
          the version, which counts pushes.
        """
        self._version += 1
        with self._closed_on_error():
            message = ("weights", self._version, jax.device_get(dict(networks)))
            self._send(_SERVER, message)
            (version,) = self._await(_SERVER, "weights")
            assert version == self._version
        self._names |= networks.keys()
        return self._version

    def run(
        self, seats: tuple[ServedSeat, ServedSeat], key: jax.Array, critic: str | None = None
    ) -> Collected:
        """Runs a batch of traversals with the parameters pushed last.

        Args:
          seats: how player 0 and player 1 act.
          key: key of the iteration and traverser; not consumed.
          critic: name of the critic's parameters.

        Raises:
          SchedulerError: if a process dies, fails or falls silent.
        """
        for name in (*(seat.network for seat in seats), *([critic] if critic else [])):
            if name not in self._names:
                raise ValueError(f"no weights were pushed for {name!r}")
        quota = self._blueprint.plan.quota
        with self._closed_on_error():
            keys = traversal_keys(key, quota)
            self._send(_SERVER, ("batch", seats, critic))
            self._await(_SERVER, "batch")
            workers = [name for name in self.processes if name != _SERVER]
            for index, name in enumerate(workers):
                first, end = (quota * i // len(workers) for i in (index, index + 1))
                self._send(name, ("walk", first, keys[first:end]))
            walks = self._walks(quota)
            self._send(_SERVER, ("calls",))
            calls: Calls = self._await(_SERVER, "calls")[0]
        return collect([walks[index] for index in range(quota)], calls)

    def _walks(self, quota: int) -> dict[int, Walk]:
        """Receives the walks of all traversals in whatever order they end."""
        walks: dict[int, Walk] = {}
        while len(walks) < quota:
            for kind, *rest in self._receive(list(self._pipes)):
                assert kind == "walked"
                walks[rest[0]] = rest[1]
        return walks

    def _await(self, name: str, kind: str) -> list:
        """The rest of the next message of a process, which must be of a kind."""
        ((found, *rest),) = self._receive([name])
        assert found == kind, f"{name} said {found!r}, not {kind!r}"
        return rest

    def _receive(self, names: list[str]) -> list[tuple]:
        """The next message of each of some processes, of one at least.

        Raises:
          SchedulerError: if none comes any more.
        """
        pipes = {self._pipes[name]: name for name in names}
        sentinels = [process.sentinel for process in self.processes.values()]
        limit = time.monotonic() + PATIENCE_S
        while time.monotonic() < limit:
            messages, gone = [], None
            for pipe in wait([*pipes, *sentinels], POLL_S):
                if isinstance(pipe, Connection):
                    try:
                        messages.append(pipe.recv())
                    except (EOFError, OSError):  # the latter in the middle of a message
                        gone = pipes[pipe]
            # What a process said of its own failure tells more than that it is gone.
            for message in messages:
                if message[0] == "error":
                    raise SchedulerError(message[1])
            if gone is not None or not messages:
                self._raise_death(gone)
            if messages:
                return messages
        raise SchedulerError(f"no word from {', '.join(names)} in {PATIENCE_S:.0f} s")

    def _raise_death(self, name: str | None) -> None:
        """Raises for the process that died first, as far as can be told, if one did.

        A server that dies takes its workers along, so it is asked first.
        """
        if name is not None:
            self.processes[name].join(_STOP_S)
        for title, process in self.processes.items():
            if process.exitcode is not None:
                raise SchedulerError(f"{title} ended with exit code {process.exitcode}")
        if name is not None:
            raise SchedulerError(f"{name} hung up")

    def _send(self, name: str, message: tuple) -> None:
        """Sends a message; a process that does not read a large one in time is ended."""
        watch = threading.Timer(PATIENCE_S, self.processes[name].kill)
        watch.start()
        try:
            self._pipes[name].send(message)
        except ConnectionError:
            self._raise_death(name)
        finally:
            watch.cancel()
            watch.join()

    @contextlib.contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        if not self.processes:
            raise SchedulerError("the inference service is closed")
        try:
            yield
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stops all processes and removes the shared memory."""
        for pipe in self._pipes.values():
            with contextlib.suppress(OSError):
                pipe.send(("stop",))
            pipe.close()
        limit = time.monotonic() + _STOP_S
        for process in self.processes.values():
            process.join(max(limit - time.monotonic(), 0.0))
            if process.exitcode is None:
                process.kill()
                process.join()
            process.close()
        self.processes, self._pipes = {}, {}
        self._unlink()


@contextlib.contextmanager
def _environment(is_worker: bool) -> Iterator[None]:
    """Variables for a process that is about to start: no accelerator, and few threads."""
    changed = {"JAX_PLATFORMS": "cpu"}
    if is_worker:
        flags = os.environ.get("XLA_FLAGS", "")
        changed["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
        changed["OMP_NUM_THREADS"] = "1"
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
