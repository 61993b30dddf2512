"""Card codec: card types, decks in canonical order, and the bits of a column.

A *card type* is `color * faces + face`; face 0 is the wager, face r the r-th number card.
A *column* is a bit set over the K cards of one colour: the low `wagers` bits count wagers
(1, 3, 7: one, two, three), bit `wagers + r - 1` is the r-th number card. NumPy only.
"""

import numpy as np

from lostcities_jax.rules import Rules

EMPTY = 255  # an empty hand slot or pile position; sorts after every card type


def card_type(rules: Rules, color: int, face: int) -> int:
    """Card type of the `face`-th card of a colour (face 0: the wager)."""
    return color * rules.faces + face


def all_cards(rules: Rules) -> np.ndarray:
    """Every card of the game as its type, in ascending order; uint8[N]."""
    column = [0] * rules.wagers + list(range(1, rules.faces))
    return np.array(
        [card_type(rules, color, face) for color in range(rules.colors) for face in column],
        np.uint8,
    )


def face_values(rules: Rules) -> np.ndarray:
    """Points of each face, wagers worth 0; int32[R + 1]."""
    return np.concatenate([[0], np.arange(rules.ranks) + rules.lowest]).astype(np.int32)


def printed_face(rules: Rules, face: int) -> int:
    """The number printed on a card, 0 for a wager."""
    return 0 if face == 0 else rules.lowest + face - 1


def face_of_printed(rules: Rules, printed: int) -> int:
    """Inverse of `printed_face`; ValueError names what is allowed."""
    if printed == 0 and rules.wagers:
        return 0
    face = printed - rules.lowest + 1
    if not 1 <= face <= rules.ranks:
        highest = rules.lowest + rules.ranks - 1
        wager = "0 (wager) or " if rules.wagers else ""
        raise ValueError(f"card face {printed}; allowed: {wager}{rules.lowest} to {highest}")
    return face
