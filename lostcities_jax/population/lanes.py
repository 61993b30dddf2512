"""Lanes: self-play runs whose numbers differ, advanced side by side by one program.

Every lane is a whole run: its own networks, reservoir, random keys and iteration. The program is
built from the steps of a single run, with traced scalars in those fields of its settings that
differ. A lane whose step leaves anything that is not finite keeps the state it had, so what
becomes of it touches no other.

Lanes are spread over devices. On a CPU a device takes its lanes one after another, which keeps
products large and memory traffic small; elsewhere it takes them as one batch.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from lostcities_jax.devices import TRACED
from lostcities_jax.games.game import Game
from lostcities_jax.games.utility import paid_by, with_utility
from lostcities_jax.networks import Network
from lostcities_jax.population.variants import with_numbers
from lostcities_jax.settings import Config
from lostcities_jax.solvers.seating import Rival
from lostcities_jax.solvers.self_play import SelfPlay, SelfPlayState, make_self_play
from lostcities_jax.traversal.statistics import Statistics


class Turn(NamedTuple):
    """What each lane is to do next; L lanes.

    Attributes:
      numbers: value of each setting that differs, by its dotted key; of a choice, its index.
        int32[L] or float32[L].
      iteration: from 1. int32[L].
      runs: False where a lane has nothing to do. bool[L].
    """

    numbers: Mapping[str, Any]
    iteration: Any
    runs: Any


class Report(NamedTuple):
    """What became of it.

    Attributes:
      is_good: whether losses and parameters are finite; if not, the state is the one before.
        bool[L].
      losses: of each fit by its name, the means of its first and last tenth. float32[L, 2].
      statistics: of each batch of games; none where none was played.
    """

    is_good: jax.Array
    losses: dict[str, jax.Array]
    statistics: tuple[Statistics, ...]


class Lanes(NamedTuple):
    """Compiled programs over lanes; the lanes must divide by the devices.

    Attributes:
      init: `numbers -> state`.
      iterate: `(turn, state) -> (state, Report)`; donates the state.
      finish: the same, fitting the average strategy after the last iteration.
    """

    init: Callable[[Mapping[str, Any]], SelfPlayState]
    iterate: Callable[[Turn, SelfPlayState], tuple[SelfPlayState, Report]]
    finish: Callable[[Turn, SelfPlayState], tuple[SelfPlayState, Report]]


def make_lanes(
    config: Config,
    game: Game,
    network: Network,
    mesh: Mesh,
    rival: Rival | None = None,
    is_batched: bool | None = None,
) -> Lanes:
    """Builds the programs of a group of variants.

    Args:
      config: the settings that they share.
      game: the game, in points.
      network: the network.
      mesh: devices, of one axis.
      rival: an opponent to learn to beat.
      is_batched: whether a device takes its lanes as one batch; by default not on a CPU.
    """
    is_cpu = mesh.devices.flat[0].platform == "cpu"

    def steps_of(numbers: Mapping[str, Any]) -> SelfPlay:
        own = with_numbers(config, numbers)
        pay = paid_by if any(key.startswith("utility.") for key in numbers) else with_utility
        played_for = pay(game, own.utility.points, own.utility.win)
        return make_self_play(own, played_for, network, TRACED, rival)

    def init(numbers: Mapping[str, Any]) -> SelfPlayState:
        return _without_newest(steps_of(numbers).init())

    def iterate(turn: Turn, old: SelfPlayState) -> tuple[SelfPlayState, Report]:
        steps = steps_of(turn.numbers)
        memories = steps.new_memories()._replace(strategy=old.memories.strategy)
        state, statistics = old._replace(memories=memories), []
        for index in range(steps.batches):
            batch = steps.play(old, turn.iteration, index)
            statistics.append(steps.statistics(batch))
            state = steps.remember(state, turn.iteration, index, batch)
        state, policy_losses = steps.fit_policy(state, turn.iteration)
        state, critic_losses = steps.fit_critic(state, turn.iteration)
        state = steps.keep_snapshot(state, turn.iteration)
        losses = {"policy": policy_losses, "critic": critic_losses}
        return _if_finite(_without_newest(state), old, losses, tuple(statistics))

    def finish(turn: Turn, old: SelfPlayState) -> tuple[SelfPlayState, Report]:
        state, losses = steps_of(turn.numbers).fit_strategy(old, config.iterations)
        return _if_finite(state, old, {"strategy": losses}, ())

    as_batch = not is_cpu if is_batched is None else is_batched
    spread = functools.partial(_over_lanes, mesh=mesh, is_batched=as_batch)
    return Lanes(
        init=jax.jit(spread(init)),
        iterate=jax.jit(spread(_where_it_runs(iterate)), donate_argnums=1),
        finish=jax.jit(spread(_where_it_runs(finish)), donate_argnums=1),
    )


def _over_lanes(step: Callable, mesh: Mesh, is_batched: bool) -> Callable:
    """A function of one lane over all of them: a share on each device."""

    def on_device(*lanes: Any) -> Any:
        if is_batched:
            return jax.vmap(step)(*lanes)
        return jax.lax.map(lambda lane: step(*lane), lanes)

    over_devices = PartitionSpec(mesh.axis_names[0])
    return jax.shard_map(
        on_device, mesh=mesh, in_specs=over_devices, out_specs=over_devices, check_vma=False
    )


def _where_it_runs(step: Callable) -> Callable:
    """The step for lanes that have something to do; of the others the state stays."""

    def guarded(turn: Turn, state: SelfPlayState) -> tuple[SelfPlayState, Report]:
        _, report = jax.eval_shape(step, turn, state)
        idle = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), report)
        return jax.lax.cond(turn.runs, step, lambda _, same: (same, idle), turn, state)

    return guarded


def _without_newest(state: SelfPlayState) -> SelfPlayState:
    """The state between iterations, when the memories of the newest batch are of no use."""
    return state._replace(memories=state.memories._replace(advantage=None, critic=None))


def _if_finite(
    new: SelfPlayState,
    old: SelfPlayState,
    losses: dict[str, jax.Array],
    statistics: tuple[Statistics, ...],
) -> tuple[SelfPlayState, Report]:
    learned = (new.policy, new.critic, new.strategy)
    floats = [leaf for leaf in jax.tree.leaves((learned, losses)) if leaf.dtype == jnp.float32]
    is_good = jnp.stack([jnp.isfinite(leaf).all() for leaf in floats]).all()
    state = jax.tree.map(lambda after, before: jnp.where(is_good, after, before), new, old)
    return state, Report(is_good, losses, statistics)
