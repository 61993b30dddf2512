"""Who acts in a traversal: the policy functions of both seats and what they take.

One function serves the current strategy, the average one and past ones, since their networks
have one shape: who the opponent is then is data, and needs no other program. A rule-based
opponent is another function.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax.bots import BOTS, BotParams, batched_bot_policy
from lostcities_jax.games.game import Game
from lostcities_jax.networks import Network, make_network
from lostcities_jax.regret import masked_softmax, regret_matching, uniform_strategy
from lostcities_jax.rollout import Policy
from lostcities_jax.settings import Config, LeagueConfig
from lostcities_jax.snapshots import Snapshots
from lostcities_jax.traversal.lockstep import TraversalPolicy
from lostcities_jax.traversal.rollouts import RolloutPolicy

FIXED = tuple(BOTS)  # opponents that follow rules and have no parameters


class SeatParams(NamedTuple):
    """Parameters of a traversal policy: regret matching, or the average strategy's softmax."""

    network: Any
    is_average: jax.Array


@functools.cache
def traversal_policy(network: Network, fallback: str) -> TraversalPolicy:
    """The policy function of `SeatParams`: one program serves both kinds of policy."""

    def policy(
        params: SeatParams, info: jax.Array, legal: jax.Array, head: int
    ) -> tuple[jax.Array, jax.Array]:
        outputs = network.apply(params.network, info, head)
        legal = network.considered(info, legal, head)
        matched, fell_back = regret_matching(outputs, legal, fallback)
        strategy = jnp.where(params.is_average, masked_softmax(outputs, legal), matched)
        return strategy, fell_back & ~params.is_average

    return policy


@functools.cache
def rollout_policy(game: Game, name: str) -> RolloutPolicy:
    """A rule-based player as a function; in games other than Lost Cities, "random" alone."""

    def policy(info: jax.Array, legal: jax.Array, head: int) -> jax.Array:
        if game.rules is None:
            return uniform_strategy(legal)
        return batched_bot_policy(game.rules)(BOTS[name], info, legal, head)

    return policy


@functools.cache
def fixed_policy(game: Game, name: str) -> TraversalPolicy:
    """The policy function of a rule-based opponent, which has no parameters."""
    play = rollout_policy(game, name)

    def policy(params: Any, info: jax.Array, legal: jax.Array, head: int) -> jax.Array:
        del params
        return play(info, legal, head)

    return without_fallback(policy)


@functools.cache
def sparring_policy(game: Game, names: tuple[str, ...]) -> TraversalPolicy:
    """The policy function of the place of a bot among some: who plays, is data.

    A branch for each program, not for each bot, so that more bots are not more to compile.
    """
    bots = [BOTS[name] for name in names]
    kinds = list(dict.fromkeys(type(bot.judgement) for bot in bots))
    kind_of = np.array([kinds.index(type(bot.judgement)) for bot in bots])
    programs = [_bots_of(game, kind, bots) for kind in kinds]

    def policy(place: jax.Array, info: jax.Array, legal: jax.Array, head: int) -> jax.Array:
        plays = [functools.partial(program, head=head) for program in programs]
        return jax.lax.switch(jnp.asarray(kind_of)[place], plays, place, info, legal)

    return without_fallback(policy)


def draw_places(count: int, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Whom of `count` bots the network meets in seat 0 and in seat 1. Consumes `key`."""
    drawn = jax.random.randint(key, (2,), 0, count)
    return drawn[0], drawn[1]


def _bots_of(game: Game, kind: type, bots: list[BotParams]) -> Callable[..., jax.Array]:
    """The bots of one program, each at its place; those of others play by its defaults."""
    alike = [
        bot if isinstance(bot.judgement, kind) else bot._replace(judgement=kind()) for bot in bots
    ]
    table = jax.tree.map(lambda *values: np.stack(values), *alike)
    play = batched_bot_policy(game.rules)

    def program(place: jax.Array, info: jax.Array, legal: jax.Array, head: int) -> jax.Array:
        bot = jax.tree.map(lambda values: jnp.asarray(values)[place], table)
        return play(bot, info, legal, head)

    return program


@functools.cache
def without_fallback(policy: Policy) -> TraversalPolicy:
    """A policy that is not regret matching's as one that a traversal plays: it never falls back."""

    def play(
        params: Any, info: jax.Array, legal: jax.Array, head: int
    ) -> tuple[jax.Array, jax.Array]:
        return policy(params, info, legal, head), jnp.zeros(legal.shape[:-1], bool)

    return play


def own_policy(config: Config, game: Game, network: Network) -> TraversalPolicy:
    """The policy function of `SeatParams` in the precision of a configuration's traversals."""
    if config.traversal.precision != "float32":
        shape = dataclasses.asdict(config.network)
        network = make_network(game, **shape, precision=config.traversal.precision)
    return traversal_policy(network, config.traversal.fallback)


def seat_policies(
    config: Config, game: Game, network: Network, traverser: int
) -> tuple[TraversalPolicy, TraversalPolicy]:
    """The policy functions of player 0 and player 1 when `traverser` traverses."""
    own = own_policy(config, game, network)
    if config.traversal.opponent not in FIXED:
        return own, own
    other = fixed_policy(game, config.traversal.opponent)
    return (own, other) if traverser == 0 else (other, own)


def draw_from_league(
    league: LeagueConfig, snapshots: Snapshots, current: Any, player: int, key: jax.Array
) -> Any:
    """Parameters of the current strategy or a snapshot, by the league's weights. Consumes `key`.

    Without snapshots the current strategy plays; one alone is recent, older and anchor.
    """
    iteration = snapshots.iteration
    filled = iteration > 0
    age = (filled[None] & (iteration[None] > iteration[:, None])).sum(-1)  # newer snapshots
    count = filled.sum()
    is_recent = filled & (2 * age < count)
    is_older = filled & (~is_recent | (count == 1))
    is_anchor = filled & (age == count - 1)
    weights = jnp.float32(league.current) * jnp.ones((1,))
    past = jnp.zeros(filled.shape)
    shares = ((is_recent, league.recent), (is_older, league.older), (is_anchor, league.anchor))
    for members, weight in shares:
        past += weight * members / jnp.maximum(members.sum(), 1)
    logits = jnp.log(jnp.concatenate([weights, past]))
    logits = jnp.where(count > 0, logits, jnp.where(jnp.arange(len(logits)) == 0, 0.0, -jnp.inf))
    drawn = jax.random.categorical(key, logits)
    slot = jnp.maximum(drawn - 1, 0)
    return jax.tree.map(
        lambda new, old: jnp.where(drawn == 0, new, old[slot]), current, snapshots.params[player]
    )
