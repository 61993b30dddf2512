"""Search at play time: a policy's likeliest actions, tried out in sampled worlds.

The hidden cards are dealt anew a number of times. In each of these worlds every candidate
action is taken and the game played on by the policy in both seats, with the same worlds and
the same random numbers for all candidates; the best mean score difference wins. Assuming away
what is hidden, world by world, is Perfect Information Monte Carlo (Ginsberg 2001, GIB), and one
step of improvement on a fixed policy is a rollout (Tesauro and Galperin 1996).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax.evaluation.agents import Agent
from lostcities_jax.evaluation.worlds import sample_world
from lostcities_jax.games.game import Game
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.info_state import unpack
from lostcities_jax.lanes import DEAL_STREAM, Decision
from lostcities_jax.rollout import Player, Policy, act
from lostcities_jax.rules import NUM_PLAYERS, Rules
from lostcities_jax.settings import SearchConfig
from lostcities_jax.state import State
from lostcities_jax.traversal.rollouts import play_on

_TIE_STREAM = 2**31 - 1  # a decision's key folded with this orders ties; with w, world w
_MAX_STARTS = 2**18  # rollouts that wait at once, some 250 bytes each in the classic game
_HASH_SEED = 113


class SearchParams(NamedTuple):
    """What a searching policy takes.

    Attributes:
      key: with the info state, it decides every draw of a decision. Not consumed.
      own: the searched policy's parameters of the seat that decides.
      seats: its parameters of both seats, for the rollouts.
    """

    key: jax.Array
    own: Any
    seats: tuple[Any, Any]


class Trials(NamedTuple):
    """Candidate actions of B decisions, the policy's own choice first.

    Attributes:
      action: int32[B, candidates].
      tried: False for illegal and too unlikely actions, and where there is nothing to decide.
        bool[B, candidates].
      payoffs: the mover's, in each world; 0 where not tried. float32[B, candidates, worlds].
    """

    action: jax.Array
    tried: jax.Array
    payoffs: jax.Array


def search_agent(rules: Rules, base: Agent, search: SearchConfig, width: int, seed: int) -> Agent:
    """An agent that plays by search over another one's actions.

    Args:
      rules: the rule set.
      base: whose actions are tried, and who plays the rollouts.
      search: `worlds` at least 2.
      width: rollouts in lockstep, on each of the devices that play; no action depends on it.
      seed: of the sampled worlds.
    """
    policy = _search_policy(rules, base.policy, search, width)
    key = jax.random.key(seed)
    params = [SearchParams(key, own, base.params) for own in base.params]
    return Agent(f"{base.name} with search", policy, (params[0], params[1]), is_stochastic=False)


@functools.cache
def _search_policy(rules: Rules, policy: Policy, search: SearchConfig, width: int) -> Policy:
    """Cached, so that agents share compiled programs."""
    game = lost_cities(rules)

    def decide(params: SearchParams, info: jax.Array, legal: jax.Array, head: int) -> jax.Array:
        probabilities = policy(params.own, info, legal, head)
        trials = try_actions(game, policy, search, width, params, probabilities, info, legal, head)
        chosen = jax.nn.one_hot(choose(trials, search.margin), legal.shape[-1])
        return jnp.where(trials.tried.any(-1, keepdims=True), chosen, probabilities)

    def searching(params: SearchParams, info: jax.Array, legal: jax.Array, head: int) -> jax.Array:
        group = max(_MAX_STARTS // (search.worlds * min(search.actions, legal.shape[-1])), 1)
        return _in_groups(lambda i, m: decide(params, i, m, head), group, info, legal)

    return searching


def try_actions(
    game: Game,
    policy: Policy,
    search: SearchConfig,
    width: int,
    params: SearchParams,
    probabilities: jax.Array,
    info: jax.Array,
    legal: jax.Array,
    head: int,
) -> Trials:
    """Plays out the policy's likeliest actions of each decision in sampled worlds.

    Args:
      game: Lost Cities.
      policy: the searched policy.
      search: static sizes.
      width: lanes.
      params: key and parameters.
      probabilities: the policy's at these decisions. float32[B, A].
      info: packed info states of the movers, of any player. uint8[B, I].
      legal: bool[B, A].
      head: of the decisions; static.
    """
    assert game.rules is not None
    rules, infos = game.rules, unpack(game.rules, info)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(params.key, _hashes(info))
    action = _candidates(keys, probabilities, legal, search.actions)
    is_over = (infos.deck_left == 0) | (infos.turn >= rules.max_turns)
    has_choice = (legal.sum(-1) > 1) & ~is_over
    is_likely = jnp.take_along_axis(probabilities, action, axis=-1) >= search.least_probability
    tried = jnp.take_along_axis(legal, action, axis=-1) & is_likely.at[:, 0].set(True)
    tried &= (has_choice & (tried.sum(-1) > 1))[:, None]

    fold = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))
    world_keys = fold(keys, jnp.arange(search.worlds))
    deal = jax.vmap(jax.vmap(functools.partial(_world, rules), (None, 0)))
    worlds = deal(infos, world_keys)

    # Only what is tried becomes a rollout: those starts are moved to the front.
    shape = (*action.shape, search.worlds)
    is_start = jnp.broadcast_to(tried[..., None], shape).reshape(-1)
    order = jnp.argsort(~is_start, stable=True)
    lane, candidate, world = jnp.unravel_index(order, shape)
    starts = jax.vmap(functools.partial(_take, game, head))(
        jax.tree.map(lambda leaf: leaf[lane, world], worlds), action[lane, candidate]
    )

    def play(decision: Decision) -> jax.Array:
        phase = game.phases[decision.phase]
        player = Player(params.seats[phase.player], jnp.asarray(search.play == "greedy"))
        return act(policy, player, decision, phase.head)

    played = game
    if search.depth:
        own_turns = jnp.uint16(min(NUM_PLAYERS * search.depth + 1, rules.max_turns))
        played, starts = _limited(game), _Limited(starts, infos.turn[lane] + own_turns)
    start_keys, count = world_keys[lane, world], is_start.sum(dtype=jnp.int32)
    payoffs = play_on(played, play, width, starts, count, lambda index: start_keys[index])
    payoffs = jnp.zeros_like(payoffs).at[order].set(payoffs).reshape(shape)
    is_first = infos.turn % NUM_PLAYERS == 0
    return Trials(action, tried, jnp.where(is_first[:, None, None], payoffs, -payoffs))


def choose(trials: Trials, margin: float) -> jax.Array:
    """The action of the best mean payoff, or the policy's own; int32[B].

    An action replaces the policy's own only if its mean gain in the same worlds is more than
    `margin` of its own standard errors. Payoffs are whole points, so sums below 2^24 are exact and
    do not depend on the order of addition. One point squared is added to the squared deviations,
    since a few equal gains do not prove that the gain is always the same.
    """
    worlds = trials.payoffs.shape[-1]
    gains = trials.payoffs - trials.payoffs[:, :1]
    mean = gains.sum(-1) / worlds
    deviations = jnp.maximum((gains**2).sum(-1) - worlds * mean**2, 0.0) + 1.0
    error = jnp.sqrt(deviations / (worlds * (worlds - 1)))
    is_better = trials.tried & (mean > margin * error)
    best = jnp.where(is_better, mean, 0.0).argmax(-1, keepdims=True)
    return jnp.take_along_axis(trials.action, best, axis=-1)[:, 0]


def _candidates(
    keys: jax.Array, probabilities: jax.Array, legal: jax.Array, count: int
) -> jax.Array:
    """The likeliest actions, the greedy choice first, other ties at random; int32[B, k]."""
    actions = jnp.arange(legal.shape[-1])
    draw = jax.vmap(
        lambda key: jax.random.uniform(jax.random.fold_in(key, _TIE_STREAM), actions.shape)
    )
    likelihood = jnp.where(legal, probabilities, -1.0)
    is_greedy = actions[None] == likelihood.argmax(-1, keepdims=True)
    ties = jnp.where(is_greedy, -1.0, draw(keys))
    rows = jnp.broadcast_to(actions[None], legal.shape)
    return jax.lax.sort((-likelihood, ties, rows), num_keys=2)[2][:, :count]


def _world(rules: Rules, info: Any, key: jax.Array) -> State:
    return sample_world(rules, info, jax.random.fold_in(key, DEAL_STREAM))


def _take(game: Game, head: int, state: State, action: jax.Array) -> State:
    """A state after an action of a phase with this head, by whoever is to move."""
    first, second = (
        game.step(state, k, action) for k, phase in enumerate(game.phases) if phase.head == head
    )
    is_first = state.turn % NUM_PLAYERS == 0
    return jax.tree.map(lambda a, b: jnp.where(is_first, a, b), first, second)


class _Limited(NamedTuple):
    """A game that ends as it stands when `stop` turns are completed."""

    state: State
    stop: jax.Array


def _limited(game: Game) -> Game:
    """The same game over `_Limited` states."""

    def is_terminal(limited: _Limited) -> jax.Array:
        return game.is_terminal(limited.state) | (limited.state.turn >= limited.stop)

    return game._replace(
        legal=lambda limited, k: game.legal(limited.state, k),
        step=lambda limited, k, a: limited._replace(state=game.step(limited.state, k, a)),
        is_turn=lambda limited, k: game.is_turn(limited.state, k) & ~is_terminal(limited),
        observe=lambda limited, k: game.observe(limited.state, k),
        is_terminal=is_terminal,
        value=lambda limited: game.value(limited.state),
    )


def _hashes(info: jax.Array) -> jax.Array:
    """A number for each packed info state (multilinear hashing modulo 2^32); uint32[B]."""
    random = np.random.default_rng(_HASH_SEED)
    factors = random.integers(2**32, size=info.shape[-1], dtype=np.uint32)
    return (info.astype(jnp.uint32) * factors[None]).sum(-1, dtype=jnp.uint32)


def _in_groups(
    function: Callable[[jax.Array, jax.Array], jax.Array],
    size: int,
    info: jax.Array,
    legal: jax.Array,
) -> jax.Array:
    """A function of lanes, for `size` of them at a time; the last group is filled up with none."""
    lanes = len(info)
    if lanes <= size:
        return function(info, legal)
    groups = -(-lanes // size)

    def split(rows: jax.Array) -> jax.Array:
        blank = jnp.zeros((groups * size - lanes, rows.shape[-1]), rows.dtype)
        return jnp.concatenate([rows, blank]).reshape(groups, size, -1)

    found = jax.lax.map(lambda group: function(*group), (split(info), split(legal)))
    return found.reshape(groups * size, -1)[:lanes]
