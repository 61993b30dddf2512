"""Features of an info state: the arrays a network reads.

Cards are counted per colour and face, so that a network may treat colours alike; nothing
here depends on the order of the colours.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax.arrays import along_last
from lostcities_jax.cards import face_values
from lostcities_jax.engine import column_bits, column_scores
from lostcities_jax.info_state import InfoState, pile_tops
from lostcities_jax.rules import DRAW_PHASE, Rules

SCORE_SCALE = 50.0  # points per unit of a score feature: about one good expedition


class Features(NamedTuple):
    """Network inputs of one info state, all of order one.

    Attributes:
      cards: where the cards of each colour are. float32[..., C, 7 (R + 1)].
      columns: what the cards of each colour amount to. float32[..., C, 2 (R + 1) + 11].
      table: deck, turn, phase and scores. float32[..., 5].
    """

    cards: jax.Array
    columns: jax.Array
    table: jax.Array


@jax.named_scope("encode")
def encode(rules: Rules, info: InfoState) -> Features:
    """Encodes info states with any leading lanes; takes the fields of `unpack`."""
    hand = hand_counts(rules, info.hand)
    own, other = info.own_expeditions, info.other_expeditions
    open_to_own, open_to_other = open_faces(rules, own), open_faces(rules, other)
    is_top = top_faces(rules, info)
    # A face has `wagers` copies or one; dividing keeps every count within 0..1.
    copies = along_last(np.array([max(rules.wagers, 1)] + [1] * rules.ranks, np.float32), hand.ndim)
    cards = [
        hand / copies,
        column_counts(rules, info.own_known) / copies,
        column_counts(rules, info.other_known) / copies,
        column_counts(rules, own) / copies,
        column_counts(rules, other) / copies,
        pile_counts(rules, info.piles) / copies,
        is_top,
    ]
    columns = [
        hand * open_to_own / copies,
        is_top & (open_to_own | open_to_other),
        _amounts(rules, info, hand * open_to_own),
    ]
    return Features(cards=_join(cards), columns=_join(columns), table=_table_features(rules, info))


def hand_counts(rules: Rules, hand: jax.Array) -> jax.Array:
    """Copies of each card type in a hand; uint8[..., H] to int32[..., C, R + 1]."""
    types = np.arange(rules.colors * rules.faces, dtype=np.uint8)
    counts = (hand[..., None] == along_last(types, hand.ndim + 1)).sum(-2, dtype=jnp.int32)
    return counts.reshape(*hand.shape[:-1], rules.colors, rules.faces)


def column_counts(rules: Rules, columns: jax.Array) -> jax.Array:
    """Copies of each face in columns; int32[..., C, R + 1]."""
    wager_bits, number_bits = column_bits(rules, columns)
    return jnp.concatenate([wager_bits.sum(-1, keepdims=True), number_bits], axis=-1)


def pile_counts(rules: Rules, piles: jax.Array) -> jax.Array:
    """Copies of each face in each pile; int32[..., C, R + 1]."""
    faces = np.arange(rules.faces, dtype=np.uint8)
    return (piles[..., None] == along_last(faces, piles.ndim + 1)).sum(-2, dtype=jnp.int32)


def top_faces(rules: Rules, info: InfoState) -> jax.Array:
    """Marks the card on top of each pile; bool[..., C, R + 1]."""
    tops = pile_tops(info)
    return tops[..., None] == along_last(np.arange(rules.faces, dtype=np.uint8), tops.ndim + 1)


def is_wager(rules: Rules) -> np.ndarray:
    """Marks the face of the wagers, for every colour; bool[1, R + 1]."""
    return np.arange(rules.faces)[None] == 0


def lead(rules: Rules, info: InfoState) -> jax.Array:
    """Points ahead of the other player as the table stands; int32[...]."""
    own, other = (
        column_scores(rules, columns).sum(-1)
        for columns in (info.own_expeditions, info.other_expeditions)
    )
    return own - other


def open_faces(rules: Rules, columns: jax.Array) -> jax.Array:
    """Faces that could still be played on an expedition; bool[..., C, R + 1]."""
    bit = np.array([rules.wagers] + [rules.wagers + r for r in range(rules.ranks)], np.uint16)
    return (columns[..., None] >> along_last(bit, columns.ndim + 1)) == 0


def _amounts(rules: Rules, info: InfoState, playable: jax.Array) -> jax.Array:
    """Sums of each colour: both expeditions, playable cards, barred pile; float32[..., C, 11]."""
    values = face_values(rules)
    total = max(int(values.sum()), 1)
    colors = np.arange(rules.colors, dtype=np.uint8)
    amounts = []
    for columns in (info.own_expeditions, info.other_expeditions):
        wager_bits, number_bits = column_bits(rules, columns)
        amounts += [
            columns > 0,
            (wager_bits.sum(-1) + number_bits.sum(-1)) / rules.bonus_cards,
            (number_bits * along_last(values[1:], number_bits.ndim)).sum(-1) / total,
            column_scores(rules, columns) / SCORE_SCALE,
        ]
    amounts += [
        (playable * along_last(values, playable.ndim)).sum(-1) / total,
        playable.sum(-1) / rules.hand,
        info.barred[..., None] == along_last(colors, info.barred.ndim + 1),
    ]
    return jnp.stack([amount.astype(jnp.float32) for amount in amounts], axis=-1)


def _table_features(rules: Rules, info: InfoState) -> jax.Array:
    """What no colour owns; float32[..., 5]."""
    own, other = (
        column_scores(rules, columns).sum(-1) / SCORE_SCALE
        for columns in (info.own_expeditions, info.other_expeditions)
    )
    table = [
        info.deck_left / rules.deck_after_deal,
        info.turn / rules.max_turns,
        info.phase == DRAW_PHASE,
        own,
        other,
    ]
    return jnp.stack([value.astype(jnp.float32) for value in table], axis=-1)


def _join(parts: list[jax.Array]) -> jax.Array:
    return jnp.concatenate([part.astype(jnp.float32) for part in parts], axis=-1)


class FeatureSizes(NamedTuple):
    """Last dimension of each part of `Features`."""

    cards: int
    columns: int
    table: int


def feature_sizes(rules: Rules) -> FeatureSizes:
    """Last dimension of each part of `Features`."""
    return FeatureSizes(cards=7 * rules.faces, columns=2 * rules.faces + 11, table=5)
