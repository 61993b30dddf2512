"""Values of cut paths: games played out from where they were cut, all in lockstep.

A traversal only notes where it cut a path. When all have ended, the noted games are played to
their ends by a fixed policy, several times each, and the mean payoff is the path's value.
`play_on` is the part of that which needs no traversal: a search at play time uses it too.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lostcities_jax.games.game import Game, GameState
from lostcities_jax.lanes import (
    Decision,
    Lanes,
    any_active,
    episode_keys,
    fill_lanes,
    play_cycle,
    refill,
)
from lostcities_jax.regret import sample_action

CUT_STREAM = 2**31 - 1  # an episode's key folded with this, then with a cut's number and a copy

# (packed info uint8[B, I], legal bool[B, A], head) -> probabilities float32[B, A]
RolloutPolicy = Callable[..., jax.Array]


class Cuts(NamedTuple):
    """Where paths were cut, up to Q of them.

    Attributes:
      state: the games as they stood. Batched over Q.
      traversal: the path's traversal. int32[Q].
      number: cuts of the traversal before. int32[Q].
      count: cuts so far. int32[].
    """

    state: GameState
    traversal: jax.Array
    number: jax.Array
    count: jax.Array


def no_cuts(initial: GameState, capacity: int) -> Cuts:
    """Room for `capacity` cuts of games like `initial`."""
    blank = jnp.zeros((capacity,), jnp.int32)
    states = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape[1:]), leaf.dtype), initial)
    return Cuts(states, blank, blank, jnp.int32(0))


def note(
    cuts: Cuts, is_cut: jax.Array, state: GameState, traversal: jax.Array, number: jax.Array
) -> tuple[Cuts, jax.Array]:
    """Notes the lanes that were cut.

    Returns:
      the cuts, and for each lane 1 + the place of its cut, 0 where there is none. int32[B].
    """
    place = cuts.count + jnp.cumsum(is_cut) - 1
    at = jnp.where(is_cut, place, cuts.number.shape[0])  # behind the last: not written
    cuts = Cuts(
        state=jax.tree.map(lambda old, new: old.at[at].set(new, mode="drop"), cuts.state, state),
        traversal=cuts.traversal.at[at].set(traversal, mode="drop"),
        number=cuts.number.at[at].set(number, mode="drop"),
        count=cuts.count + is_cut.sum(dtype=jnp.int32),
    )
    return cuts, jnp.where(is_cut, place + 1, 0).astype(jnp.int32)


def play_out(
    game: Game, policy: RolloutPolicy, copies: int, width: int, cuts: Cuts, key: jax.Array
) -> jax.Array:
    """Mean payoff of player 0 over `copies` games from each cut; float32[Q].

    Args:
      game: the game.
      policy: plays both seats.
      copies: games of each cut.
      width: lanes.
      cuts: where to start.
      key: `fold_in(key, traversal)` gives each traversal's key. Not consumed.
    """

    def keys_of(episode: jax.Array) -> jax.Array:
        cut = episode // copies
        keys = episode_keys(key, cuts.traversal[cut])
        for part in (jnp.full_like(cut, CUT_STREAM), cuts.number[cut], episode % copies):
            keys = jax.vmap(jax.random.fold_in)(keys, part)
        return keys

    def decide(decision: Decision) -> jax.Array:
        head = game.phases[decision.phase].head
        return sample_action(policy(decision.info, decision.legal, head), decision.uniform)

    payoffs = play_on(game, decide, width, cuts.state, cuts.count, keys_of, copies)
    return payoffs.reshape(-1, copies).mean(-1)


def play_on(
    game: Game,
    decide: Callable[[Decision], jax.Array],
    width: int,
    starts: GameState,
    count: jax.Array,
    keys_of: Callable[[jax.Array], jax.Array],
    copies: int = 1,
) -> jax.Array:
    """Player 0's payoffs in games played to their ends from given states.

    Args:
      game: the game.
      decide: both players' actions of a decision. int32[B].
      width: lanes.
      starts: states in any phase, batched over Q.
      count: how many of them to start from, the first ones. int32[].
      keys_of: `int32[B] -> key[B]`, the keys of games by their index.
      copies: games from each start.

    Returns:
      float32[Q * copies], the copies of a start side by side; 0 behind those of `count`.
    """
    anywhere = game._replace(in_step=False)  # starts may be in any phase
    quota = count * copies

    def cycle(carry: tuple[Lanes, jax.Array]) -> tuple[Lanes, jax.Array]:
        before, payoffs = carry
        keys = keys_of(before.episode)
        lanes, _ = play_cycle(anywhere, before, keys, lambda decision: (decide(decision), None))
        at = jnp.where(before.active & ~lanes.active, before.episode, len(payoffs))
        payoffs = payoffs.at[at].set(jax.vmap(game.value)(lanes.state), mode="drop")
        return refill(lanes, starts, quota, copies), payoffs

    lanes = fill_lanes(starts, quota, width, copies)
    places = len(jax.tree.leaves(starts)[0]) * copies
    payoffs = jnp.zeros((places,), jnp.float32)
    return jax.lax.while_loop(lambda carry: any_active(carry[0]), cycle, (lanes, payoffs))[1]
