"""`python -m benchmarks.variance`: how much the targets of each estimator scatter.

A solver is trained for a few iterations, so that its policies choose and its critic knows
something. Then the same policies are traversed under each way to sample, and the targets of each
estimator are taken from the same tapes.
"""

import dataclasses
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.fixtures import positions
from benchmarks.harness import Measurement, Report, parse_flags
from lostcities_jax import checkpoint, run_folder, run_state
from lostcities_jax.cli import Preset
from lostcities_jax.devices import LANE_AXIS, Machine, one_process, select_devices
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.games.catalogue import make_game
from lostcities_jax.games.game import Game
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.networks import Network, make_network
from lostcities_jax.rules import PRESETS, Rules
from lostcities_jax.settings import (
    Config,
    Count,
    CriticConfig,
    Seed,
    checked,
)
from lostcities_jax.solvers.catalogue import make_solver
from lostcities_jax.solvers.opponents import SeatParams, traversal_policy
from lostcities_jax.solvers.remembering import ESTIMATORS
from lostcities_jax.solvers.self_play import SelfPlayState, make_self_play
from lostcities_jax.traversal.critic import baselines
from lostcities_jax.traversal.lockstep import Seat, traverse
from lostcities_jax.traversal.plan import Plan
from lostcities_jax.traversal.samples import Decisions
from lostcities_jax.traversal.tape import sweep

NAME = "variance"
_SAMPLINGS = {"outcome": 0, "robust, 1": 1, "robust, 2": 2, "external": 64}
_BRANCHING_TURNS = 10  # longer games have too many paths for more than one action


@checked
@dataclasses.dataclass(frozen=True)
class Flags:
    """Variance of the regret targets of each estimator under each way to sample.

    Attributes:
      rules: rules of the games.
      run: run of one network in both seats, whose policy and critic are measured as they are
        saved; without one they are trained first.
      iterations: of that training.
      traversals: traversals of player 0 for the variance of all targets.
      positions: positions whose first decision is sampled again and again.
      copies: traversals from each position.
      epsilon: share of uniform exploration of outcome sampling.
      seed: seed of everything.
      store: append the records to benchmarks/results.
    """

    rules: tuple[Preset, ...] = ("mini", "classic")
    run: str = ""
    iterations: Count = 6
    traversals: Count = 2048
    positions: Count = 32
    copies: Count = 128
    epsilon: float = 0.1
    seed: Seed = 0
    store: bool = False


@dataclasses.dataclass(frozen=True)
class _Setup:
    """A trained solver."""

    config: Config
    game: Game
    network: Network
    state: SelfPlayState


def main(argv: Sequence[str]) -> None:
    """Runs the command; raises UserError for whatever the user can mend."""
    flags = parse_flags(Flags, argv, NAME)
    select_devices("auto")
    report = Report(NAME, "variance of regret targets, points squared", flags, argv)
    for preset in flags.rules:
        setup = _saved(flags.run) if flags.run else _trained(flags, PRESETS[preset])
        can_branch = setup.config.rules.max_turns <= _BRANCHING_TURNS
        for sampling, branches in _SAMPLINGS.items():
            if branches < 2 or can_branch:
                for estimator, figures in _measure(flags, setup, branches).items():
                    report.add(_row(preset, sampling, estimator, figures))
    report.finish()


def _row(preset: str, sampling: str, estimator: str, figures: dict[str, float]) -> Measurement:
    settings = {"game": preset, "sampling": sampling, "estimator": estimator}
    variance = figures.pop("variance")
    return Measurement(settings=settings, unit="variance", rates=[variance], figures=figures)


def _saved(run: str) -> _Setup:
    """The newest checkpoint of a run."""
    folder = pathlib.Path(run)
    config = run_folder.reopen(folder)
    game = make_game(config.game, config.rules)
    network = make_network(game, **dataclasses.asdict(config.network))
    path = checkpoint.resolve(folder)
    state, _ = run_state.restore(config, path, make_solver(config, game, network, _one_device()))
    if not isinstance(state, SelfPlayState):
        raise UserError(f"run is {run}, with a network for each seat; allowed: one for both")
    return _Setup(config, game, network, state)


def _one_device() -> Machine:
    return one_process(jax.sharding.Mesh(np.array(jax.devices()[:1]), (LANE_AXIS,)))


def _trained(flags: Flags, rules: Rules) -> _Setup:
    is_small = rules.max_turns <= _BRANCHING_TURNS
    scale = 4.0 if is_small else 30.0
    config = Config(
        seed=flags.seed,
        iterations=flags.iterations,
        rules=rules,
        critic=CriticConfig(trace=0.0 if is_small else 0.9, steps=200, target_scale=scale),
    )
    game = lost_cities(rules)
    network = make_network(game, **dataclasses.asdict(config.network))
    steps = make_self_play(config, game, network, _one_device())
    state = steps.init()
    for iteration in range(1, flags.iterations + 1):
        state = steps.remember(state, iteration, 0, steps.play(state, iteration, 0))
        state, _ = steps.fit_policy(state, iteration)
        state, _ = steps.fit_critic(state, iteration)
    return _Setup(config, game, network, state)


def _measure(flags: Flags, setup: _Setup, branches: int) -> dict[str, dict[str, float]]:
    """Figures of each estimator: over all decisions, and at one and the same position."""
    game, width = setup.game, 256
    plan = Plan(width, flags.traversals, branches, has_critic=True)
    seats = _seats(flags, setup)
    critic = setup.state.critic.params
    key = jax.random.key(flags.seed + 1)
    whole = _targets(setup, plan, None)(seats, critic, key, None)
    quota = flags.positions * flags.copies
    repeated = dataclasses.replace(plan, quota=quota)
    middle = positions(game, flags.positions, flags.seed)[0]
    starts = jax.tree.map(lambda leaf: jnp.repeat(leaf, flags.copies, axis=0), middle.state)
    first = _targets(setup, repeated, 0)(seats, critic, key, starts)
    figures: dict[str, dict[str, float]] = {}
    for estimator in ESTIMATORS:
        target, legal, _ = whole[estimator]
        values = target[legal].astype(np.float64)
        figures[estimator] = {
            "variance": values.var(),
            "at one position": _within(flags.copies, *first[estimator]),
            "samples": float(legal.any(-1).sum()),
        }
    plain = figures["outcome"]["variance"]
    for found in figures.values():
        found["times less than plain"] = plain / max(found["variance"], 1e-12)
    return figures


def _within(copies: int, target: np.ndarray, legal: np.ndarray, traversal: np.ndarray) -> float:
    """Mean variance of an action's target over traversals of the same position."""
    start = traversal // copies
    variances = []
    for position in np.unique(start):
        of_position = start == position
        shared = legal[of_position].all(0)
        variances += target[of_position][:, shared].astype(np.float64).var(0).tolist()
    return float(np.mean(variances))


def _seats(flags: Flags, setup: _Setup) -> tuple[Seat, Seat]:
    params = SeatParams(setup.state.policy.params, jnp.asarray(False))
    return (
        Seat(params, jnp.float32(flags.epsilon), jnp.asarray(True)),
        Seat(params, jnp.float32(0.0), jnp.asarray(False)),
    )


def _targets(setup: _Setup, plan: Plan, rank: int | None) -> Any:
    """Builds a program for player 0's targets by estimator: target, legal and position.

    With a rank, those of that decision of each traversal alone. Rows are picked on the host.
    """
    game, scale = setup.game, setup.config.critic.target_scale
    policy = traversal_policy(setup.network, setup.config.traversal.fallback)

    @jax.jit
    def program(seats: tuple[Seat, Seat], critic: Any, key: jax.Array, initial: Any) -> Any:
        count = jnp.int32(plan.quota)
        tape, summary = traverse(
            game, (policy, policy), plan, seats, key, jnp.int32(0), count, initial
        )
        values_of = baselines(game, setup.network, critic, tape, scale)
        levels = plan.levels(game)
        around = sweep(game, tape, values_of, levels=levels)
        plain = sweep(game, tape, levels=levels)
        found = {}
        for estimator, make_target in ESTIMATORS.items():
            is_plain = estimator == "outcome"
            values, critics = (plain, (None,) * len(values_of)) if is_plain else (around, values_of)
            made = []
            for k in game.phases_of(0):
                parts = (tape.rows[k], values[k], critics[k])
                flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), parts)
                made.append((make_target(Decisions(*flat)), flat[0].live, flat[0].rank))
            found[estimator] = made
        return found, tape.ends.traversal.reshape(-1), summary.finished.all()

    def targets(*args: Any) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        found, traversal, finished = jax.device_get(program(*args))
        assert finished, "the tape was too short"
        return {
            estimator: _picked(game, made, traversal, rank) for estimator, made in found.items()
        }

    return targets


def _picked(
    game: Game, made: list, traversal: np.ndarray, rank: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    columns = []
    for target, live, ranks in made:
        chosen = live if rank is None else live & (ranks == rank)
        padding = ((0, 0), (0, game.max_actions - target.target.shape[-1]))
        columns.append(
            (
                np.pad(target.target[chosen], padding),
                np.pad(target.legal[chosen], padding),
                traversal[chosen],
            )
        )
    target, legal, episodes = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    return target, legal, episodes


if __name__ == "__main__":
    sys.exit(run_command(main))
