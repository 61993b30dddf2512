"""When a run is asked to stop: by a signal, or because its time is up."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable

from lostcities_jax.errors import EXIT_INTERRUPTED

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Knows whether a run should stop after its iteration; use as a context manager.

    The first SIGINT or SIGTERM asks it to; the second ends the process at once, which harms
    nothing, since whatever is written is written all or nothing. A thread hears of them by
    Python's wakeup descriptor: a handler of its own would wait for the end of a compilation.
    """

    def __init__(self, max_minutes: float | None, announce: Callable[[str], None]):
        """Counts the minutes from now; `announce` is told of the first signal."""
        self._deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
        self._announce = announce
        self._asked = threading.Event()

    def __call__(self) -> bool:
        """Whether the time is up, or somebody asked."""
        is_late = self._deadline is not None and time.monotonic() >= self._deadline
        return is_late or self._asked.is_set()

    def __enter__(self) -> "StopRequest":
        self._is_listening = threading.current_thread() is threading.main_thread()
        if self._is_listening:
            self._heard, self._told = socket.socketpair()
            self._told.setblocking(False)
            self._handlers = {number: signal.getsignal(number) for number in _SIGNALS}
            for number in _SIGNALS:
                signal.signal(number, lambda *_: None)
            self._descriptor = signal.set_wakeup_fd(self._told.fileno(), warn_on_full_buffer=False)
            threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        if self._is_listening:
            signal.set_wakeup_fd(self._descriptor)
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            self._told.close()  # the thread reads the end, and ends

    def _listen(self) -> None:
        with self._heard:
            while heard := self._heard.recv(1):
                if heard[0] not in _SIGNALS:
                    continue
                if self._asked.is_set():
                    os._exit(EXIT_INTERRUPTED)
                self._asked.set()
                self._announce(
                    "stopping after this iteration, which is fitted for play and saved; "
                    "once more ends it at once, and loses what came after the last checkpoint"
                )
