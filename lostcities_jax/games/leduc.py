"""Leduc poker as a lockstep game: two betting rounds with a public card between them.

Southey et al. 2005 (Bayes' bluff: opponent modelling in poker), as OpenSpiel plays it: six
cards of three ranks and two suits, antes of 1, raises of 2 in the first round and 4 in the
second, at most two a round; player 0 opens both rounds. A pair with the public card wins,
then the higher rank; equal ranks share the pot.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax.arrays import along_last
from lostcities_jax.games.game import Deals, Game, Phase

FOLD, CALL, RAISE = 0, 1, 2

_CARDS, _RANKS, _SUITS = 6, 3, 2  # a card is rank * 2 + suit
_HIDDEN = 255  # in place of a card that an info state does not tell
_ANTE = 1
_RAISE_SIZES = (2, 4)
_MAX_RAISES = 2
_DEALS = np.array(list(itertools.permutations(range(_CARDS), 3)), np.uint8)

# A round's betting is one byte, which its actions add to: whether it was opened with a call
# (a check), raises made so far, and how it ended. No two lines of play share a sum.
_OPENED, _RAISED, _CALLED, _FOLDED = 1, 2, 8, 16
_LINES = 6  # of a round without its end: open, check, raise, check-raise, ...

# A state is the cards of both players, the public card and both rounds' betting; uint8[5].
_PUBLIC, _ROUND1, _ROUND2 = 2, 3, 4
_SIZE = 5


@functools.cache
def leduc() -> Game:
    """The game; cached, so that all callers share compiled programs.

    States are uint8[5] and packed info states uint8[5]: own card, other card, public card,
    betting of both rounds. The cycle takes in turn whoever decides: a round may end after
    player 0's action, and then player 1's phase idles, since player 0 opens the second.
    """
    return Game(
        name="Leduc poker",
        heads=("bet",),
        phases=(Phase(0, 0, 3), Phase(1, 0, 3)),
        max_cycles=4,
        info_size=_SIZE,
        deal=_deal,
        legal=_legal,
        step=_step,
        is_turn=_is_turn,
        observe=lambda state, k: _view(state, k, jnp.uint8(_HIDDEN)),
        observe_open=lambda state, k: _view(state, k, state[1 - k]),
        head_of=lambda packed: jnp.zeros(packed.shape[:-1], jnp.uint8),
        encode=_encode,
        standing=lambda packed: jnp.zeros(packed.shape[:-1], jnp.float32),
        is_terminal=_is_terminal,
        is_timeout=lambda state: jnp.zeros((), bool),
        value=_value,
        all_deals=_all_deals,
    )


def _deal(key: jax.Array) -> jax.Array:
    # Taking 32 random bits modulo the number of deals errs by less than 3 in 10^8.
    index = jax.random.bits(key, dtype=jnp.uint32) % len(_DEALS)
    first, second, public = index % 6, index // 6 % 5, index // 30  # each of the cards left
    second = second + (second >= first)
    public = public + (public >= jnp.minimum(first, second))
    public = public + (public >= jnp.maximum(first, second))
    cards = jnp.stack([first, second, public]).astype(jnp.uint8)
    return jnp.concatenate([cards, jnp.zeros((2,), jnp.uint8)])


def _all_deals() -> Deals:
    betting = np.zeros((len(_DEALS), 2), np.uint8)
    states = np.concatenate([_DEALS, betting], axis=-1)
    return Deals(states, np.full(len(states), 1 / len(states)))


def _raises(betting: jax.Array) -> jax.Array:
    return (betting // _RAISED) & 3


def _first_round(state: jax.Array) -> jax.Array:
    return state[_ROUND1] < _CALLED


def _betting(state: jax.Array) -> jax.Array:
    """Betting of the round that is on; uint8[]."""
    return jnp.where(_first_round(state), state[_ROUND1], state[_ROUND2])


def _next_player(betting: jax.Array) -> jax.Array:
    """Who decides after the calls and raises of a round, or folded there; uint8[]."""
    return ((betting & _OPENED) + _raises(betting)) & 1


def _is_terminal(state: jax.Array) -> jax.Array:
    return (state[_ROUND1] >= _FOLDED) | (state[_ROUND2] >= _CALLED)


def _is_turn(state: jax.Array, k: int) -> jax.Array:
    return (_next_player(_betting(state)) == k) & ~_is_terminal(state)


def _legal(state: jax.Array, k: int) -> jax.Array:
    """A fold needs a raise to face, and a round has two raises; bool[3]."""
    raises = _raises(_betting(state))
    allowed = jnp.stack([raises > 0, jnp.ones((), bool), raises < _MAX_RAISES])
    return allowed & _is_turn(state, k)


def _step(state: jax.Array, k: int, action: jax.Array) -> jax.Array:
    """Adds an action to the round's betting; without the turn, the state stays as it is."""
    # The first call of a round without raises opens it; every other call ends it.
    call = jnp.where(_betting(state) == 0, _OPENED, _CALLED)
    added = jnp.where(action == RAISE, _RAISED, jnp.where(action == CALL, call, _FOLDED))
    added = jnp.where(_is_turn(state, k), added, 0).astype(jnp.uint8)
    slot = jnp.where(_first_round(state), _ROUND1, _ROUND2)
    return state + jnp.where(np.arange(_SIZE) == slot, added, jnp.uint8(0))


def _value(state: jax.Array) -> jax.Array:
    """What player 0 wins of the other's chips, or loses; 0 while the game goes on."""
    stake = jnp.int32(_ANTE)
    for slot, size in zip((_ROUND1, _ROUND2), _RAISE_SIZES, strict=True):
        # Who folds has not matched the last raise.
        folded = state[slot] >= _FOLDED
        stake = stake + size * (_raises(state[slot]).astype(jnp.int32) - folded)
    betting = _betting_at_end(state)
    rank = (state[: _PUBLIC + 1] // _SUITS).astype(jnp.int32)
    strength = rank[:_PUBLIC] + _RANKS * (rank[:_PUBLIC] == rank[_PUBLIC])
    showdown = jnp.sign(strength[0] - strength[1])
    fold = jnp.where(_next_player(betting) == 0, -1, 1)
    winner = jnp.where(betting >= _FOLDED, fold, showdown)
    return jnp.where(_is_terminal(state), winner * stake, 0).astype(jnp.float32)


def _betting_at_end(state: jax.Array) -> jax.Array:
    """Betting of the round in which the game ended; uint8[]."""
    return jnp.where(state[_ROUND1] >= _FOLDED, state[_ROUND1], state[_ROUND2])


def _view(state: jax.Array, k: int, other: jax.Array) -> jax.Array:
    public = jnp.where(_first_round(state), jnp.uint8(_HIDDEN), state[_PUBLIC])
    return jnp.stack([state[k], other, public, state[_ROUND1], state[_ROUND2]])


def _encode(packed: jax.Array) -> jax.Array:
    """Own, other and public rank, own pair, lines of both rounds; float32[..., 22].

    Suits are left out: they decide nothing. Hidden ranks are zeros. Lines are one-hot without
    the end of the round, which the public card tells.
    """
    ranks = along_last(np.arange(_RANKS, dtype=np.uint8), packed.ndim)
    lines = along_last(np.arange(_LINES, dtype=np.uint8), packed.ndim)
    own, other, public = (packed[..., card : card + 1] // _SUITS for card in range(3))
    parts = [own == ranks, other == ranks, public == ranks, own == public]
    parts += [packed[..., slot : slot + 1] % _CALLED == lines for slot in (_ROUND1, _ROUND2)]
    return jnp.concatenate(parts, axis=-1).astype(jnp.float32)
