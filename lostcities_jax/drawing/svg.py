"""A state as one SVG image without anything from outside, readable at small sizes.

Every card bears number, letter and shape of its colour, so that nothing hangs on hues.
"""

from collections.abc import Iterable, Iterator, Sequence

from lostcities_jax.drawing.suits import SUITS, WAGER_SIGN
from lostcities_jax.drawing.table import Card, Table, see_table
from lostcities_jax.rules import Rules
from lostcities_jax.state import State

_WIDTH, _HEIGHT = 46, 62  # of a card
_PITCH = 54  # from column to column
_STEP = 20  # of an overlapped card, what shows
_MARGIN = 12
_LINE = 22  # of writing
_LEAST_WIDTH = 300  # of the image, for the line of writing at the top
_TASKS = {"card": "to play or discard", "draw": "to draw"}


def to_svg(rules: Rules, state: State, view: int | None = None) -> str:
    """A state as a self-contained SVG image: both sides, piles and deck in the middle.

    Args:
      rules: the rule set.
      state: one game, as arrays of JAX or NumPy.
      view: the player whose hand shows, at the bottom; None for both, player 0 at the bottom.

    Raises:
      ValueError: for another view, or a state that is not one game of these rules.
    """
    table = see_table(rules, state, view)
    near = view or 0
    far = 1 - near
    columns = max(rules.colors + 1, min(rules.hand, 8))
    width = max(columns * _PITCH + 2 * _MARGIN, _LEAST_WIDTH)
    parts = [_text(_MARGIN, _MARGIN + 10, _heading(table), size=13)]
    y = _MARGIN + _LINE
    for part, height in (
        (_hand(table, far, width), _HEIGHT),
        (_score(table, far), _LINE),
        (_expeditions(table, far, is_upward=True), _depth(table, far)),
        (_middle(rules, table), _HEIGHT + 2 * _MARGIN),
        (_expeditions(table, near, is_upward=False), _depth(table, near)),
        (_score(table, near), _LINE),
        (_hand(table, near, width), _HEIGHT),
    ):
        parts.append(f'<g transform="translate(0 {y})">{"".join(part)}</g>')
        y += height + 6
    height = y + _MARGIN - 6
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" font-family="system-ui, sans-serif" font-weight="600">'
        f"<title>{_heading(table)}</title>"
        f'<rect width="{width}" height="{height}" rx="10" fill="#e4e0d5"/>{"".join(parts)}</svg>'
    )


def _heading(table: Table) -> str:
    if table.phase == "over":
        return f"over after {table.turn} turns"
    return f"turn {table.turn + 1}: player {table.player} {_TASKS[table.phase]}"


def _text(x: float, y: float, text: str, size: int, fill: str = "#2c2a26", anchor: str = "") -> str:
    placed = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}"{placed}>{text}</text>'


def _outline(x: float, y: float, fill: str, stroke: str = "#2c2a26", dashes: str = "") -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="5" '
        f'fill="{fill}" stroke="{stroke}"{dashed}/>'
    )


def _shape(color: int, x: float, y: float, scale: float, fill: str) -> str:
    where = f"translate({x:g} {y:g}) scale({scale:g})"
    return f'<path d="{SUITS[color].shape}" fill="{fill}" transform="{where}"/>'


def _face(card: Card, x: float, y: float) -> str:
    """A card; its number stands at the top and at the bottom, as either may be covered."""
    suit = SUITS[card.color]
    number = str(card.number or WAGER_SIGN)
    right = x + _WIDTH - 5
    return "".join(
        [
            _outline(x, y, suit.fill),
            _shape(card.color, x + _WIDTH / 2, y + _HEIGHT / 2, 7, suit.ink),
            _text(x + 5, y + 15, number, 15, suit.ink),
            _text(right, y + 14, suit.letter, 12, suit.ink, "end"),
            _text(x + 5, y + _HEIGHT - 5, number, 15, suit.ink),
            _text(right, y + _HEIGHT - 5, suit.letter, 12, suit.ink, "end"),
        ]
    )


def _back(x: float, y: float) -> str:
    return _outline(x, y, "#5c5648") + _shape(3, x + _WIDTH / 2, y + _HEIGHT / 2, 10, "#8d8470")


def _hand(table: Table, seat: int, width: int) -> Iterator[str]:
    """A hand in a row, closer where it is long; known cards of a hidden hand lie open."""
    hand: Sequence[Card | None] | None = table.hands[seat]
    if hand is None:
        known = table.known[seat]
        hand = [*known, *[None] * (table.hand_sizes[seat] - len(known))]
    room = width - 2 * _MARGIN - _WIDTH
    pitch = min(_PITCH, room / max(len(hand) - 1, 1))
    for slot, card in enumerate(hand):
        x = _MARGIN + slot * pitch
        yield _back(x, 0) if card is None else _face(card, x, 0)


def _score(table: Table, seat: int) -> Iterator[str]:
    yield _text(_MARGIN, 15, f"player {seat}: {table.scores[seat]} points", size=14)


def _depth(table: Table, seat: int) -> int:
    """Height of a player's expeditions with the points of each."""
    longest = max(len(column) for column in table.expeditions[seat])
    return _LINE + (_HEIGHT + _STEP * (longest - 1) if longest else 0)


def _expeditions(table: Table, seat: int, is_upward: bool) -> Iterator[str]:
    """Columns that grow from the middle of the table towards their player."""
    depth = _depth(table, seat)
    for color, numbers in enumerate(table.expeditions[seat]):
        x = _MARGIN + color * _PITCH
        for place, number in enumerate(numbers):
            y = depth - _HEIGHT - place * _STEP if is_upward else place * _STEP
            yield _face(Card(color, number), x, y)
        if numbers:
            length = _HEIGHT + _STEP * (len(numbers) - 1)
            y = depth - length - 6 if is_upward else length + 15
            points = str(table.points[seat][color])
            yield _text(x + _WIDTH / 2, y, points, 13, anchor="middle")


def _middle(rules: Rules, table: Table) -> Iterator[str]:
    """Piles and deck; the number of cards stands under each."""
    for color in range(rules.colors):
        x = _MARGIN + color * _PITCH
        yield from _pile(table, color, x)
    x = _MARGIN + rules.colors * _PITCH
    if table.deck_left:
        yield _back(x, 0)
    yield _counted(x, f"deck {table.deck_left}")


def _pile(table: Table, color: int, x: int) -> Iterable[str]:
    pile = table.piles[color]
    if pile:
        yield _face(Card(color, pile[-1]), x, 0)
        yield _counted(x, "barred" if table.barred == color else str(len(pile)))
    else:
        yield _outline(x, 0, "none", "#8d8470", "4 3")
        yield _shape(color, x + _WIDTH / 2, _HEIGHT / 2, 9, "#b5ad99")
        yield _text(x + _WIDTH - 5, 14, SUITS[color].letter, 12, "#6f6857", "end")


def _counted(x: int, text: str) -> str:
    return _text(x + _WIDTH / 2, _HEIGHT + 14, text, 12, anchor="middle")
