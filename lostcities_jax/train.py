"""`python -m lostcities_jax.train`: trains a policy and measures it against the bots."""

import contextlib
import dataclasses
import pathlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from lostcities_jax import memory, run_folder, run_state
from lostcities_jax.cli import check_overrides, parse_train
from lostcities_jax.compile_clock import CompileClock
from lostcities_jax.devices import select_devices
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.games.catalogue import make_game
from lostcities_jax.games.game import Game
from lostcities_jax.games.utility import with_utility
from lostcities_jax.networks import make_network
from lostcities_jax.run_evaluation import RunEvaluation
from lostcities_jax.settings import Config
from lostcities_jax.solvers.catalogue import make_solver
from lostcities_jax.solvers.feasibility import check_feasible, check_settings
from lostcities_jax.solvers.scheduling import traversal_plan
from lostcities_jax.solvers.solver import Report, Solver
from lostcities_jax.tracking import MetricsWriter, Progress, RunLog
from lostcities_jax.traversal.statistics import Statistics, depth_bin_size

PROG = "python -m lostcities_jax.train"


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


def main(argv: Sequence[str]) -> int:
    """Runs the command; raises UserError for whatever the user can mend."""
    arguments = parse_train(argv, prog=PROG)
    run_dir = arguments.run_dir
    config = arguments.config
    if arguments.resume and run_dir is not None:
        config = run_folder.reopen(run_dir)
        check_overrides(arguments, config)
    clock = CompileClock()
    mesh = select_devices(config.devices)
    game = make_game(config.game, config.rules)
    check_settings(config, game)
    check_feasible(config, game, mesh)
    network = make_network(game, **dataclasses.asdict(config.network))
    played_for = with_utility(game, config.utility.points, config.utility.win)
    solver = make_solver(config, played_for, network, mesh)
    if arguments.resume and run_dir is not None:
        folder = run_dir
        state, done = run_state.restore(config, folder, solver)
    else:
        folder = run_folder.create(run_dir, config)
        state, done = solver.init(), 0
    with (
        contextlib.ExitStack() as at_exit,
        RunLog(folder) as log,
        MetricsWriter(folder) as metrics,
        Progress(log, config.iterations, done) as progress,
    ):
        at_exit.callback(solver.close)
        metrics.truncate_after(done)
        _announce(config, folder, mesh, log, done)
        measuring = RunEvaluation(config, game, network, log, progress.phase)
        run = Run(config, folder, game, solver, clock, metrics, progress, measuring)
        for iteration in range(done + 1, config.iterations + 1):
            state = _iterate(run, state, iteration)
    return 0


def _announce(config: Config, folder: pathlib.Path, mesh: Mesh, log: RunLog, done: int) -> None:
    if done >= config.iterations:
        log.write(f"{folder} is finished; measure it with python -m lostcities_jax.evaluate")
        return
    log.write(
        f"{'resuming after iteration ' + str(done) if done else 'training'} in {folder} on "
        f"{mesh.size} {mesh.devices.flat[0].platform} device(s), "
        f"{config.traversal.batch_width} lanes; compiling first"
    )


def _iterate(run: Run, state: Any, iteration: int) -> Any:
    """One iteration of the solver, and what is due after it."""
    timer = _Timer(run.clock, run.progress)
    state, report = run.solver.iterate(state, iteration, timer.phase)
    for batch in report.statistics:
        _check_room(run.config, run.game, batch, iteration)
    values = _loss_metrics(report, iteration)
    is_last = iteration == run.config.iterations
    is_evaluated = is_last or _is_due(iteration, run.config.evaluation.every)
    is_saved = is_last or _is_due(iteration, run.config.checkpoint.every)
    if is_evaluated or is_saved or run.solver.prepares_always:
        state, prepared = run.solver.prepare(state, iteration, timer.phase)
        values |= _loss_metrics(prepared, iteration)
    if is_evaluated:
        with timer.phase("evaluation", "evaluation"):
            policy, _ = run.solver.split(state)
            values |= run.evaluation.measure(policy, is_last)
    traversal = _traversal_metrics(run.game, report.statistics, timer.seconds["traversal"])
    values |= traversal | _memory_metrics(run.solver.memories(state)) | timer.metrics()
    run.metrics.write(iteration, values)
    if is_saved:  # after the metrics, which a resumed run cuts back to its checkpoint
        run.progress.phase("checkpoint")
        run_state.save(run.config, run.folder, run.solver, state, iteration)
    run.progress.advance(traversal["traversal/nodes_per_second"])
    return state


def _check_room(config: Config, game: Game, batch: Statistics, iteration: int) -> None:
    """Raises UserError where the tape or the stack was too short for a batch."""
    plan = traversal_plan(config, game)
    if batch.overflows:
        raise UserError(
            f"traversal.stack_levels is {plan.levels(game)}, too few for {batch.overflows} "
            f"decisions of iteration {iteration}; allowed: more, or 0 for as many as needed"
        )
    if batch.unfinished:
        raise UserError(
            f"traversal.tape_cycles is {plan.cycles(game)}, too few for {batch.unfinished} of "
            f"{plan.quota} traversals of iteration {iteration}; allowed: more"
        )


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
        yield
        spent = time.perf_counter() - started - (self._clock.seconds - compiled)
        self.seconds[name] = self.seconds.get(name, 0.0) + spent

    def metrics(self) -> dict[str, float]:
        return {f"time/{name}_seconds": seconds for name, seconds in self.seconds.items()} | {
            "time/compile_seconds": self._clock.seconds - self._compiled,
            "time/iteration_seconds": time.perf_counter() - self._started,
        }


if __name__ == "__main__":
    sys.exit(run_command(main))
