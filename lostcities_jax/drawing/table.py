"""The table as one viewer sees it, in plain values: the only place where hands are hidden.

Text, SVG and the page that people play on all show a `Table` and never a `State`, so
nothing that it leaves out can show up in them.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from lostcities_jax.cards import EMPTY, printed_face
from lostcities_jax.reference import column_score
from lostcities_jax.rules import DRAW_PHASE, NUM_PLAYERS, Rules
from lostcities_jax.state import State


class Card(NamedTuple):
    """A card by what is printed on it; a wager has the number 0."""

    color: int
    number: int


@dataclasses.dataclass(frozen=True)
class Table:
    """What lies on the table and in the hands that the viewer may see.

    Attributes:
      turn: turns completed by both players.
      player: the player to move.
      phase: what is to be done: "card", "draw", or "over".
      deck_left: cards left in the deck.
      barred: colour whose pile may not be drawn this turn; None for none.
      hands: each player's cards in the order of the slots; None for a hidden hand.
      hand_sizes: cards in each hand.
      known: of each hand, the cards that both players know to be in it.
      expeditions: numbers played by each player in each colour, in order.
      points: what each of these expeditions scores as it stands.
      scores: points of each player.
      piles: numbers in each discard pile from bottom to top.
    """

    turn: int
    player: int
    phase: Literal["card", "draw", "over"]
    deck_left: int
    barred: int | None
    hands: tuple[tuple[Card, ...] | None, ...]
    hand_sizes: tuple[int, ...]
    known: tuple[tuple[Card, ...], ...]
    expeditions: tuple[tuple[tuple[int, ...], ...], ...]
    points: tuple[tuple[int, ...], ...]
    scores: tuple[int, ...]
    piles: tuple[tuple[int, ...], ...]


def see_table(rules: Rules, state: State, view: int | None = None) -> Table:
    """The table as `view` sees it: player 0 or 1, or None for somebody who sees both hands.

    The order of the deck shows to nobody.

    Raises:
      ValueError: for another view, or a state that is not one game of these rules.
    """
    if view not in (None, 0, 1):
        raise ValueError(f"view is {view!r}; allowed: 0, 1 or None")
    host: Any = State._make(np.asarray(leaf) for leaf in state)
    _check_shapes(rules, host)
    hands = tuple(
        tuple(_card(rules, card) for card in hand.tolist() if card != EMPTY) for hand in host.hands
    )
    faces = tuple(
        tuple(_faces(rules, column) for column in columns) for columns in host.expeditions
    )
    points = tuple(tuple(column_score(rules, column) for column in columns) for columns in faces)
    is_over = host.deck_left == 0 or host.turn >= rules.max_turns
    return Table(
        turn=int(host.turn),
        player=int(host.turn) % NUM_PLAYERS,
        phase="over" if is_over else "draw" if host.phase == DRAW_PHASE else "card",
        deck_left=int(host.deck_left),
        barred=int(host.barred) if host.barred < rules.colors else None,
        hands=tuple(hand if view in (None, seat) else None for seat, hand in enumerate(hands)),
        hand_sizes=tuple(len(hand) for hand in hands),
        known=tuple(_known(rules, columns) for columns in host.known),
        expeditions=tuple(
            tuple(_numbers(rules, column) for column in columns) for columns in faces
        ),
        points=points,
        scores=tuple(sum(columns) for columns in points),
        piles=tuple(
            _numbers(rules, pile[:size])
            for pile, size in zip(host.piles.tolist(), host.pile_sizes.tolist(), strict=True)
        ),
    )


def _check_shapes(rules: Rules, state: Any) -> None:
    expected = (NUM_PLAYERS, rules.hand), (rules.colors, rules.cards_per_color)
    if state.hands.ndim > 2:
        raise ValueError(
            f"the state has lanes {state.hands.shape[:-2]}; allowed: one game, "
            f"such as jax.tree.map(lambda leaf: leaf[0], state)"
        )
    if (state.hands.shape, state.piles.shape) != expected:
        raise ValueError(
            f"hands and piles have shapes {state.hands.shape} and {state.piles.shape}; "
            f"allowed with these rules: {expected[0]} and {expected[1]}"
        )


def _card(rules: Rules, card: int) -> Card:
    color, face = divmod(card, rules.faces)
    return Card(color, printed_face(rules, face))


def _faces(rules: Rules, column: Any) -> tuple[int, ...]:
    """Faces in a column of bits (see `cards`), in ascending order."""
    bits = [bit for bit in range(rules.cards_per_color) if int(column) >> bit & 1]
    return tuple(max(bit - rules.wagers + 1, 0) for bit in bits)


def _numbers(rules: Rules, faces: Sequence[int]) -> tuple[int, ...]:
    return tuple(printed_face(rules, face) for face in faces)


def _known(rules: Rules, columns: Any) -> tuple[Card, ...]:
    return tuple(
        Card(color, number)
        for color, column in enumerate(columns)
        for number in _numbers(rules, _faces(rules, column))
    )
