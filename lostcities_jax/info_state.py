"""Info states: what one player knows, packed into bytes for storage.

A packed info state holds the player's own hand and everything public, and nothing else:
no order of the deck, and of the other hand only the cards seen taken from a pile. Every
policy (networks, bots, tables) sees the game through it alone.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lostcities_jax.cards import EMPTY
from lostcities_jax.engine import hand_columns
from lostcities_jax.rules import NUM_PLAYERS, Rules
from lostcities_jax.state import State


class InfoState(NamedTuple):
    """One player's view; `own` is that player and `other` the opponent.

    Attributes:
      hand: own card types in ascending order, EMPTY behind them. uint8[H].
      own_known: column bits of own hand cards the other player has seen. uint16[C].
      other_known: column bits of cards known to be in the other hand. uint16[C].
      own_expeditions: column bits the player has played. uint16[C].
      other_expeditions: column bits the other player has played. uint16[C].
      piles: faces of each discard pile from bottom to top, EMPTY above it. uint8[C, K].
      barred: colour whose pile may not be drawn this turn; C for none. uint8[].
      deck_left: cards left in the deck. uint8[].
      phase: CARD_PHASE or DRAW_PHASE. uint8[].
      turn: turns completed by both players. uint16[].
    """

    hand: jax.Array
    own_known: jax.Array
    other_known: jax.Array
    own_expeditions: jax.Array
    other_expeditions: jax.Array
    piles: jax.Array
    barred: jax.Array
    deck_left: jax.Array
    phase: jax.Array
    turn: jax.Array


def observe(state: State, player: int) -> InfoState:
    """What `player` (static) knows of a state."""
    other = 1 - player
    return InfoState(
        hand=state.hands[player],
        own_known=state.known[player],
        other_known=state.known[other],
        own_expeditions=state.expeditions[player],
        other_expeditions=state.expeditions[other],
        piles=state.piles,
        barred=state.barred,
        deck_left=state.deck_left,
        phase=state.phase,
        turn=state.turn,
    )


def observe_open(rules: Rules, state: State, player: int) -> InfoState:
    """What `player`, who draws next, could know of all cards: the input of a critic.

    The whole other hand is known. What the other player knows of the own hand is no news then;
    in its place are the cards that will come to `player` if nobody draws from a pile: the rest
    goes to the other. A policy must never see any of it. A critic may, as the deal comes before
    all actions: the luck of the draw is then in its values, and not in what is left of returns
    when these are taken away.
    """
    next_card = state.deck.shape[-1] - state.deck_left.astype(jnp.int32)
    place = jnp.arange(state.deck.shape[-1]) - next_card
    is_own = (place >= 0) & (place % NUM_PLAYERS == 0)
    to_come = jnp.where(is_own, state.deck, jnp.uint8(EMPTY))
    return observe(state, player)._replace(
        own_known=hand_columns(rules, to_come),
        other_known=hand_columns(rules, state.hands[1 - player]),
    )


def _layout(rules: Rules) -> dict[str, tuple[tuple[int, ...], type]]:
    """Shape and dtype of every field, in the order they are packed."""
    columns = ((rules.colors,), jnp.uint16)
    number = ((), jnp.uint8)
    return {
        "hand": ((rules.hand,), jnp.uint8),
        "own_known": columns,
        "other_known": columns,
        "own_expeditions": columns,
        "other_expeditions": columns,
        "piles": ((rules.colors, rules.cards_per_color), jnp.uint8),
        "barred": number,
        "deck_left": number,
        "phase": number,
        "turn": ((), jnp.uint16),
    }


def packed_size(rules: Rules) -> int:
    """Bytes of a packed info state, I: 113 for CLASSIC."""
    return sum(
        math.prod(shape) * jnp.dtype(dtype).itemsize for shape, dtype in _layout(rules).values()
    )


def pack(info: InfoState) -> jax.Array:
    """Packs an info state of one player; uint8[I]."""
    return jnp.concatenate(
        [jax.lax.bitcast_convert_type(field, jnp.uint8).reshape(-1) for field in info]
    )


def unpack(rules: Rules, packed: jax.Array) -> InfoState:
    """Inverse of `pack`, for any leading lanes; uint8[..., I]."""
    lanes, fields, start = packed.shape[:-1], {}, 0
    for name, (shape, dtype) in _layout(rules).items():
        size = math.prod(shape) * jnp.dtype(dtype).itemsize
        field = packed[..., start : start + size]
        if dtype == jnp.uint16:
            field = jax.lax.bitcast_convert_type(field.reshape(*lanes, *shape, 2), dtype)
        fields[name] = field.reshape(*lanes, *shape)
        start += size
    return InfoState(**fields)


def pile_tops(info: InfoState) -> jax.Array:
    """Face on top of each pile, EMPTY for an empty pile; uint8[..., C]."""
    filled = info.piles != EMPTY
    is_top = filled & ~jnp.concatenate([filled[..., 1:], jnp.zeros_like(filled[..., :1])], axis=-1)
    top = jnp.where(is_top, info.piles, jnp.uint8(0)).max(-1)
    return jnp.where(filled[..., 0], top, jnp.uint8(EMPTY))
