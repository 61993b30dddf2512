"""Worlds: complete game states that agree with all that one player knows."""

import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax.cards import EMPTY, all_cards
from lostcities_jax.features import column_counts, hand_counts, pile_counts
from lostcities_jax.info_state import InfoState
from lostcities_jax.rules import NUM_PLAYERS, Rules
from lostcities_jax.state import State


def sample_world(rules: Rules, info: InfoState, key: jax.Array) -> State:
    """A state that the mover of an info state cannot tell from the true one.

    The unseen cards are dealt anew, each way as likely as any other: what the other player's
    moves say about that hand is left aside. It is a full hand, as always when one is not to
    move; the cards known to be in it stay there. Of the deck, only the part still to be drawn
    means anything.

    Args:
      rules: the rule set.
      info: what the player to move knows; one info state, without leading lanes.
      key: consumed.
    """
    columns = (info.own_expeditions, info.other_expeditions)
    gone = hand_counts(rules, info.hand) + pile_counts(rules, info.piles)
    gone += sum(column_counts(rules, column) for column in columns)
    known = column_counts(rules, info.other_known)
    # Sorting lines the cards up as gone, known to be in the other hand, and unseen at random.
    cards, copy = all_cards(rules), _copies(rules)
    gone, known = (counts.reshape(-1)[cards].astype(jnp.int32) for counts in (gone, known))
    bits = jax.random.bits(key, cards.shape) | jnp.uint32(2)
    place = jnp.where(copy < gone, 0, jnp.where(copy < gone + known, 1, bits))
    _, deck = jax.lax.sort((place.astype(jnp.uint32), jnp.asarray(cards)), num_keys=1)
    first = rules.num_cards - info.deck_left.astype(jnp.int32) - rules.hand
    other_hand = jnp.sort(jax.lax.dynamic_slice(deck, (first,), (rules.hand,)))

    mover = info.turn % NUM_PLAYERS

    def by_player(own: jax.Array, other: jax.Array) -> jax.Array:
        return jnp.where(mover == 0, jnp.stack([own, other]), jnp.stack([other, own]))

    return State(
        deck=deck,
        deck_left=info.deck_left,
        hands=by_player(info.hand, other_hand),
        expeditions=by_player(info.own_expeditions, info.other_expeditions),
        known=by_player(info.own_known, info.other_known),
        piles=info.piles,
        pile_sizes=(info.piles != EMPTY).sum(-1, dtype=jnp.uint8),
        barred=info.barred,
        turn=info.turn,
        phase=info.phase,
    )


def _copies(rules: Rules) -> np.ndarray:
    """How many equal cards come before each card of `all_cards`; int32[N]."""
    cards = all_cards(rules)
    return (np.arange(len(cards)) - np.searchsorted(cards, cards)).astype(np.int32)
