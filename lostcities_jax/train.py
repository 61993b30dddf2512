"""`python -m lostcities_jax.train`: trains a policy and measures it against the bots."""

import contextlib
import dataclasses
import functools
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from lostcities_jax import checkpoint, memory, run_folder
from lostcities_jax.cli import check_overrides, parse_train
from lostcities_jax.compile_clock import CompileClock
from lostcities_jax.devices import select_devices
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.evaluation.agents import Agent, average_agent, bot_agent, current_agent
from lostcities_jax.evaluation.matches import MatchResult, evaluate
from lostcities_jax.evaluation.tables import print_results
from lostcities_jax.games.game import Game
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.learner import LearnerState
from lostcities_jax.networks import Network, make_network
from lostcities_jax.settings import Config
from lostcities_jax.solvers.deep_cfr import DeepCfr, DeepCfrState, make_deep_cfr
from lostcities_jax.solvers.feasibility import check_feasible
from lostcities_jax.tracking import MetricsWriter, Progress, RunLog
from lostcities_jax.traversal.statistics import Statistics, depth_bin_size, statistics

PROG = "python -m lostcities_jax.train"


@dataclasses.dataclass(frozen=True)
class Run:
    """What stays the same from iteration to iteration."""

    config: Config
    folder: pathlib.Path
    mesh: Mesh
    game: Game
    network: Network
    solver: DeepCfr
    clock: CompileClock
    log: RunLog
    metrics: MetricsWriter
    progress: Progress


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
    game = lost_cities(config.rules)
    check_feasible(config, game, mesh)
    network = make_network(game, **dataclasses.asdict(config.network))
    solver = make_deep_cfr(config, game, network, mesh)
    if arguments.resume and run_dir is not None:
        folder = run_dir
        state, done = _restore(config, folder, solver)
    else:
        folder = run_folder.create(run_dir, config)
        state, done = solver.init(), 0
    with (
        RunLog(folder) as log,
        MetricsWriter(folder) as metrics,
        Progress(log, config.iterations, done) as progress,
    ):
        metrics.truncate_after(done)
        _announce(config, folder, mesh, log, done)
        run = Run(config, folder, mesh, game, network, solver, clock, log, metrics, progress)
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


def _iterate(run: Run, state: DeepCfrState, iteration: int) -> DeepCfrState:
    """One iteration: both players' updates, and what is due after it."""
    timer = _Timer(run.clock)
    values: dict[str, Any] = {}
    batches = []
    for player in (0, 1):
        state, batch, losses = _update_player(run, timer, state, player, iteration)
        batches.append(batch)
        values |= losses
    is_last = iteration == run.config.iterations
    is_evaluated = is_last or _is_due(iteration, run.config.evaluation.every)
    is_saved = is_last or _is_due(iteration, run.config.checkpoint.every)
    if is_evaluated or is_saved or run.config.traversal.opponent == "average":
        run.progress.phase("strategy network")
        with timer.phase("strategy_train"):
            state, losses = jax.block_until_ready(run.solver.fit_strategy(state, iteration))
        values |= _loss_metrics("strategy", losses, iteration)
    if is_evaluated:
        with timer.phase("evaluation"):
            values |= _evaluate(run, state, is_last)
    traversal = _traversal_metrics(run.game, batches, timer.seconds["traversal"])
    values |= traversal | _memory_metrics(state) | timer.metrics()
    run.metrics.write(iteration, values)
    if is_saved:  # after the metrics, which a resumed run cuts back to its checkpoint
        run.progress.phase("checkpoint")
        _save(run, state, iteration)
    run.progress.advance(traversal["traversal/nodes_per_second"])
    return state


def _update_player(
    run: Run, timer: "_Timer", state: DeepCfrState, player: int, iteration: int
) -> tuple[DeepCfrState, Statistics, dict[str, float]]:
    """Traverses as one player, remembers the samples, and fits its networks."""
    solver = run.solver
    run.progress.phase(f"traversal, player {player}")
    with timer.phase("traversal"):
        tape, summary = jax.block_until_ready(solver.traverse(state, player, iteration))
    batch = _batch_statistics(run.game, run.config.traversal.traversals)(tape, summary)
    with timer.phase("memory"):
        state = solver.remember(state, player, iteration, tape, summary)
        del tape
        jax.block_until_ready(state)
    run.progress.phase(f"advantage network, player {player}")
    with timer.phase("advantage_train"):
        state, losses = jax.block_until_ready(solver.fit_advantage(state, player, iteration))
    run.progress.phase(f"critic, player {player}")
    with timer.phase("critic_train"):
        state, critic_losses = jax.block_until_ready(solver.fit_critic(state, player, iteration))
    batch = jax.device_get(batch)
    if batch.unfinished:
        raise UserError(
            f"{batch.unfinished} traversals of iteration {iteration} overflowed the tape, whose "
            f"size follows from rules.max_turns; allowed: 0"
        )
    values = _loss_metrics(f"advantage_{player}", losses, iteration)
    values |= _loss_metrics(f"critic_{player}", critic_losses, iteration)
    return state, batch, values


def _is_due(iteration: int, every: int) -> bool:
    return every > 0 and iteration % every == 0


@functools.cache
def _batch_statistics(game: Game, quota: int):
    return jax.jit(functools.partial(statistics, game, quota))


def _loss_metrics(name: str, losses: jax.Array, iteration: int) -> dict[str, float]:
    """First and last losses of a fit; a loss that is no number ends the run."""
    first, last = (float(loss) for loss in losses)
    if not np.isfinite([first, last]).all():
        raise UserError(
            f"the {name} loss of iteration {iteration} is {last}; allowed: a finite number; "
            f"try a smaller learner.learning_rate; earlier checkpoints are kept"
        )
    return {f"loss/{name}_first": first, f"loss/{name}_last": last}


def _traversal_metrics(game: Game, batches: list[Statistics], seconds: float) -> dict[str, Any]:
    total = jax.tree.map(lambda *parts: np.sum(parts, axis=0, dtype=np.int64), *batches)
    return {
        "traversal/nodes": total.nodes,
        "traversal/nodes_per_second": float(total.nodes / max(seconds, 1e-9)),
        "traversal/realised_batch": float(total.nodes / total.half_steps),
        "traversal/utilisation": float(total.nodes / total.rows),
        "traversal/terminals": total.terminals,
        "traversal/timeouts": total.timeouts,
        "traversal/cutoffs": total.cutoffs,
        "traversal/fallback_rate": float(total.fallbacks / total.nodes),
        "traversal/depth_histogram": total.depth_histogram,
        "traversal/depth_bin_size": depth_bin_size(game),
    }


def _memory_metrics(state: DeepCfrState) -> dict[str, int]:
    memories = {
        "advantage_0": state.advantage_memories[0],
        "advantage_1": state.advantage_memories[1],
        "strategy": state.strategy_memory,
    }
    metrics = {}
    for name, reservoir in memories.items():
        low, high = (int(word) for word in jax.device_get(reservoir.seen))
        metrics[f"memory/{name}_seen"] = (high << 32) + low
        metrics[f"memory/{name}_size"] = int(memory.size(reservoir))
    return metrics


def _evaluate(run: Run, state: DeepCfrState, is_last: bool) -> dict[str, float]:
    """Matches against the configured bots; the last evaluation is shown as a table."""
    agents = {"eval": average_agent("average strategy", run.network, state.strategy.params)}
    if is_last:
        params = (state.advantage[0].params, state.advantage[1].params)
        agents["eval_current"] = current_agent(
            "current strategy", run.network, params, run.config.traversal.fallback
        )
    values = {}
    for prefix, agent in agents.items():
        results = list(_matches(run, agent))
        for result in results:
            values |= result.metrics(prefix)
            run.log.write_file(str(result))
        if is_last:
            print_results(run.log.console, agent.name, results)
    return values


def _matches(run: Run, agent: Agent) -> Iterator[MatchResult]:
    settings = run.config.evaluation
    for name in settings.opponents:
        run.progress.phase(f"evaluation, {name}")
        yield from evaluate(
            run.config.rules,
            agent,
            [bot_agent(run.config.rules, name)],
            settings.games,
            run.config.traversal.batch_width,
            run.config.seed,
        )


def _save(run: Run, state: DeepCfrState, iteration: int) -> None:
    policy, training = _split(state)
    checkpoint.save(
        run.folder / checkpoint.FOLDER,
        iteration,
        policy,
        training,
        checkpoint.Metadata(
            rules=run.config.rules,
            network=dataclasses.asdict(run.config.network),
            fallback=run.config.traversal.fallback,
        ),
        run.config.checkpoint.keep,
    )


def _split(state: DeepCfrState) -> tuple[dict[str, Any], dict[str, Any]]:
    """The policy's parameters, and the rest, as a checkpoint keeps them."""
    policy = {
        "strategy": state.strategy.params,
        "advantage": [learner.params for learner in state.advantage],
    }
    training = {
        "strategy_optimizer": state.strategy.optimizer,
        "advantage_optimizers": [learner.optimizer for learner in state.advantage],
        "critic": state.critic,
        "strategy_memory": state.strategy_memory,
        "advantage_memories": list(state.advantage_memories),
    }
    return policy, training


def _restore(config: Config, folder: pathlib.Path, solver: DeepCfr) -> tuple[DeepCfrState, int]:
    """The state of a run's newest checkpoint and its iteration."""
    path = checkpoint.resolve(folder)
    metadata = checkpoint.read_metadata(path)
    checkpoint.check_compatible(metadata, config.rules, config.network)
    policy, training = _split(jax.eval_shape(solver.init))
    policy = checkpoint.restore_policy(path, policy)
    training = checkpoint.restore_training(path, training)
    advantage = [
        LearnerState(params, optimizer)
        for params, optimizer in zip(
            policy["advantage"], training["advantage_optimizers"], strict=True
        )
    ]
    state = DeepCfrState(
        advantage=(advantage[0], advantage[1]),
        strategy=LearnerState(policy["strategy"], training["strategy_optimizer"]),
        advantage_memories=tuple(training["advantage_memories"]),
        strategy_memory=training["strategy_memory"],
        critic=training["critic"],
        critic_memory=solver.init().critic_memory,
    )
    return state, metadata.iteration


class _Timer:
    """Seconds of each phase of an iteration, without those spent compiling."""

    def __init__(self, clock: CompileClock):
        self._clock = clock
        self._started, self._compiled = time.perf_counter(), clock.seconds
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
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
