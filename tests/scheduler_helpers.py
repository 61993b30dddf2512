"""Policies with exact sums, and the memories of a lockstep batch, for the schedulers' tests."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from traversal_helpers import hashed_weights, table_policy

from lostcities_jax import memory
from lostcities_jax.networks import Network
from lostcities_jax.schedulers.answers import Players, make_critic_values
from lostcities_jax.schedulers.collected import make_remember_collected
from lostcities_jax.solvers.remembering import ESTIMATORS
from lostcities_jax.traversal import critic, lockstep, samples
from lostcities_jax.traversal.tape import sweep


def dyadic_policy(params, info, legal, head):
    """Weights 1/2, 1/4 and 1/8, which need not sum to 1: products and sums are exact."""
    del params, head
    halvings = (hashed_weights(info, legal.shape[-1]) - 1.0).astype(jnp.int32) % 3
    weights = jnp.where(halvings == 0, 0.5, jnp.where(halvings == 1, 0.25, 0.125))
    return jnp.where(legal, weights, 0.0), legal[..., 0] & (halvings[..., 0] == 1)


def hashed_critic(widths):
    """A critic whose values are whole numbers and have nothing to do with the game."""

    def apply(params, packed, head):
        del params
        return hashed_weights(packed[..., ::-1], widths[head]) - 8.0

    return Network(lambda key: None, apply, lambda params, packed: ())


def table_players(game, policy=table_policy, critic_network=None):
    values = make_critic_values(game, critic_network, 1.0) if critic_network else None
    return Players((policy, policy), values)


def build_table_players(game, settings):
    """Players of a `Blueprint` in a server's tests: importable, so that spawn can pass it on."""
    del settings
    return table_players(game, dyadic_policy)


def build_broken_players(game, settings):
    """Fails in the process that builds."""
    del game
    raise KeyError(settings)


def blank_memories(game, capacity, has_critic):
    new = functools.partial(memory.init, capacity, game.info_size, game.max_actions)
    return new(), new(), new() if has_critic else None


MEMORY_KEY = 77


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _swept(game, policies, plan, network, scales, seats, key, params):
    """A lockstep batch with everything that follows from its tape."""
    tape, summary = lockstep.traverse(
        game, policies, plan, seats, key, jnp.int32(0), jnp.int32(plan.quota)
    )
    value_scale, trace = scales
    values_of = (None,) * len(game.phases)
    if plan.has_critic:
        values_of = critic.baselines(game, network, params, tape, value_scale)
    values = sweep(game, tape, values_of, trace, plan.levels(game))
    return samples.Batch(tape, values, values_of, summary)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _added(game, make_target, players, memory, batch, key):
    nothing, iteration = jnp.int32(0), jnp.int32(1)
    return samples.add_samples(game, make_target, players, memory, batch, nothing, iteration, key)[
        0
    ]


@functools.cache
def _of_game(make_target, game):
    return functools.partial(make_target, game)


def lockstep_memories(
    game,
    players,
    plan,
    seats,
    key,
    traverser,
    capacity,
    estimator,
    network,
    trace=1.0,
    critic_params=None,
    value_scale=1.0,
):
    """Memories after a lockstep batch; with room for all, they hold the samples by rank."""
    batch = _swept(
        game, players.policies, plan, network, (value_scale, trace), seats, key, critic_params
    )
    of_game = [_of_game(make, game) for make in (samples.strategy, samples.critic_return)]
    targets = (ESTIMATORS[estimator], *of_game)
    players_of = ((traverser,), (1 - traverser,), (0, 1))
    added = []
    for index, old in enumerate(blank_memories(game, capacity, plan.has_critic)):
        memory_key = jax.random.fold_in(jax.random.key(MEMORY_KEY), index)
        if old is not None:
            old = _added(game, targets[index], players_of[index], old, batch, memory_key)
        added.append(old)
    return jax.device_get((tuple(added), batch.summary))


@functools.cache
def _remember(game, estimator):
    return make_remember_collected(game, ESTIMATORS[estimator])


def collected_memories(game, collected, traverser, capacity, estimator, has_critic):
    remember = _remember(game, estimator)
    start = blank_memories(game, capacity, has_critic)
    return jax.device_get(remember(traverser, start, collected, 1, jax.random.key(MEMORY_KEY)))


def assert_same_trees(left, right, rtol=0.0, atol=0.0):
    for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        if rtol or atol:
            np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(one, other)
