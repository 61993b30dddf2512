"""What a run folder says about a run, as series of numbers."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lostcities_jax.config import load_config
from lostcities_jax.errors import UserError, shown
from lostcities_jax.run_folder import CONFIG_FILE, ENVIRONMENT_FILE
from lostcities_jax.settings import Config
from lostcities_jax.tracking import read_metrics

# Sections of the metrics by the strategy that they measure.
STRATEGIES = {
    "eval": "average strategy",
    "eval_iterates": "average of iterates",
    "eval_current": "current strategy",
}
PLAYS = ("greedy", "sampled")


class Match(NamedTuple):
    """One kind of match that a run plays at every evaluation.

    Attributes:
      section: of the metrics, a key of STRATEGIES.
      opponent: its name.
      play: how the run's strategy plays, one of PLAYS.
    """

    section: str
    opponent: str
    play: str


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """A run as it was written down.

    Attributes:
      name: as short as tells it from the others.
      config: its settings.
      environment: versions and machine, as the run wrote them.
      rows: its metrics, a row an iteration.
    """

    name: str
    config: Config
    environment: dict[str, Any]
    rows: list[dict[str, Any]]

    @property
    def iterations(self) -> np.ndarray:
        """Numbers of the finished iterations; int[n]."""
        return np.array([row["iteration"] for row in self.rows])

    @property
    def seconds(self) -> np.ndarray:
        """Seconds of training up to each iteration, without compiling and evaluating; float[n]."""
        spent = self.values("time/iteration_seconds")
        for other in ("time/compile_seconds", "time/evaluation_seconds"):
            spent = spent - np.nan_to_num(self.values(other))
        return np.cumsum(np.nan_to_num(spent))

    def values(self, name: str) -> np.ndarray:
        """A metric in each iteration, NaN where it is no number or absent; float[n]."""
        return np.array([_number(row.get(name)) for row in self.rows])

    def lists(self, name: str) -> list[np.ndarray | None]:
        """A metric that is a list of numbers, in each iteration; None where it is not."""
        return [_numbers(row.get(name)) for row in self.rows]

    def names(self, prefix: str) -> list[str]:
        """Metrics whose names begin so, in the order in which they first appear."""
        found = {name: None for row in self.rows for name in row if name.startswith(prefix)}
        return list(found)

    def matches(self) -> list[Match]:
        """The kinds of matches that were played, in order."""
        found = {}
        for name in self.names("eval"):
            if name.endswith("/win_rate"):  # an opponent's name may have slashes
                section, rest = name.removesuffix("/win_rate").split("/", 1)
                opponent, _, play = rest.rpartition("/")
                found[Match(section, opponent, play)] = None
        return list(found)


def read_runs(paths: Sequence[str]) -> list[RunRecord]:
    """The runs of some folders, named by as much of their paths as tells them apart.

    Raises:
      UserError: for a path that is no run folder, a damaged file in it, or a run that has
        finished no iteration; and for a run given twice.
    """
    folders = [pathlib.Path(path).resolve() for path in paths]
    for folder in folders:
        if folders.count(folder) > 1:
            raise UserError(f"run {shown(str(folder))} is given twice; allowed: once")
    return [
        _read_run(path, name)
        for path, name in zip(map(pathlib.Path, paths), short_names(folders), strict=True)
    ]


def short_names(folders: Sequence[pathlib.Path]) -> list[str]:
    """The last parts of paths, as few as tell all of them apart."""
    parts = 1
    while True:
        names = ["/".join(folder.parts[-parts:]) for folder in folders]
        if len(set(names)) == len(names) or parts > max(len(folder.parts) for folder in folders):
            return names
        parts += 1


def in_order(lists: Iterable[Sequence[Any]]) -> list[Any]:
    """All entries of some lists, each once, in the order in which they first appear."""
    return list(dict.fromkeys(entry for entries in lists for entry in entries))


def _read_run(path: pathlib.Path, name: str) -> RunRecord:
    if not (path / CONFIG_FILE).is_file():
        raise UserError(f"{shown(str(path))} is no run folder; allowed: one with {CONFIG_FILE}")
    config = load_config(path / CONFIG_FILE)
    rows = read_metrics(path)
    if not rows:
        raise UserError(f"run {shown(str(path))} has finished no iteration; allowed: one or more")
    return RunRecord(name, config, _read_environment(path / ENVIRONMENT_FILE), rows)


def _read_environment(path: pathlib.Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(record, dict) and isinstance(record.get("versions", {}), dict):
            return record
        reason = "no JSON object of an environment"
    except OSError as error:
        reason = error.strerror
    except (ValueError, RecursionError):
        reason = "no JSON"
    raise UserError(f"environment {shown(str(path))} cannot be read: {reason}")


def _number(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else math.nan


def _numbers(value: Any) -> np.ndarray | None:
    return np.array([_number(item) for item in value]) if isinstance(value, list) else None
