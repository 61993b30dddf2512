"""What a run leaves behind to read: metrics, its log, its environment, and its progress."""

import contextlib
import datetime
import importlib.metadata
import importlib.util
import json
import math
import os
import pathlib
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import rich.console
import rich.progress

from lostcities_jax.errors import UserError
from lostcities_jax.files import replacing

METRICS_FILE = "metrics.jsonl"
LOG_FILE = "train.log"
_DISTRIBUTIONS = ("jax", "jaxlib", "flax", "optax", "numpy", "orbax-checkpoint", "lostcities_jax")


class MetricsWriter:
    """Appends one JSON object a line to `metrics.jsonl`, so that a killed run loses no line."""

    def __init__(
        self,
        run_dir: pathlib.Path,
        sinks: Sequence[Callable[[int, Mapping[str, Any]], None]] = (),
    ):
        """Opens the file; each of `sinks` is told of every iteration as it is written."""
        self._path = pathlib.Path(run_dir) / METRICS_FILE
        self._sinks = sinks
        self._open()

    def write(self, iteration: int, values: Mapping[str, Any]) -> None:
        """Append an iteration's values under slash-separated names; NaN and infinity are null.

        Raises:
          TypeError: for a value that is no number, text, or array or list of these.
          UserError: for a file that cannot be written.
        """
        plain = {name: _plain(value) for name, value in values.items()}
        row = {"iteration": iteration} | plain
        line = json.dumps(row, allow_nan=False) + "\n"
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            raise self._unwritable(error) from error
        for sink in self._sinks:
            sink(iteration, plain)

    def truncate_after(self, iteration: int) -> int:
        """Drop the lines of later iterations, which a resumed run writes anew.

        Returns:
          how many earlier iterations have no line.

        Raises:
          UserError: for a damaged line, or a file that cannot be written.
        """
        self._file.close()
        kept = [row for row in read_metrics(self._path) if row["iteration"] <= iteration]
        try:
            with replacing(self._path) as file:
                file.write("".join(json.dumps(row) + "\n" for row in kept).encode())
            self._open()
        except OSError as error:
            raise self._unwritable(error) from error
        return iteration - len(kept)

    def close(self) -> None:
        """Close the file; later writes fail."""
        with contextlib.suppress(OSError):  # of a line that could not be written, and was told of
            self._file.close()

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _unwritable(self, error: OSError) -> UserError:
        return UserError(
            f"metrics {self._path} cannot be written: {error.strerror}; checkpoints are kept"
        )

    def _open(self) -> None:
        """Open for appending behind the last whole line, as a killed run may leave a half one."""
        self._path.touch()
        with open(self._path, "rb+") as file:
            file.truncate(file.read().rfind(b"\n") + 1)
        self._file = open(self._path, "a", encoding="utf-8")  # noqa: SIM115


def read_metrics(path: str | pathlib.Path) -> list[dict[str, Any]]:
    """Rows of a metrics file or run folder, without a half-written last line.

    Raises:
      UserError: for a path without metrics, or a line that is no JSON object with an iteration.
    """
    path = pathlib.Path(path)
    path = path / METRICS_FILE if path.is_dir() else path
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        raise UserError(f"metrics {path} cannot be read: {error.strerror}") from error
    return [_parse_row(path, number, line) for number, line in enumerate(lines, start=1)]


def environment_record() -> dict[str, Any]:
    """Versions, commit and machine of this process, to repeat a run; touches no device."""
    return {
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _DISTRIBUTIONS},
        "git_commit": _git("rev-parse", "HEAD"),
        "git_changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "platform": platform.platform(),
        "processor": _processor(),
        "cpu_count": os.cpu_count(),
    }


class RunLog:
    """Lines for the terminal and, with the time, for `train.log`, the run's one log file."""

    def __init__(self, run_dir: pathlib.Path, console: rich.console.Console | None = None):
        self.console = console or rich.console.Console()
        path = pathlib.Path(run_dir) / LOG_FILE
        # A path that is written of need not be UTF-8.
        self._file = open(path, "a", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115

    def write(self, text: str) -> None:
        """One line for both."""
        self.write_file(text)
        self.console.out(text, highlight=False)

    def write_file(self, text: str) -> None:
        """One line for the log file only; a full disk is no reason to end a run."""
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        with contextlib.suppress(OSError):
            self._file.write(f"{now} {text}\n")
            self._file.flush()

    def close(self) -> None:
        """Close the log file; later writes fail."""
        with contextlib.suppress(OSError):
            self._file.close()

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(self, *_) -> None:
        self.close()


class Progress:
    """How far a run is: a live bar on a terminal, else a line an iteration.

    The log file gets the lines in both cases.
    """

    def __init__(self, log: RunLog, iterations: int, done: int = 0):
        """Start at iteration `done` of `iterations`; use as a context manager."""
        self._log = log
        self._iterations = iterations
        self._first = self._done = done
        self._started = time.monotonic()
        self._live = log.console.is_interactive or _is_notebook(log.console)
        self._bar = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TextColumn("{task.fields[rate]}"),
            rich.progress.TimeElapsedColumn(),
            rich.progress.TextColumn("{task.fields[left]}"),
            console=log.console,
            disable=not self._live,
            transient=True,
        )
        self._task = self._bar.add_task(
            "start", total=iterations, completed=done, rate="", left="left -"
        )

    def phase(self, name: str) -> None:
        """Show what the run is at; the lines say it in the first iteration only."""
        self._bar.update(self._task, description=name)
        if self._done == self._first:
            self._line(f"iteration {self._done + 1}/{self._iterations}: {name}")

    def advance(self, nodes_per_second: float) -> None:
        """Count one more finished iteration."""
        self._done += 1
        elapsed = time.monotonic() - self._started
        seconds = elapsed / (self._done - self._first) * (self._iterations - self._done)
        rate, left = f"{nodes_per_second:,.0f} nodes/s", f"left {_clock(seconds)}"
        self._bar.update(self._task, completed=self._done, rate=rate, left=left)
        done = f"iteration {self._done}/{self._iterations}"
        self._line(f"{done}: {rate}, elapsed {_clock(elapsed)}, {left}")

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *_) -> None:
        self._bar.stop()

    def _line(self, text: str) -> None:
        write = self._log.write_file if self._live else self._log.write
        write(text)


def _is_notebook(console: rich.console.Console) -> bool:
    """Whether a bar can be drawn and drawn again in a notebook."""
    return console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None


def _clock(seconds: float) -> str:
    return str(datetime.timedelta(seconds=round(seconds)))


def _parse_row(path: pathlib.Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
        if isinstance(row["iteration"], int):
            return row
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise UserError(
        f"metrics {path} line {number} is no JSON object with an iteration; "
        f"allowed: the file without that line"
    )


def _plain(value: Any) -> Any:
    """A value as JSON has it; arrays of any library become lists or numbers."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int):
        return value
    raise TypeError(f"a metric cannot be a {type(value).__name__}")


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str | None:
    """The kind of the processor, where the system says."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or None
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else None


def _git(*arguments: str) -> str | None:
    """Output of git in the checkout that tracks this very file, or None if there is none.

    An installed package may lie inside some other project's checkout, whose commit says nothing.
    """
    here = pathlib.Path(__file__)
    git = ["git", "-C", str(here.parent)]
    try:
        for command in (["ls-files", "--error-unmatch", here.name], list(arguments)):
            output = subprocess.run(git + command, capture_output=True, timeout=10, check=True)
        return output.stdout.decode(errors="replace").strip()
    except (OSError, subprocess.SubprocessError):
        return None
