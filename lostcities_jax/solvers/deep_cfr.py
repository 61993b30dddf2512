"""Deep CFR (Brown et al. 2019) with lockstep sampling: the steps of an iteration.

One iteration updates both players: each in turn is the traverser of a batch of traversals,
whose decisions go to its advantage memory and the other player's to the strategy memory;
then its advantage network and the critic are fitted. The strategy network, the average
policy, is fitted when somebody asks for it. Each step is one compiled program; between steps
nothing but parameters, counters and the tape's handle passes through the host.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from lostcities_jax import memory, snapshots
from lostcities_jax.games.game import Game
from lostcities_jax.learner import (
    Learner,
    LearnerState,
    iteration_weights,
    make_learner,
    make_optimizer,
)
from lostcities_jax.losses import Loss, cross_entropy, squared_error
from lostcities_jax.networks import Network
from lostcities_jax.settings import Config
from lostcities_jax.snapshots import Snapshots
from lostcities_jax.solvers.opponents import SeatParams, draw_from_league
from lostcities_jax.solvers.remembering import Memories, needs_critic
from lostcities_jax.solvers.scheduling import make_scheduler
from lostcities_jax.traversal.lockstep import Seat
from lostcities_jax.traversal.statistics import Statistics

# Streams of random numbers folded from the run's seed.
_INIT, _TRAVERSE, _MEMORY, _FIT, _LEAGUE, _SNAPSHOT = range(6)
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
    traverse: Callable[..., Any]
    statistics: Callable[[Any], Statistics]
    remember: Callable[..., DeepCfrState]
    fit_advantage: Callable[..., tuple[DeepCfrState, jax.Array]]
    fit_critic: Callable[..., tuple[DeepCfrState, jax.Array]]
    fit_strategy: Callable[..., tuple[DeepCfrState, jax.Array]]
    keep_snapshot: Callable[..., DeepCfrState]
    close: Callable[[], None]


def make_deep_cfr(config: Config, game: Game, network: Network, mesh: Mesh) -> DeepCfr:
    """Builds the steps of a configuration; lanes are spread over `mesh`, the rest runs on its
    first device."""
    learners = _learners(config, game, network)
    has_critic = needs_critic(config.traversal.estimator)
    home = mesh.devices.flat[0]

    def key_of(stream: int, iteration: int, learner: int) -> jax.Array:
        key = jax.random.fold_in(jax.random.key(config.seed), stream)
        return jax.random.fold_in(jax.random.fold_in(key, iteration), learner)

    def init() -> DeepCfrState:
        new = functools.partial(memory.init, info_size=game.info_size, max_actions=game.max_actions)
        sizes = config.memory
        state = DeepCfrState(
            advantage=_pair(lambda p: learners.advantage.init(key_of(_INIT, 0, p))),
            strategy=learners.strategy.init(key_of(_INIT, 0, _STRATEGY)),
            critic=learners.critic.init(key_of(_INIT, 0, _CRITIC)) if has_critic else None,
            advantage_memories=_pair(lambda _: new(sizes.advantage_capacity)),
            strategy_memory=new(sizes.strategy_capacity),
            critic_memory=new(config.critic.capacity) if has_critic else None,
        )
        if config.snapshots.every:
            networks = _pair(lambda p: state.advantage[p].params)
            state = state._replace(snapshots=snapshots.init(networks, config.snapshots.slots))
        # Bound to the device that every later step leaves it on, or all compile twice.
        return jax.device_put(state, home)

    scheduler = make_scheduler(config, game, network, mesh)
    draw = jax.jit(functools.partial(draw_from_league, config.league), static_argnums=2)

    def seats_of(state: DeepCfrState, traverser: int, iteration: int) -> tuple[Seat, Seat]:
        opponent, other = config.traversal.opponent, 1 - traverser
        params = SeatParams(state.advantage[other].params, jnp.asarray(opponent == "average"))
        if opponent == "average":
            params = params._replace(network=state.strategy.params)
        elif opponent == "league":
            key = key_of(_LEAGUE, iteration, traverser)
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
            iteration,
            key_of(_TRAVERSE, iteration, traverser),
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
            key_of(_MEMORY, iteration, traverser),
        )
        return state._replace(
            advantage_memories=_replace(state.advantage_memories, traverser, memories.advantage),
            strategy_memory=memories.strategy,
            critic_memory=memories.critic,
        )

    fits = Learners(*(jax.jit(learner.fit, donate_argnums=0) for learner in learners))
    weights = functools.partial(_weights, config)

    def fit_advantage(
        state: DeepCfrState, player: int, iteration: int
    ) -> tuple[DeepCfrState, jax.Array]:
        start, key = state.advantage[player], key_of(_FIT, iteration, player)
        if not config.learner.warm_start:
            start = learners.advantage.init(key_of(_INIT, iteration, player))
        samples = state.advantage_memories[player]
        fitted, losses = fits.advantage(start, samples, weights(iteration, False), key)
        return state._replace(advantage=_replace(state.advantage, player, fitted)), losses

    def fit_critic(
        state: DeepCfrState, player: int, iteration: int
    ) -> tuple[DeepCfrState, jax.Array]:
        if state.critic is None:
            return state, jnp.zeros((2,))
        key = key_of(_FIT, iteration, _CRITIC + player)
        newest_only = jnp.ones((config.iterations + 1,))
        fitted, losses = fits.critic(state.critic, state.critic_memory, newest_only, key)
        return state._replace(critic=fitted), losses

    def fit_strategy(state: DeepCfrState, iteration: int) -> tuple[DeepCfrState, jax.Array]:
        key = key_of(_FIT, iteration, _STRATEGY)
        samples, sample_weights = state.strategy_memory, weights(iteration, True)
        fitted, losses = fits.strategy(state.strategy, samples, sample_weights, key)
        return state._replace(strategy=fitted), losses

    keep = jax.jit(snapshots.keep, donate_argnums=0)

    def keep_snapshot(state: DeepCfrState, iteration: int) -> DeepCfrState:
        if state.snapshots is None or iteration % config.snapshots.every:
            return state
        networks = _pair(lambda p: state.advantage[p].params)
        key = key_of(_SNAPSHOT, iteration, 0)
        kept = keep(state.snapshots, networks, jnp.int32(iteration), key)
        return state._replace(snapshots=kept)

    return DeepCfr(
        init=init,
        traverse=traverse,
        statistics=scheduler.statistics,
        remember=remember,
        fit_advantage=fit_advantage,
        fit_critic=fit_critic,
        fit_strategy=fit_strategy,
        keep_snapshot=keep_snapshot,
        close=scheduler.close,
    )


def _weights(config: Config, iteration: int, is_strategy: bool) -> jax.Array:
    weighting, length = config.learner.weighting, config.iterations + 1
    return jnp.asarray(iteration_weights(weighting, iteration, is_strategy, length))


class Learners(NamedTuple):
    """One entry for each kind of network."""

    advantage: Any
    strategy: Any
    critic: Any


def _learners(config: Config, game: Game, network: Network) -> Learners:
    settings, critic = config.learner, config.critic

    def make(loss: Loss, steps: int, scale: float, fits: int) -> Learner:
        optimizer = make_optimizer(settings, steps * fits * config.iterations)
        return make_learner(game, network, loss, optimizer, steps, settings.batch_size, scale)

    constant = make_optimizer(dataclasses.replace(settings, final_rate=1.0))
    steps = settings.strategy_steps
    return Learners(
        advantage=make(squared_error, settings.advantage_steps, settings.target_scale, fits=1),
        strategy=make_learner(
            game, network, cross_entropy, constant, steps, settings.batch_size, target_scale=1.0
        ),
        critic=make(squared_error, critic.steps, critic.target_scale, fits=2),
    )


def _pair(make: Callable[[int], Any]) -> tuple[Any, Any]:
    return make(0), make(1)


def _replace(pair: tuple, index: int, new: object) -> tuple:
    return (new, pair[1]) if index == 0 else (pair[0], new)
