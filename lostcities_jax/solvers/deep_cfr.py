"""Deep CFR (Brown et al. 2019) with lockstep outcome sampling: the steps of an iteration.

One iteration updates both players: each in turn is the traverser of a batch of traversals,
whose decisions go to its advantage memory and the other player's to the strategy memory;
then its advantage network is fitted. The strategy network, the average policy, is fitted
when somebody asks for it. Each step is one compiled program; between steps nothing but
parameters, counters and the tape's handle passes through the host.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lostcities_jax import memory
from lostcities_jax.config import Config
from lostcities_jax.games.game import Game
from lostcities_jax.learner import (
    Learner,
    LearnerState,
    cross_entropy,
    iteration_weights,
    make_learner,
    make_optimizer,
    squared_error,
)
from lostcities_jax.networks import Network
from lostcities_jax.regret import masked_softmax, regret_matching
from lostcities_jax.traversal.lockstep import Plan, Seat, Summary, TraversalPolicy
from lostcities_jax.traversal.samples import ADVANTAGE, STRATEGY, add_samples
from lostcities_jax.traversal.sharded import sharded_traverse, shards
from lostcities_jax.traversal.tape import Tape, sweep

# Streams of random numbers folded from the run's seed.
_INIT, _TRAVERSE, _MEMORY, _FIT = range(4)
_STRATEGY = 2  # beside players 0 and 1, the third learner and memory


class DeepCfrState(NamedTuple):
    """What an iteration changes, and all that a checkpoint needs.

    Attributes:
      advantage: each player's advantage network and optimiser.
      strategy: the strategy network and optimiser.
      advantage_memories: each player's advantage samples.
      strategy_memory: strategy samples of both players.
    """

    advantage: tuple[LearnerState, LearnerState]
    strategy: LearnerState
    advantage_memories: tuple[memory.Memory, memory.Memory]
    strategy_memory: memory.Memory


class SeatParams(NamedTuple):
    """Parameters of a traversal policy: regret matching, or the average strategy's softmax."""

    network: Any
    is_average: jax.Array


class DeepCfr(NamedTuple):
    """The steps of an iteration; iterations count from 1, and players are 0 and 1.

    Attributes:
      init: `() -> DeepCfrState`.
      traverse: `(state, traverser, iteration) -> (tape, summary)`.
      remember: `(state, traverser, iteration, tape, summary) -> state`; donates the
        memories of `state`.
      fit_advantage: `(state, player, iteration) -> (state, losses float32[2])`; donates the
        learner of `state`.
      fit_strategy: `(state, iteration) -> (state, losses float32[2])`; likewise.
    """

    init: Callable[[], DeepCfrState]
    traverse: Callable[..., tuple[Tape, Summary]]
    remember: Callable[..., DeepCfrState]
    fit_advantage: Callable[..., tuple[DeepCfrState, jax.Array]]
    fit_strategy: Callable[..., tuple[DeepCfrState, jax.Array]]


def make_deep_cfr(config: Config, game: Game, network: Network, mesh: Mesh) -> DeepCfr:
    """Builds the steps of a configuration; lanes are spread over `mesh`, the rest runs on its
    first device."""
    advantage_learner, strategy_learner = _learners(config, game, network)
    root = functools.partial(jax.random.fold_in, jax.random.key(config.seed))

    def key_of(stream: int, iteration: int, learner: int) -> jax.Array:
        return jax.random.fold_in(jax.random.fold_in(root(stream), iteration), learner)

    def init() -> DeepCfrState:
        new = functools.partial(memory.init, info_size=game.info_size, max_actions=game.max_actions)
        sizes = config.memory
        state = DeepCfrState(
            advantage=_pair(lambda p: advantage_learner.init(key_of(_INIT, 0, p))),
            strategy=strategy_learner.init(key_of(_INIT, 0, _STRATEGY)),
            advantage_memories=_pair(lambda _: new(sizes.advantage_capacity)),
            strategy_memory=new(sizes.strategy_capacity),
        )
        # Bound to the device that every later step leaves it on, or all compile twice.
        return jax.device_put(state, mesh.devices[0])

    plan = traversal_plan(config)
    run = sharded_traverse(game, traversal_policy(network, config.traversal.fallback), plan, mesh)
    replicated = NamedSharding(mesh, PartitionSpec())

    def traverse(state: DeepCfrState, traverser: int, iteration: int) -> tuple[Tape, Summary]:
        seats = _seats(config, state, traverser)
        key = key_of(_TRAVERSE, iteration, traverser)
        return run(*jax.device_put((seats, key), replicated))

    remember_shards = jax.jit(
        functools.partial(_remember, game), static_argnums=0, donate_argnums=1
    )

    def remember(
        state: DeepCfrState, traverser: int, iteration: int, tape: Tape, summary: Summary
    ) -> DeepCfrState:
        carry = (
            state.advantage_memories[traverser],
            state.strategy_memory,
            jnp.zeros((2,), jnp.int32),
        )
        key = key_of(_MEMORY, iteration, traverser)
        for shard in shards(tape, summary, mesh.devices[0]):
            carry = remember_shards(traverser, carry, *shard, jnp.int32(iteration), key)
        memories = _replace(state.advantage_memories, traverser, carry[0])
        return state._replace(advantage_memories=memories, strategy_memory=carry[1])

    fits = [
        jax.jit(learner.fit, donate_argnums=0) for learner in (advantage_learner, strategy_learner)
    ]

    def weights(iteration: int, is_strategy: bool) -> jax.Array:
        length = config.iterations + 1
        return jnp.asarray(
            iteration_weights(config.learner.weighting, iteration, is_strategy, length)
        )

    def fit_advantage(
        state: DeepCfrState, player: int, iteration: int
    ) -> tuple[DeepCfrState, jax.Array]:
        start = state.advantage[player]
        if not config.learner.warm_start:
            start = advantage_learner.init(key_of(_INIT, iteration, player))
        learner, losses = fits[0](
            start,
            state.advantage_memories[player],
            weights(iteration, False),
            key_of(_FIT, iteration, player),
        )
        return state._replace(advantage=_replace(state.advantage, player, learner)), losses

    def fit_strategy(state: DeepCfrState, iteration: int) -> tuple[DeepCfrState, jax.Array]:
        learner, losses = fits[1](
            state.strategy,
            state.strategy_memory,
            weights(iteration, True),
            key_of(_FIT, iteration, _STRATEGY),
        )
        return state._replace(strategy=learner), losses

    return DeepCfr(init, traverse, remember, fit_advantage, fit_strategy)


def traversal_plan(config: Config) -> Plan:
    """The static sizes of a configuration's traversals."""
    sizes = config.traversal
    return Plan(sizes.batch_width, sizes.traversals, sizes.max_depth)


def traversal_policy(network: Network, fallback: str) -> TraversalPolicy:
    """The policy function of `SeatParams`: one program serves both kinds of policy."""

    def policy(
        params: SeatParams, info: jax.Array, legal: jax.Array, head: int
    ) -> tuple[jax.Array, jax.Array]:
        outputs = network.apply(params.network, info, head)
        matched, fell_back = regret_matching(outputs, legal, fallback)
        strategy = jnp.where(params.is_average, masked_softmax(outputs, legal), matched)
        return strategy, fell_back & ~params.is_average

    return policy


def _seats(config: Config, state: DeepCfrState, traverser: int) -> tuple[Seat, Seat]:
    """The traverser explores with its current strategy; the opponent plays as configured."""
    average = config.traversal.opponent == "average"
    seats = []
    for player in (0, 1):
        is_average = average and player != traverser
        learner = state.strategy if is_average else state.advantage[player]
        epsilon = config.traversal.epsilon if player == traverser else 0.0
        params = SeatParams(learner.params, jnp.asarray(is_average))
        seats.append(Seat(params, jnp.float32(epsilon)))
    return seats[0], seats[1]


def _remember(
    game: Game,
    traverser: int,
    carry: tuple[memory.Memory, memory.Memory, jax.Array],
    tape: Tape,
    summary: Summary,
    iteration: jax.Array,
    key: jax.Array,
) -> tuple[memory.Memory, memory.Memory, jax.Array]:
    """Sweeps a tape and adds its samples to both memories; carries how many came before."""
    advantages, strategies, first = carry
    values = sweep(game, tape)
    own_key, other_key = (jax.random.fold_in(key, memory_index) for memory_index in (0, 1))
    advantages, next_own = add_samples(
        game, ADVANTAGE, traverser, advantages, tape, values, summary, first[0], iteration, own_key
    )
    strategies, next_other = add_samples(
        game,
        STRATEGY,
        1 - traverser,
        strategies,
        tape,
        values,
        summary,
        first[1],
        iteration,
        other_key,
    )
    return advantages, strategies, jnp.stack([next_own, next_other])


def _learners(config: Config, game: Game, network: Network) -> tuple[Learner, Learner]:
    settings = config.learner
    optimizer = make_optimizer(
        settings.learning_rate, settings.weight_decay, settings.max_grad_norm
    )
    make = functools.partial(
        make_learner, game, network, optimizer=optimizer, batch_size=settings.batch_size
    )
    return (
        make(squared_error, steps=settings.advantage_steps, target_scale=settings.target_scale),
        make(cross_entropy, steps=settings.strategy_steps, target_scale=1.0),
    )


def _pair(make: Callable[[int], Any]) -> tuple[Any, Any]:
    return make(0), make(1)


def _replace(pair: tuple, index: int, new: object) -> tuple:
    return (new, pair[1]) if index == 0 else (pair[0], new)
