"""A state as text: a line for each colour, for terminals and logs."""

from lostcities_jax.drawing.suits import SUITS, WAGER_LETTER, card_name
from lostcities_jax.drawing.table import Table, see_table
from lostcities_jax.rules import NUM_PLAYERS, Rules
from lostcities_jax.state import State

_TASKS = {"card": "to play or discard", "draw": "to draw"}


def to_text(rules: Rules, state: State, view: int | None = None) -> str:
    """A state as lines of text, each below 80 characters in the classic game.

    Cards are a letter and a number, "x" being a wager; of a hidden hand only the cards taken
    from a pile show.

    Args:
      rules: the rule set.
      state: one game, as arrays of JAX or NumPy.
      view: the player whose hand shows; None for both.

    Raises:
      ValueError: for another view, or a state that is not one game of these rules.
    """
    table = see_table(rules, state, view)
    lines = [_heading(rules, table), ""]
    lines += _columns(rules, table)
    return "\n".join(lines + [_hand(table, seat) for seat in range(NUM_PLAYERS)])


def _heading(rules: Rules, table: Table) -> str:
    deck = f"{table.deck_left} left in the deck"
    if table.phase == "over":
        return f"over after {table.turn} turns, {deck}"
    task = _TASKS[table.phase]
    return (
        f"turn {table.turn + 1} of at most {rules.max_turns}, {deck}, player {table.player} {task}"
    )


def _columns(rules: Rules, table: Table) -> list[str]:
    rows = [("", "player 0", "", "pile", "player 1", "")]
    for color in range(rules.colors):
        own, other = (_expedition(table, seat, color) for seat in range(NUM_PLAYERS))
        suit = SUITS[color]
        rows.append((f"{suit.letter} {suit.name}", *own, _pile(table, color), *other))
    rows.append(("sum", "", str(table.scores[0]), "", "", str(table.scores[1])))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    points = (2, 5)
    return [
        "  ".join(
            cell.rjust(width) if column in points else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _expedition(table: Table, seat: int, color: int) -> tuple[str, str]:
    numbers = table.expeditions[seat][color]
    if not numbers:
        return "-", ""
    return " ".join(_number(number) for number in numbers), str(table.points[seat][color])


def _pile(table: Table, color: int) -> str:
    pile = table.piles[color]
    if not pile:
        return "-"
    barred = " barred" if table.barred == color else ""
    return f"{_number(pile[-1])} of {len(pile)}{barred}"


def _number(number: int) -> str:
    return str(number or WAGER_LETTER)


def _hand(table: Table, seat: int) -> str:
    hand = table.hands[seat]
    if hand is not None:
        return f"hand of player {seat}: {' '.join(card_name(*card) for card in hand)}"
    known = " ".join(card_name(*card) for card in table.known[seat])
    among = f", among them {known}" if known else ""
    return f"hand of player {seat}: {table.hand_sizes[seat]} cards{among}"
