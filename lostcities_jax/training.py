"""The iterations of a run: what is measured, written and saved after each, and when it stops."""

import contextlib
import dataclasses
import functools
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from lostcities_jax import memory
from lostcities_jax.compile_clock import CompileClock
from lostcities_jax.devices import out_of_memory_named
from lostcities_jax.errors import UserError
from lostcities_jax.games.game import Game
from lostcities_jax.processes import gathered
from lostcities_jax.run_evaluation import RunEvaluation
from lostcities_jax.run_state import MEMORY_SETTINGS, Saver
from lostcities_jax.settings import Config
from lostcities_jax.solvers.scheduling import check_room
from lostcities_jax.solvers.solver import Report, Solver
from lostcities_jax.tracking import MetricsWriter, Progress
from lostcities_jax.traversal.statistics import Statistics, depth_bin_size

PROFILE = "profile"  # folder of the trace, for TensorBoard or xprof
# What decides the memory that a phase takes; fits are of networks, in batches.
_SIZED_BY = {
    "traversal": "traversal.batch_width or traversal.traversals",
    "memory": MEMORY_SETTINGS,
    "evaluation": "traversal.batch_width",
}
_FITS_SIZED_BY = "learner.batch_size or network.hidden"


@dataclasses.dataclass(frozen=True)
class Run:
    """What stays the same from iteration to iteration."""

    config: Config
    folder: pathlib.Path
    game: Game
    solver: Solver
    clock: CompileClock
    metrics: MetricsWriter
    progress: Progress
    evaluation: RunEvaluation
    saver: Saver
    profile: bool


def train(run: Run, state: Any, done: int, should_stop: Callable[[], bool]) -> int:
    """Runs the iterations after `done`, all of them or until somebody wants it to stop.

    Args:
      run: the run.
      state: the solver's state after `done` iterations; donated.
      done: iterations finished.
      should_stop: asked after each iteration.

    Returns:
      the iterations finished then; the newest checkpoint is of the last of them.

    Raises:
      UserError: for a loss that is no number, too little room or memory, or a last checkpoint
        that cannot be written.
    """
    traced = done + 2  # the first one compiles
    for iteration in range(done + 1, run.config.iterations + 1):
        is_traced = run.profile and iteration == traced
        with jax.profiler.trace(run.folder / PROFILE) if is_traced else contextlib.nullcontext():
            state = _iterate(run, state, iteration)
        done = iteration
        if any(gathered(np.bool_(should_stop()))):
            if not _is_saved(run.config, iteration):
                # Fitted for play alone: where a run was stopped must not change how it goes on.
                run.saver.save(state, iteration, functools.partial(_fitted, run, iteration))
            break
    run.saver.finish()
    return done


def _iterate(run: Run, state: Any, iteration: int) -> Any:
    """One iteration of the solver, and what is due after it."""
    timer = _Timer(run.clock, run.progress)
    state, report = run.solver.iterate(state, iteration, timer.phase)
    # As if this process had walked the traversals of all.
    statistics = [one for batch in report.statistics for one in gathered(batch)]
    for batch in statistics:
        check_room(run.config, run.game, batch, iteration)
    values = _loss_metrics(report, iteration)
    if _is_prepared(run, iteration):
        state, prepared = run.solver.prepare(state, iteration, timer.phase)
        values |= _loss_metrics(prepared, iteration)
    if _is_evaluated(run.config, iteration):
        with timer.phase("evaluation", "evaluation"):
            policy, _ = run.solver.split(state)
            values |= run.evaluation.measure(policy, iteration == run.config.iterations)
    traversal = _traversal_metrics(run.game, statistics, timer.seconds["traversal"])
    values |= traversal | _memory_metrics(run.solver.memories(state)) | timer.metrics()
    run.metrics.write(iteration, values)
    if _is_saved(run.config, iteration):
        # After the metrics, which a resumed run cuts back to its checkpoint.
        run.progress.phase("checkpoint")
        run.saver.save(state, iteration)
    run.progress.advance(traversal["traversal/nodes_per_second"])
    return state


def _fitted(run: Run, iteration: int, state: Any) -> Any:
    """The state with the average strategy of all iterations so far; donates it."""
    if _is_prepared(run, iteration):
        return state
    state, prepared = run.solver.prepare(state, iteration, _Timer(run.clock, run.progress).phase)
    _loss_metrics(prepared, iteration)
    return state


def _is_evaluated(config: Config, iteration: int) -> bool:
    return iteration == config.iterations or _is_due(iteration, config.evaluation.every)


def _is_saved(config: Config, iteration: int) -> bool:
    return iteration == config.iterations or _is_due(iteration, config.checkpoint.every)


def _is_prepared(run: Run, iteration: int) -> bool:
    """Whether an iteration ends with what `prepare` fits."""
    is_needed = _is_evaluated(run.config, iteration) or _is_saved(run.config, iteration)
    return is_needed or run.solver.prepares_always


def _is_due(iteration: int, every: int) -> bool:
    return every > 0 and iteration % every == 0


def _loss_metrics(report: Report, iteration: int) -> dict[str, float]:
    """First and last losses of each fit; a loss that is no number ends the run."""
    values = {}
    for name, losses in report.losses.items():
        first, last = (float(loss) for loss in losses)
        if not np.isfinite([first, last]).all():
            raise UserError(
                f"the {name} loss of iteration {iteration} is {last}; allowed: a finite number; "
                f"try a smaller learner.learning_rate; earlier checkpoints are kept"
            )
        values |= {f"loss/{name}_first": first, f"loss/{name}_last": last}
    return values


def _traversal_metrics(game: Game, batches: list[Statistics], seconds: float) -> dict[str, Any]:
    traversals = sum(int(batch.depth_histogram.sum()) for batch in batches)
    total = jax.tree.map(lambda *parts: np.sum(parts, axis=0, dtype=np.int64), *batches)
    return {
        "traversal/nodes": total.nodes,
        "traversal/nodes_per_second": float(total.nodes / max(seconds, 1e-9)),
        "traversal/traversals_per_second": float(traversals / max(seconds, 1e-9)),
        "traversal/realised_batch": float(total.nodes / total.half_steps),
        "traversal/utilisation": float(total.nodes / total.rows),
        "traversal/terminals": total.terminals,
        "traversal/timeouts": total.timeouts,
        "traversal/cutoffs": total.cutoffs,
        "traversal/fallback_rate": float(total.fallbacks / total.nodes),
        "traversal/depth_histogram": total.depth_histogram,
        "traversal/depth_bin_size": depth_bin_size(game),
    }


def _memory_metrics(memories: Mapping[str, memory.Memory]) -> dict[str, int]:
    metrics = {}
    for name, reservoir in memories.items():
        low, high = (int(word) for word in jax.device_get(reservoir.seen))
        metrics[f"memory/{name}_seen"] = (high << 32) + low
        metrics[f"memory/{name}_size"] = int(memory.size(reservoir))
    return metrics


class _Timer:
    """Seconds of each phase of an iteration, without those spent compiling."""

    def __init__(self, clock: CompileClock, progress: Progress):
        self._clock, self._progress = clock, progress
        self._started, self._compiled = time.perf_counter(), clock.seconds
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def phase(self, name: str, title: str) -> Iterator[None]:
        """Times what runs inside, and shows the title meanwhile."""
        self._progress.phase(title)
        started, compiled = time.perf_counter(), self._clock.seconds
        with (
            jax.profiler.TraceAnnotation(name),
            out_of_memory_named(_SIZED_BY.get(name, _FITS_SIZED_BY)),
        ):
            yield
        spent = time.perf_counter() - started - (self._clock.seconds - compiled)
        self.seconds[name] = self.seconds.get(name, 0.0) + spent

    def metrics(self) -> dict[str, float]:
        return {f"time/{name}_seconds": seconds for name, seconds in self.seconds.items()} | {
            "time/compile_seconds": self._clock.seconds - self._compiled,
            "time/iteration_seconds": time.perf_counter() - self._started,
        }
