"""Lanes: games that advance together, each refilled with the next one when it ends.

A batch works through a quota of *episodes* (traversals, or games of a match). Every episode
that is started is finished, whatever its length, so nothing favours short games.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lostcities_jax.arrays import over_lanes
from lostcities_jax.games.game import Game, GameState

DEAL_STREAM = 0  # an episode's key folded with this deals; 1 + d draws decision d


class Lanes(NamedTuple):
    """The episodes under way; a carry of the lockstep loop.

    Attributes:
      state: game states, batched over B.
      episode: index of each lane's episode within the batch's quota. int32[B].
      cycle: cycles of the episode completed. int32[B].
      active: whether the lane has an episode that has not ended. bool[B].
      next_episode: the first episode not started yet. int32[].
    """

    state: GameState
    episode: jax.Array
    cycle: jax.Array
    active: jax.Array
    next_episode: jax.Array


@jax.custom_batching.custom_vmap
def any_active(lanes: Lanes) -> jax.Array:
    """Whether a lane has an episode that has not ended; bool[].

    Under `jax.vmap`, of all batches together, so that a loop over it goes on for all until the
    last is through. A loop that ended for each alone would copy all it carries in every turn, to
    keep what has ended as it is.
    """
    return lanes.active.any()


@any_active.def_vmap
def _any_of_all(axis_size: int, in_batched: Any, lanes: Lanes) -> tuple[jax.Array, bool]:
    del axis_size, in_batched
    return any_active(lanes), False


class Decision(NamedTuple):
    """What a lane's mover sees at one half-step, for every lane.

    Attributes:
      phase: index of the phase in the cycle; static.
      info: packed info states. uint8[B, I].
      legal: legal actions. bool[B, A].
      uniform: the decision's random numbers in [0, 1). float32[B] or float32[B, U].
      live: False where a lane has nothing to decide. bool[B].
      state: the game states, for critics only. Batched over B.
    """

    phase: int
    info: jax.Array
    legal: jax.Array
    uniform: jax.Array
    live: jax.Array
    state: GameState


def episode_keys(key: jax.Array, episodes: jax.Array) -> jax.Array:
    """One key for each episode, from its index alone: no width or lane enters. key[B]."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, episodes)


def deal_episodes(game: Game, key: jax.Array, episodes: jax.Array) -> GameState:
    """The first states of episodes, batched over them; `episodes` int32[quota]."""
    keys = episode_keys(key, episodes)
    return jax.vmap(lambda k: game.deal(jax.random.fold_in(k, DEAL_STREAM)))(keys)


def fill_lanes(initial: GameState, quota: jax.Array | int, width: int, copies: int = 1) -> Lanes:
    """Lanes at the first `width` episodes; those beyond the quota stay inactive."""
    lanes = Lanes(
        state=jax.tree.map(lambda leaf: jnp.zeros((width, *leaf.shape[1:]), leaf.dtype), initial),
        episode=jnp.zeros((width,), jnp.int32),
        cycle=jnp.zeros((width,), jnp.int32),
        active=jnp.zeros((width,), bool),
        next_episode=jnp.int32(0),
    )
    return refill(lanes, initial, quota, copies)


@jax.named_scope("refill")
def refill(lanes: Lanes, initial: GameState, quota: jax.Array | int, copies: int = 1) -> Lanes:
    """Starts the next episodes in the inactive lanes, in lane order, while any are left.

    Every one of the states in `initial` is the start of `copies` episodes in turn.
    """
    episode = lanes.next_episode + jnp.cumsum(~lanes.active) - 1
    starts = ~lanes.active & (episode < quota)
    row = jnp.where(starts, episode // copies, 0)
    return Lanes(
        state=jax.tree.map(
            lambda new, old: jnp.where(over_lanes(starts, old), new[row], old), initial, lanes.state
        ),
        episode=jnp.where(starts, episode, lanes.episode).astype(jnp.int32),
        cycle=jnp.where(starts, 0, lanes.cycle),
        active=lanes.active | starts,
        next_episode=lanes.next_episode + starts.sum(dtype=jnp.int32),
    )


def play_cycle(
    game: Game,
    lanes: Lanes,
    keys: jax.Array,
    decide: Callable[[Decision], tuple[jax.Array, Any]],
) -> tuple[Lanes, list[Any]]:
    """Plays one cycle in every lane: each phase at full width, then counts the cycle.

    Args:
      game: the game.
      lanes: lanes at the start of a cycle.
      keys: each lane's episode key. key[B].
      decide: returns the actions int32[B] of a decision and a record of it.

    Returns:
      the lanes, inactive where the episode ended, and the records of the phases in order.
    """
    state, live, records = lanes.state, lanes.active, []
    first = lanes.cycle * len(game.phases)
    for k in range(len(game.phases)):
        decision = look(game, state, k, live, decision_uniforms(keys, first + k))
        action, record = decide(decision)
        state = move(game, state, k, action, decision.live)
        live = live & ~jax.vmap(game.is_terminal)(state)
        records.append(record)
    return lanes._replace(state=state, cycle=lanes.cycle + 1, active=live), records


@jax.named_scope("observe")
def look(game: Game, state: GameState, k: int, live: jax.Array, uniform: jax.Array) -> Decision:
    """What the movers of phase `k` see in the lanes that are `live` and have it to decide."""
    if not game.in_step:
        live = live & jax.vmap(lambda s: game.is_turn(s, k))(state)
    return Decision(
        phase=k,
        info=jax.vmap(lambda s: game.observe(s, k))(state),
        legal=jax.vmap(lambda s: game.legal(s, k))(state),
        uniform=uniform,
        live=live,
        state=state,
    )


@jax.named_scope("engine")
def move(
    game: Game,
    state: GameState,
    k: int,
    action: jax.Array,
    moves: jax.Array,
    may_rest: bool = False,
) -> GameState:
    """Takes an action of phase `k` in the lanes that move; the others stay as they are.

    With `may_rest` False, a lane that does not move must be over, or not have the turn.
    """
    moved = jax.vmap(lambda s, a: game.step(s, k, a))(state, action)
    if game.in_step and not may_rest:
        return moved  # a finished game stays as it is without a selection
    return jax.tree.map(lambda new, old: jnp.where(over_lanes(moves, old), new, old), moved, state)


def decision_uniforms(keys: jax.Array, decision: jax.Array, count: int = 0) -> jax.Array:
    """Numbers in [0, 1) for each lane, from its episode key and decision index.

    Returns:
      float32[B], or float32[B, count] whose first column those are.
    """

    def draw(key: jax.Array, index: jax.Array) -> jax.Array:
        key = jax.random.fold_in(key, 1 + index)
        first = jax.random.uniform(jax.random.clone(key))
        if count == 0:
            return first
        rest = jax.random.uniform(jax.random.fold_in(key, 1), (count - 1,))
        return jnp.concatenate([first[None], rest])

    return jax.vmap(draw)(keys, decision)
