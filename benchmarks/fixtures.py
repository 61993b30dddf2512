"""Inputs for the benchmarks: positions of random games, and networks that choose."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.limits import matmul_flops
from lostcities_jax.games.game import Game, GameState
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.lanes import Decision, deal_episodes, episode_keys, fill_lanes, play_cycle
from lostcities_jax.memory import Samples
from lostcities_jax.networks import Network, make_network
from lostcities_jax.regret import sample_action, uniform_strategy
from lostcities_jax.rules import Rules
from lostcities_jax.schedulers.answers import Players
from lostcities_jax.solvers.opponents import traversal_policy

OPENING_CYCLES = 20  # into the middle of a classic game


class Position(NamedTuple):
    """Games before a decision of one phase, and a random action there.

    Attributes:
      state: game states, batched over B.
      info: packed info states of the mover. uint8[B, I].
      legal: legal actions. bool[B, A].
      action: int32[B].
    """

    state: GameState
    info: jax.Array
    legal: jax.Array
    action: jax.Array


def play_uniformly(decision: Decision) -> tuple[jax.Array, None]:
    """Uniformly random legal actions, as `play_cycle` asks for them; int32[B]."""
    return sample_action(uniform_strategy(decision.legal), decision.uniform), None


def positions(game: Game, count: int, seed: int) -> tuple[Position, ...]:
    """`count` games in the middle of random play, at each phase of a cycle in turn."""
    return _positions(game, count, jax.random.key(seed))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _positions(game: Game, count: int, key: jax.Array) -> tuple[Position, ...]:
    lanes = fill_lanes(deal_episodes(game, key, jnp.arange(count)), count, count)
    keys = episode_keys(key, lanes.episode)

    def cycle(_, lanes):
        return play_cycle(game, lanes, keys, play_uniformly)[0]

    cycles = min(OPENING_CYCLES, game.max_cycles // 2)
    state = jax.lax.fori_loop(0, cycles, cycle, lanes).state
    found = []
    uniform = jax.vmap(jax.random.uniform)(keys)
    for k in range(len(game.phases)):
        legal = jax.vmap(lambda s, k=k: game.legal(s, k))(state)
        action = sample_action(uniform_strategy(legal), uniform)
        info = jax.vmap(lambda s, k=k: game.observe(s, k))(state)
        found.append(Position(state, info, legal, action))
        state = jax.vmap(lambda s, a, k=k: game.step(s, k, a))(state, action)
    return tuple(found)


def choosing_params(network: Network, seed: int) -> Any:
    """Fresh parameters whose last layers are small random numbers instead of zeros.

    An untrained network is the uniform policy; these choose, so that regret matching has
    positive advantages and games run as in training.
    """
    random = np.random.default_rng(seed)

    def fill(leaf: jax.Array) -> jax.Array:
        if leaf.ndim < 2 or leaf.any():
            return leaf
        return jnp.asarray(0.05 * random.standard_normal(leaf.shape), leaf.dtype)

    return jax.tree.map(fill, network.init(jax.random.key(seed)))


def row_flops(game: Game, network: Network, params: Any) -> float:
    """Floating-point operations of one row of the network, its own head alone; mean of phases."""
    info = jnp.zeros((1, game.info_size), jnp.uint8)
    flops = [
        matmul_flops(lambda p, i, head=phase.head: network.apply(p, i, head), params, info)
        for phase in game.phases
    ]
    return sum(flops) / len(flops)


class NetworkShape(NamedTuple):
    """A network to measure; `seed` is that of its parameters."""

    kind: str
    hidden: int
    layers: int
    seed: int


def make_network_of(game: Game, shape: NetworkShape) -> Network:
    """The network of a shape."""
    return make_network(game, shape.kind, shape.hidden, shape.layers)


def network_players(game: Game, shape: NetworkShape) -> Players:
    """The policy that training runs in both seats, for the schedulers of the host."""
    policy = traversal_policy(make_network_of(game, shape), "argmax")
    return Players((policy, policy))


def game_flops(rules: Rules, shape: NetworkShape) -> float:
    """`row_flops` of a game of Lost Cities."""
    game = lost_cities(rules)
    network = make_network_of(game, shape)
    return row_flops(game, network, choosing_params(network, shape.seed))


def random_samples(game: Game, count: int, seed: int) -> Samples:
    """Training samples of random positions of all phases, with random targets."""
    phases = positions(game, max(count // len(game.phases), 1), seed)
    infos = jnp.concatenate([position.info for position in phases])
    legals = [
        jnp.pad(position.legal, ((0, 0), (0, game.max_actions - position.legal.shape[-1])))
        for position in phases
    ]
    legal = jnp.concatenate(legals)
    rows = jnp.arange(count) % len(infos)
    noise = np.random.default_rng(seed).standard_normal((count, game.max_actions))
    return Samples(
        info=infos[rows],
        legal=legal[rows],
        target=jnp.asarray(100 * noise, jnp.float32) * legal[rows],
        iteration=jnp.ones((count,), jnp.int32),
    )
