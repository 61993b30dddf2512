"""Kuhn poker as a lockstep game: three cards, one bet, and equilibria known in closed form.

Each player antes 1 and gets one card. Player 0 passes or bets 1 more; a pass after a bet
folds, a bet after a bet calls, two passes show the cards. At equilibrium player 0 loses 1/18
a game (Kuhn 1950, A simplified two-person poker).
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax.arrays import along_last
from lostcities_jax.games.game import Deals, Game, Phase

PASS, BET = 0, 1

_CARDS = 3
_HIDDEN = 255  # in place of a card that an info state does not tell
_DEALS = np.array(list(itertools.permutations(range(_CARDS), 2)), np.uint8)

# A line of play is one byte: a leading 1, then one bit an action. "" is 1, "pass" 2, "bet" 3.
_START = 1
_PASS_PASS, _PASS_BET, _BET_PASS = 4, 5, 6
_PASS_BET_PASS = 10
_DECISIONS = np.array([_START, 2, 3, _PASS_BET], np.uint8)

# A state is the cards of both players and the line of play; uint8[3].
_LINE = 2


@functools.cache
def kuhn() -> Game:
    """The game; cached, so that all callers share compiled programs.

    States are uint8[3] and packed info states uint8[3]: own card, other card, line of play.
    """
    return Game(
        name="Kuhn poker",
        heads=("bet",),
        phases=(Phase(0, 0, 2), Phase(1, 0, 2)),
        max_cycles=2,
        info_size=3,
        deal=_deal,
        legal=lambda state, k: jnp.full((2,), True) & ~_is_terminal(state),
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
        in_step=True,
        all_deals=_all_deals,
    )


def _deal(key: jax.Array) -> jax.Array:
    # Taking 32 random bits modulo the number of deals errs by less than 2 in 10^9.
    index = jax.random.bits(key, dtype=jnp.uint32) % len(_DEALS)
    first, second = index % _CARDS, index // _CARDS  # second: of the two cards left
    cards = jnp.stack([first, second + (second >= first)]).astype(jnp.uint8)
    return jnp.concatenate([cards, jnp.full((1,), _START, jnp.uint8)])


def _all_deals() -> Deals:
    line = np.full((len(_DEALS), 1), _START, np.uint8)
    states = np.concatenate([_DEALS, line], axis=-1)
    return Deals(states, np.full(len(states), 1 / len(states)))


def _is_terminal(state: jax.Array) -> jax.Array:
    return (state[_LINE] >= _PASS_PASS) & (state[_LINE] != _PASS_BET)


def _is_turn(state: jax.Array, k: int) -> jax.Array:
    of_opener = (state[_LINE] == _START) | (state[_LINE] == _PASS_BET)
    return (of_opener if k == 0 else ~of_opener) & ~_is_terminal(state)


def _step(state: jax.Array, k: int, action: jax.Array) -> jax.Array:
    del k  # the players alternate, so the line of play tells whose action it is
    longer = state[_LINE] * 2 + action.astype(jnp.uint8)
    moves = (np.arange(_LINE + 1) == _LINE) & ~_is_terminal(state)
    return jnp.where(moves, longer, state)


def _value(state: jax.Array) -> jax.Array:
    """Player 0's payoff: 1 or 2 at showdown, 1 for a fold, 0 while the game goes on."""
    line = state[_LINE]
    showdown = jnp.where(state[0] > state[1], 1, -1) * jnp.where(line == _PASS_PASS, 1, 2)
    folded = (line == _BET_PASS) | (line == _PASS_BET_PASS)
    fold = jnp.where(line == _BET_PASS, 1, -1)
    payoff = jnp.where(folded, fold, showdown)
    return jnp.where(_is_terminal(state), payoff, 0).astype(jnp.float32)


def _view(state: jax.Array, k: int, other: jax.Array) -> jax.Array:
    return jnp.stack([state[k], other, state[_LINE]])


def _encode(packed: jax.Array) -> jax.Array:
    """One-hot own card, other card (zeros while hidden) and line of play; float32[..., 10]."""
    cards = along_last(np.arange(_CARDS, dtype=np.uint8), packed.ndim)
    lines = along_last(_DECISIONS, packed.ndim)
    parts = [packed[..., :1] == cards, packed[..., 1:2] == cards, packed[..., 2:] == lines]
    return jnp.concatenate(parts, axis=-1).astype(jnp.float32)
