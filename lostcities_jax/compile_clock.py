"""How long compiling took, apart from running: the union of what JAX reports."""

import time

import jax

_EVENTS = "/jax/core/compile/"


class CompileClock:
    """Seconds spent tracing, lowering and compiling since it was made."""

    def __init__(self):
        self._intervals: list[tuple[float, float]] = []
        jax.monitoring.register_event_duration_secs_listener(self._record)

    @property
    def seconds(self) -> float:
        """The sum so far; grows only."""
        return sum(end - start for start, end in self._intervals)

    def _record(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        """Adds an interval that ends now; those it contains were parts of it."""
        if not event.startswith(_EVENTS):
            return
        end = time.perf_counter()
        start = end - duration_secs
        while self._intervals and self._intervals[-1][0] >= start:
            self._intervals.pop()
        if self._intervals:
            start = max(start, self._intervals[-1][1])
        self._intervals.append((start, end))
