"""A batch of lanes in flight: who runs next, what went wrong, and who has ended."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from lostcities_jax.config import config_value
from lostcities_jax.learner import WEIGHTINGS
from lostcities_jax.population.lanes import Lanes, Report, Turn
from lostcities_jax.settings import Config

RETRIES = 3  # of a lane, over all its steps
SHRINK = 0.5  # of the learning rate, for each failure of a lane so far
RATE = "learner.learning_rate"
_WEIGHTING = "learner.weighting"
_WHOLE = ("seed", "learner.horizon", _WEIGHTING)  # settings that are whole numbers


@dataclasses.dataclass(frozen=True)
class Failure:
    """A step of a lane that was undone.

    Attributes:
      lane: place of the variant.
      attempt: of the lane, from 1; the lane is given up after its retries.
      iteration: iteration that failed.
      cause: what was not finite.
    """

    lane: int
    attempt: int
    iteration: int
    cause: str


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a variant.

    Attributes:
      lane: its place.
      config: its settings.
      policy: what a checkpoint would keep to play with; None for a lane that was given up.
      metrics: last losses of each fit.
      failures: steps that were undone, in order.
      seconds: from the start of its batch to its own end.
    """

    lane: int
    config: Config
    policy: dict[str, Any] | None
    metrics: dict[str, float]
    failures: tuple[Failure, ...]
    seconds: float


class Batch(NamedTuple):
    """Lanes that were in flight together.

    Attributes:
      size: how many.
      seconds: from their start to the end of the last.
      serial_seconds: those of them that `keep` took while all lanes waited.
      iterations: iterations done by all lanes together, undone ones not counted.
    """

    size: int
    seconds: float
    serial_seconds: float
    iterations: int


@dataclasses.dataclass(frozen=True)
class Crew:
    """What all batches of a group share.

    Attributes:
      lanes: the programs.
      slots: lanes that they are compiled for; those without a variant stay idle.
      keys: dotted keys of the settings that are numbers of each lane.
      policy_of: `state -> policy`, as a checkpoint would keep it, with an axis of slots.
      check: `(statistics, iteration)`; raises where a batch of games found no room.
    """

    lanes: Lanes
    slots: int
    keys: Sequence[str]
    policy_of: Callable[[Any], Any]
    check: Callable[[Any, int], None]


class Run:
    """A lane in flight: its iterations, and the fit of its average strategy as a last step."""

    def __init__(self, lane: int, config: Config, retries: int):
        """Starts the variant `config` in its place `lane`, to be given up after `retries`."""
        self.lane, self.config = lane, config
        self._retries, self.done = retries, 0
        self.steps = config.iterations + (config.solver == "deep_cfr")
        self.failures: list[Failure] = []
        self.metrics: dict[str, float] = {}

    @property
    def is_finished(self) -> bool:
        """Whether all its steps are done."""
        return self.done == self.steps

    @property
    def is_open(self) -> bool:
        """Whether it is neither finished nor given up."""
        return not self.is_finished and len(self.failures) <= self._retries

    @property
    def trains(self) -> bool:
        """Whether its next step is an iteration."""
        return self.is_open and self.done < self.config.iterations

    @property
    def is_trained(self) -> bool:
        """Whether its next step is the last, the fit of the average strategy."""
        return self.is_open and self.done == self.config.iterations

    def number(self, key: str) -> np.ndarray:
        """Value of a setting: the step size smaller for each failure, of a choice its index."""
        value = config_value(self.config, key)
        if key == RATE:
            value *= SHRINK ** len(self.failures)
        if key == _WEIGHTING:
            value = WEIGHTINGS.index(value)
        return np.asarray(value, np.int32 if key in _WHOLE else np.float32)

    def note(self, is_good: bool, losses: Mapping[str, np.ndarray]) -> None:
        """Books a step: its losses, or why it was undone."""
        if is_good:
            self.done += 1
            self.metrics |= {f"loss/{name}_last": float(pair[1]) for name, pair in losses.items()}
            return
        bad = [name for name, pair in losses.items() if not np.isfinite(pair).all()]
        cause = f"the {bad[0]} loss is not finite" if bad else "a parameter is not finite"
        iteration = min(self.done + 1, self.config.iterations)
        self.failures.append(Failure(self.lane, len(self.failures) + 1, iteration, cause))


def fly(
    crew: Crew,
    runs: Sequence[Run],
    keep: Callable[[Outcome], None],
    announce: Callable[[str], None],
) -> Batch:
    """Trains lanes until every one has ended, and tells of each as soon as it has.

    A lane that had to repeat a step is behind the others by it, and ends so much later.

    Args:
      crew: what trains them; as many slots as lanes, or more.
      runs: the lanes, none of them started.
      keep: told of each that ends, while the others wait.
      announce: told of the progress, in a line.
    """
    started, serial_seconds = time.perf_counter(), 0.0
    state = crew.lanes.init(turn_of(crew, runs, lambda run: True).numbers)
    waiting = dict(enumerate(runs))
    while waiting:
        for step, is_next in (
            (crew.lanes.iterate, lambda run: run.trains),
            (crew.lanes.finish, lambda run: run.is_trained),
        ):
            if any(map(is_next, runs)):
                turn = turn_of(crew, runs, is_next)
                state, report = step(turn, state)
                _note(crew, runs, turn, report)
        announce(_progress(runs))
        ended = {slot: run for slot, run in waiting.items() if not run.is_open}
        if ended:
            now = time.perf_counter()
            policies = jax.device_get(crew.policy_of(state))
            for slot, run in ended.items():
                keep(_outcome(run, policies, slot, now - started))
                del waiting[slot]
            serial_seconds += time.perf_counter() - now
    iterations = sum(min(run.done, run.config.iterations) for run in runs)
    return Batch(len(runs), time.perf_counter() - started, serial_seconds, iterations)


def turn_of(crew: Crew, runs: Sequence[Run], is_next: Callable[[Run], bool]) -> Turn:
    """What each slot is to do; those without a lane have the numbers of the first."""
    filled = [*runs, *[runs[0]] * (crew.slots - len(runs))]
    return Turn(
        numbers={key: np.stack([run.number(key) for run in filled]) for key in crew.keys},
        iteration=np.array([run.done + 1 for run in filled], np.int32),
        runs=np.array([place < len(runs) and is_next(run) for place, run in enumerate(filled)]),
    )


def _note(crew: Crew, runs: Sequence[Run], turn: Turn, report: Report) -> None:
    """Books a turn's report in the lanes that ran."""
    is_good, losses, statistics = jax.device_get(report)
    for slot, run in enumerate(runs):
        if not turn.runs[slot]:
            continue
        own_losses, batches = jax.tree.map(lambda leaf, s=slot: leaf[s], (losses, statistics))
        for batch in batches:
            crew.check(batch, int(turn.iteration[slot]))
        run.note(bool(is_good[slot]), own_losses)


def _progress(runs: Sequence[Run]) -> str:
    done, steps = (sum(getattr(run, name) for run in runs) for name in ("done", "steps"))
    failures = sum(len(run.failures) for run in runs)
    return f"steps {done}/{steps}" + (f", {failures} undone" if failures else "")


def _outcome(run: Run, policies: Any, slot: int, seconds: float) -> Outcome:
    """What became of a lane; the policies have an axis of slots."""
    policy = jax.tree.map(lambda leaf: leaf[slot].copy(), policies) if run.is_finished else None
    return Outcome(run.lane, run.config, policy, run.metrics, tuple(run.failures), seconds)
