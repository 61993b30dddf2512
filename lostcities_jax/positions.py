"""Games of the reference engine as states, for policies and pictures of recorded games."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from lostcities_jax.cards import EMPTY
from lostcities_jax.reference import Game
from lostcities_jax.rules import Rules
from lostcities_jax.state import State


def state_of(game: Game) -> State:
    """The arrays of a reference game, made without the engine; NumPy, on the host.

    Of the deck only the cards still in it are there, behind EMPTY for those that have left.
    """
    rules = game.rules
    drawn = rules.num_cards - len(game.deck)
    fields: dict[str, Any] = {
        "deck": np.array([EMPTY] * drawn + game.deck, np.uint8),
        "deck_left": np.uint8(len(game.deck)),
        "hands": np.array([_padded(hand, rules.hand) for hand in game.hands], np.uint8),
        "expeditions": np.array(
            [[_column_bits(rules, faces) for faces in columns] for columns in game.expeditions],
            np.uint16,
        ),
        "known": np.array(
            [_hand_columns(rules, known.elements()) for known in game.known], np.uint16
        ),
        "piles": np.array([_padded(pile, rules.cards_per_color) for pile in game.piles], np.uint8),
        "pile_sizes": np.array([len(pile) for pile in game.piles], np.uint8),
        "barred": np.uint8(rules.colors if game.barred is None else game.barred),
        "turn": np.uint16(game.turn),
        "phase": np.uint8(game.phase),
    }
    return State(**fields)


def _column_bits(rules: Rules, faces: Sequence[int]) -> int:
    """Bits of a column as `cards` defines them: wagers from below, then a bit a number."""
    numbers = sum(1 << (rules.wagers + face - 1) for face in faces if face)
    return (1 << faces.count(0)) - 1 + numbers


def _hand_columns(rules: Rules, cards: Iterable[int]) -> list[int]:
    columns: list[list[int]] = [[] for _ in range(rules.colors)]
    for card in cards:
        color, face = divmod(card, rules.faces)
        columns[color].append(face)
    return [_column_bits(rules, faces) for faces in columns]


def _padded(values: list[int], length: int) -> list[int]:
    return values + [EMPTY] * (length - len(values))
