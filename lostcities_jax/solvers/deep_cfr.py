"""Deep CFR (Brown et al. 2019) with lockstep sampling: the steps of an iteration.

One iteration updates both players: each in turn is the traverser of a batch of traversals,
whose decisions go to its advantage memory and the other player's to the strategy memory;
then its advantage network and the critic are fitted. The strategy network, the average
policy, is fitted when somebody asks for it. Each step is one compiled program; between steps
nothing but parameters, counters and the tape's handle passes through the host.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lostcities_jax import memory
from lostcities_jax.devices import Machine
from lostcities_jax.games.game import Game
from lostcities_jax.learner import LearnerState
from lostcities_jax.networks import Network
from lostcities_jax.settings import Config
from lostcities_jax.snapshots import Snapshots
from lostcities_jax.solvers.common import (
    FIT,
    INIT,
    LEAGUE,
    MEMORY,
    SNAPSHOT,
    TRAVERSE,
    make_keep,
    make_keys,
    new_snapshots,
)
from lostcities_jax.solvers.fits import advantage_fit, critic_fit, strategy_fit
from lostcities_jax.solvers.joint import new_memory, own_key
from lostcities_jax.solvers.opponents import SeatParams, draw_from_league
from lostcities_jax.solvers.remembering import Memories, needs_critic
from lostcities_jax.solvers.scheduling import make_scheduler
from lostcities_jax.traversal.lockstep import Seat
from lostcities_jax.traversal.statistics import Statistics

_STRATEGY, _CRITIC = 2, 3  # beside players 0 and 1, the other learners and memories


class DeepCfrState(NamedTuple):
    """What an iteration changes, and all that a checkpoint needs.

    Attributes:
      advantage: each player's advantage network and optimiser.
      strategy: the strategy network and optimiser.
      advantage_memories: each player's advantage samples.
      strategy_memory: strategy samples of both players.
      critic: the critic and its optimiser; None where the estimator needs none.
      critic_memory: samples of the newest batch; None likewise. It begins each batch empty.
      snapshots: past advantage networks; None where none are kept.
    """

    advantage: tuple[LearnerState, LearnerState]
    strategy: LearnerState
    advantage_memories: tuple[memory.Memory, memory.Memory]
    strategy_memory: memory.Memory
    critic: LearnerState | None
    critic_memory: memory.Memory | None
    snapshots: Snapshots | None = None


class DeepCfr(NamedTuple):
    """The steps of an iteration; iterations count from 1, and players are 0 and 1.

    Attributes:
      init: `() -> DeepCfrState`.
      new_critic_memory: `() -> Memory`, empty; None where the estimator needs none.
      traverse: `(state, traverser, iteration) -> batch`, in its scheduler's own form.
      statistics: `batch -> Statistics`.
      remember: `(state, traverser, iteration, batch) -> state`; donates the memories of
        `state`.
      fit_advantage: `(state, player, iteration) -> (state, losses float32[2])`; donates the
        learner of `state`.
      fit_critic: the same, after the batch of `player`; without a critic it does nothing.
      fit_strategy: `(state, iteration) -> (state, losses float32[2])`; likewise.
      keep_snapshot: `(state, iteration) -> state`, at the end of an iteration; donates the
        snapshots of `state`.
      close: ends the processes of a scheduler that has some.
    """

    init: Callable[[], DeepCfrState]
    new_critic_memory: Callable[[], memory.Memory | None]
    traverse: Callable[..., Any]
    statistics: Callable[[Any], Statistics]
    remember: Callable[..., DeepCfrState]
    fit_advantage: Callable[..., tuple[DeepCfrState, jax.Array]]
    fit_critic: Callable[..., tuple[DeepCfrState, jax.Array]]
    fit_strategy: Callable[..., tuple[DeepCfrState, jax.Array]]
    keep_snapshot: Callable[..., DeepCfrState]
    close: Callable[[], None]


def make_deep_cfr(config: Config, game: Game, network: Network, machine: Machine) -> DeepCfr:
    """Builds the steps of a configuration."""
    advantage = advantage_fit(config, game, network, machine)
    critic = critic_fit(config, game, network, machine, per_iteration=2)
    strategy = strategy_fit(config, game, network, machine)
    has_critic = needs_critic(config.traversal.estimator)
    key_of = make_keys(config.seed)
    new = functools.partial(new_memory, machine, game)

    def new_critic_memory() -> memory.Memory | None:
        return jax.device_put(new(config.critic.capacity), machine.home) if has_critic else None

    def init() -> DeepCfrState:
        sizes = config.memory
        advantages = _pair(lambda p: advantage.init(key_of(INIT, 0, p)))
        state = DeepCfrState(
            advantage=advantages,
            strategy=strategy.init(key_of(INIT, 0, _STRATEGY)),
            critic=critic.init(key_of(INIT, 0, _CRITIC)) if has_critic else None,
            advantage_memories=_pair(lambda _: new(sizes.advantage_capacity)),
            strategy_memory=new(sizes.strategy_capacity),
            critic_memory=new_critic_memory(),
            snapshots=new_snapshots(config.snapshots, _params(advantages)),
        )
        # Bound to the device that every later step leaves it on, or all compile twice.
        return jax.device_put(state, machine.home)

    scheduler = make_scheduler(config, game, network, machine)
    draw = jax.jit(functools.partial(draw_from_league, config.league), static_argnums=2)

    def seats_of(state: DeepCfrState, traverser: int, iteration: int) -> tuple[Seat, Seat]:
        opponent, other = config.traversal.opponent, 1 - traverser
        params = SeatParams(state.advantage[other].params, jnp.asarray(opponent == "average"))
        if opponent == "average":
            params = params._replace(network=state.strategy.params)
        elif opponent == "league":
            key = key_of(LEAGUE, iteration, traverser)
            params = params._replace(network=draw(state.snapshots, params.network, other, key))
        own = SeatParams(state.advantage[traverser].params, jnp.asarray(False))
        first = Seat(own, jnp.float32(config.traversal.epsilon), jnp.asarray(True))
        second = Seat(params, jnp.float32(0.0), jnp.asarray(False))
        return (first, second) if traverser == 0 else (second, first)

    def critic_params(state: DeepCfrState) -> Any:
        return state.critic.params if state.critic is not None else None

    def traverse(state: DeepCfrState, traverser: int, iteration: int) -> Any:
        return scheduler.run(
            traverser,
            seats_of(state, traverser, iteration),
            critic_params(state),
            key_of(TRAVERSE, iteration, traverser),
        )

    def remember(state: DeepCfrState, traverser: int, iteration: int, batch: Any) -> DeepCfrState:
        memories = scheduler.remember(
            traverser,
            Memories(
                state.advantage_memories[traverser], state.strategy_memory, state.critic_memory
            ),
            batch,
            critic_params(state),
            iteration,
            own_key(machine, key_of(MEMORY, iteration, traverser)),
        )
        return state._replace(
            advantage_memories=_replace(state.advantage_memories, traverser, memories.advantage),
            strategy_memory=memories.strategy,
            critic_memory=memories.critic,
        )

    def fit_advantage(
        state: DeepCfrState, player: int, iteration: int
    ) -> tuple[DeepCfrState, jax.Array]:
        start, key = state.advantage[player], key_of(FIT, iteration, player)
        if not config.learner.warm_start:
            start = advantage.init(key_of(INIT, iteration, player))
        fitted, losses = advantage.fit(start, state.advantage_memories[player], iteration, key)
        return state._replace(advantage=_replace(state.advantage, player, fitted)), losses

    def fit_critic(
        state: DeepCfrState, player: int, iteration: int
    ) -> tuple[DeepCfrState, jax.Array]:
        if state.critic is None:
            return state, jnp.zeros((2,))
        key = key_of(FIT, iteration, _CRITIC + player)
        fitted, losses = critic.fit(state.critic, state.critic_memory, iteration, key)
        return state._replace(critic=fitted), losses

    def fit_strategy(state: DeepCfrState, iteration: int) -> tuple[DeepCfrState, jax.Array]:
        key = key_of(FIT, iteration, _STRATEGY)
        fitted, losses = strategy.fit(state.strategy, state.strategy_memory, iteration, key)
        return state._replace(strategy=fitted), losses

    keep = make_keep(config.snapshots)

    def keep_snapshot(state: DeepCfrState, iteration: int) -> DeepCfrState:
        key = key_of(SNAPSHOT, iteration)
        kept = keep(state.snapshots, _params(state.advantage), iteration, key)
        return state._replace(snapshots=kept)

    return DeepCfr(
        init=init,
        new_critic_memory=new_critic_memory,
        traverse=traverse,
        statistics=scheduler.statistics,
        remember=remember,
        fit_advantage=fit_advantage,
        fit_critic=fit_critic,
        fit_strategy=fit_strategy,
        keep_snapshot=keep_snapshot,
        close=scheduler.close,
    )


def _params(learners: tuple[LearnerState, LearnerState]) -> tuple[Any, Any]:
    return learners[0].params, learners[1].params


def _pair(make: Callable[[int], Any]) -> tuple[Any, Any]:
    return make(0), make(1)


def _replace(pair: tuple, index: int, new: object) -> tuple:
    return (new, pair[1]) if index == 0 else (pair[0], new)
