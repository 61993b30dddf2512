"""What all benchmarks share: flags, timing, the table on the terminal and the stored record.

Compiling is timed apart from running, every rate is the median of several runs, and a
record holds what is needed to judge or repeat it: machine, versions, commit and command.
"""

import contextlib
import dataclasses
import datetime
import io
import json
import os
import pathlib
import platform
import resource
import shlex
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import rich.box
import rich.console
import rich.table
import tyro
from jax.sharding import Mesh

from benchmarks.limits import Limit
from lostcities_jax.config import validated
from lostcities_jax.devices import select_devices, usable_cores
from lostcities_jax.errors import UserError
from lostcities_jax.tracking import environment_record

RESULTS = pathlib.Path(__file__).parent / "results"
_WIDTH = 240
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One measured configuration.

    Attributes:
      settings: what tells it from the other rows of the benchmark.
      unit: of the rates.
      rates: one for each repeat.
      compile_seconds: tracing, lowering and compiling; None where nothing was compiled.
      realised_batch: mean rows of a network call that decided something; None without lanes.
      utilisation: share of all rows that did; None without lanes.
      per_item: what one counted item asks of `limit`, in its unit; None for no ratio.
      limit: the machine's limit the rate is compared with.
      figures: further numbers by name.
    """

    settings: Mapping[str, Any]
    unit: str
    rates: Sequence[float]
    compile_seconds: float | None = None
    realised_batch: float | None = None
    utilisation: float | None = None
    per_item: float | None = None
    limit: Limit | None = None
    figures: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def rate(self) -> float:
        """The median rate."""
        return statistics.median(self.rates)

    @property
    def ratio(self) -> float | None:
        """What the rate asks of the limit, as a share of it; call it after the last run."""
        if self.limit is None or self.per_item is None:
            return None
        return self.rate * self.per_item / self.limit.best


def parse_flags(kind: type[_T], argv: Sequence[str], name: str) -> _T:
    """Flags of a `checked` dataclass; `--help` prints them and exits with 0.

    Raises:
      UserError: for an unknown flag or a value that is not allowed.
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            flags = tyro.cli(
                kind,
                args=argv,
                prog=f"python -m benchmarks.{name}",
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        # tyro draws a box: its first paragraph is the mistake, the rest where the help is.
        lines = [line.strip("│ ") for line in said.getvalue().splitlines()[1:]]
        mistake = " ".join(lines[: next(i for i, line in enumerate(lines) if line[:1] in "─╰")])
        raise UserError(f"{mistake}; allowed: see --help") from None
    return validated(kind, dataclasses.asdict(flags))  # pyright: ignore


def device_meshes(specs: Sequence[str]) -> list[Mesh]:
    """The meshes of `devices` settings; none stand for one CPU device and one per core.

    With a GPU and no setting, all GPUs.
    """
    # First of all, since the number of CPU devices is fixed when the first one is used.
    whole = select_devices("auto")
    if not specs and whole.devices.flat[0].platform == "cpu" and whole.size > 1:
        specs = ("cpu:1", f"cpu:{whole.size}")
    return [select_devices(spec) for spec in specs] or [whole]


def compile_ahead(function: Callable, *args: Any, **jit: Any) -> tuple[Callable, float]:
    """The compiled function for arguments like these, and the seconds that took."""
    jitted = function if hasattr(function, "lower") else jax.jit(function, **jit)
    started = time.perf_counter()
    compiled = jitted.lower(*args).compile()
    return compiled, time.perf_counter() - started


def measure_rates(
    run: Callable[[int], _T], work: Callable[[_T], float], repeats: int, seconds: float
) -> list[float]:
    """Work per second of up to `repeats` runs, fewer if they exceed `seconds` together.

    The first run only warms up, unless it alone takes longer than `seconds`.

    Args:
      run: does the work of a repeat and returns arrays; alone inside the clock.
      work: how much work its result stands for.
      repeats: runs to time.
      seconds: when to stop.
    """
    rates, spent = [], 0.0
    for repeat in range(repeats + 1):
        started = time.perf_counter()
        result = jax.block_until_ready(run(repeat))
        elapsed = time.perf_counter() - started
        spent += elapsed
        if repeat or spent > seconds:
            rates.append(work(result) / elapsed)
        del result
        if rates and spent > seconds:
            break
    return rates


def looped(function: Callable[..., Any], times: int) -> Callable[..., Any]:
    """A function that does `function` so often in one program, as a lockstep loop would.

    The barrier makes every turn depend on the one before it, so that the compiler can
    neither hoist the work out of the loop nor drop all turns but the last.
    """

    def repeated(*args: Any) -> Any:
        def turn(_, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            kept, _ = carry
            return jax.lax.optimization_barrier((kept, function(*kept)))

        blank = jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(function, *args)
        )
        return jax.lax.fori_loop(0, times, turn, (args, blank))[1]

    return repeated


def iterated(function: Callable[..., _T], times: int) -> Callable[..., _T]:
    """A function that applies `function` so often to its first argument in one program."""

    def repeated(state: _T, *args: Any) -> _T:
        return jax.lax.fori_loop(0, times, lambda _, state: function(state, *args), state)

    return repeated


def tree_bytes(tree: Any) -> int:
    """Bytes of all arrays of a tree."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def peak_rss_bytes() -> int:
    """The largest memory this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else 1024 * peak


class Report:
    """Collects measurements, and at the end shows and stores them."""

    def __init__(
        self, name: str, title: str, flags: Any, argv: Sequence[str], mark_best: bool = False
    ):
        """Starts a report.

        Args:
          name: the benchmark's module.
          title: of the table.
          flags: the parsed dataclass, with a truth value `store`.
          argv: arguments without the program's name.
          mark_best: mark the row of the highest rate.
        """
        self._mark_best = mark_best
        # A pipe has no width; a narrow terminal had better fold the lines than lose figures.
        self._console = rich.console.Console(width=_WIDTH)
        self._name, self._title, self._flags = name, title, flags
        self._command = shlex.join(["python", "-m", f"benchmarks.{name}", *argv])
        self._load = os.getloadavg()[0]
        self._rows: list[tuple[Measurement, int]] = []

    def note(self, text: str) -> None:
        """Says something beside the table."""
        self._console.out(text, highlight=False)

    def add(self, measurement: Measurement) -> None:
        """Keeps a measurement and says its rate at once."""
        self._rows.append((measurement, peak_rss_bytes()))
        settings = ", ".join(f"{key} {value}" for key, value in measurement.settings.items())
        self.note(f"{settings}: {_rate(measurement.rate)} {measurement.unit}")

    def finish(self) -> None:
        """Prints the table, the best row marked, and appends the records with `--store`."""
        if not self._rows:
            raise UserError("no setting was left to measure; allowed: see the lines above")
        self._console.print(self._table())
        for limit in self._limits():
            self.note(f"limit of this machine in this run: {limit.best / 1e9:,.1f} G{limit.unit}/s")
        self.note(f"load average at the start {self._load:.2f}, {usable_cores()} cores")
        if self._flags.store:
            RESULTS.mkdir(exist_ok=True)
            path = RESULTS / f"{self._name}.jsonl"
            with open(path, "a", encoding="utf-8") as file:
                for row, peak in self._rows:
                    file.write(json.dumps(self._record(row, peak), allow_nan=False) + "\n")
            self.note(f"stored in {path}")

    def _limits(self) -> list[Limit]:
        limits = [row.limit for row, _ in self._rows if row.limit is not None]
        return list(dict.fromkeys(limits))

    def _record(self, row: Measurement, peak: int) -> dict[str, Any]:
        """One line of the results; `benchmarks/README.md` explains the fields."""
        device = jax.devices()[0]
        return {
            "name": self._name,
            "time": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            "command": self._command,
            **environment_record(),
            "device_kind": device.device_kind,
            "cores": usable_cores(),
            "load_average": self._load,
            "settings": dataclasses.asdict(self._flags) | dict(row.settings),
            "unit": row.unit,
            "rate": row.rate,
            "rate_low": min(row.rates),
            "rate_high": max(row.rates),
            "repeats": len(row.rates),
            "compile_seconds": row.compile_seconds,
            "realised_batch": row.realised_batch,
            "utilisation": row.utilisation,
            "limit_unit": None if row.limit is None else f"{row.limit.unit}/s",
            "limit": None if row.limit is None else row.limit.best,
            "limit_per_item": row.per_item,
            "ratio": row.ratio,
            "figures": dict(row.figures),
            "peak_rss_bytes": peak,
        }

    def _table(self) -> rich.table.Table:
        table = rich.table.Table(title=self._title, box=rich.box.SIMPLE_HEAD)
        lines = [_cells(row) for row, _ in self._rows]
        headings = list(dict.fromkeys(heading for line in lines for heading in line))
        for heading in headings:
            table.add_column(heading, justify="right", no_wrap=True)
        best = max(row.rate for row, _ in self._rows)
        for (row, _), line in zip(self._rows, lines, strict=True):
            is_best = self._mark_best and row.rate == best
            cells = [line.get(heading, "") for heading in headings]
            table.add_row(*cells, "best" if is_best else "", style="bold" if is_best else None)
        return table


def _cells(row: Measurement) -> dict[str, str]:
    """A table row by heading."""
    optional = {
        "compile s": (row.compile_seconds, ".1f"),
        "realised batch": (row.realised_batch, ".1f"),
        "utilisation": (row.utilisation, ".3f"),
        "of limit": (row.ratio, ".3f"),
    }
    spread = f"{_rate(min(row.rates))}-{_rate(max(row.rates))}"
    return (
        {key: str(value) for key, value in row.settings.items()}
        | {row.unit: _rate(row.rate), "spread": spread}
        | {key: _number(value) for key, value in row.figures.items()}
        | {key: format(value, spec) for key, (value, spec) in optional.items() if value is not None}
    )


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.4g}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
