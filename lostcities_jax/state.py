"""The complete state of one game as fixed-shape arrays, and the deal that starts it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lostcities_jax.cards import EMPTY, all_cards
from lostcities_jax.rules import NUM_PLAYERS, Rules


class State(NamedTuple):
    """One game between two half-steps; `jax.vmap` adds leading lanes.

    Player 0 moves first and the players alternate, so the mover is `turn % 2`.

    Attributes:
      deck: card types in the order they leave the deck; constant all game. uint8[N].
      deck_left: cards still in the deck, the last `deck_left` of `deck`. uint8[].
      hands: card types of each hand in ascending order, EMPTY behind them. uint8[P, H].
      expeditions: column bits (see `cards`) each player has played. uint16[P, C].
      known: column bits of hand cards the other player saw taken from a pile. uint16[P, C].
      piles: faces of each discard pile from bottom to top, EMPTY above it. uint8[C, K].
      pile_sizes: cards in each pile. uint8[C].
      barred: colour discarded this turn, whose pile may not be drawn; C for none. uint8[].
      turn: turns completed by both players. uint16[].
      phase: CARD_PHASE or DRAW_PHASE. uint8[].
    """

    deck: jax.Array
    deck_left: jax.Array
    hands: jax.Array
    expeditions: jax.Array
    known: jax.Array
    piles: jax.Array
    pile_sizes: jax.Array
    barred: jax.Array
    turn: jax.Array
    phase: jax.Array


def shuffled_deck(rules: Rules, key: jax.Array) -> jax.Array:
    """A uniformly shuffled deck; uint8[N]. Consumes `key`."""
    return jax.random.permutation(key, jnp.asarray(all_cards(rules)))


def deal_from_deck(rules: Rules, deck: jax.Array) -> State:
    """The first state of a game with a given deck; card types uint8[N], dealt one at a time.

    The deck must hold the cards of the game; on the host, `replay` checks that.
    """
    dealt = NUM_PLAYERS * rules.hand
    hands = jnp.stack([deck[seat:dealt:NUM_PLAYERS] for seat in range(NUM_PLAYERS)])
    columns = jnp.zeros((NUM_PLAYERS, rules.colors), jnp.uint16)
    return State(
        deck=deck.astype(jnp.uint8),
        deck_left=jnp.uint8(rules.deck_after_deal),
        hands=jnp.sort(hands.astype(jnp.uint8), axis=-1),
        expeditions=columns,
        known=columns,
        piles=jnp.full((rules.colors, rules.cards_per_color), EMPTY, jnp.uint8),
        pile_sizes=jnp.zeros((rules.colors,), jnp.uint8),
        barred=jnp.uint8(rules.colors),
        turn=jnp.uint16(0),
        phase=jnp.uint8(0),
    )


def deal(rules: Rules, key: jax.Array) -> State:
    """The first state of a game with a shuffled deck. Consumes `key`."""
    return deal_from_deck(rules, shuffled_deck(rules, key))
