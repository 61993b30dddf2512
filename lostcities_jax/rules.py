"""The rules of a Lost Cities game as one static, hashable value.

Dimension letters used in every docstring of the package:

    B lanes (batch width)   P players (2)        C colours
    R ranks per colour      K cards per colour   N cards in the game
    H hand size             A actions            D features
    T tape rows             M memory slots       I bytes of a packed info state
"""

import dataclasses

import numpy as np

NUM_PLAYERS = 2
CARD_PHASE = 0
DRAW_PHASE = 1

# What each field may be: the largest values keep a column of one colour in 16 bits,
# a card type in 8 bits and every score far inside 32 bits.
_BOUNDS = {
    "colors": (1, 6),
    "ranks": (1, 16),
    "lowest": (1, 100),
    "wagers": (0, 15),
    "hand": (1, 40),
    "penalty": (-1000, 0),
    "bonus_cards": (1, 17),
    "bonus": (0, 1000),
    "max_turns": (1, 10_000),
}
MAX_CARDS_PER_COLOR = 16


@dataclasses.dataclass(frozen=True)
class Rules:
    """A rule set; static under `jit`, so a new value means a new compilation.

    Attributes:
      colors: colours (expeditions) in the game, C.
      ranks: number cards of one colour, R; their faces are `lowest`, `lowest + 1`, ...
      lowest: face of the lowest number card.
      wagers: wager cards of one colour; identical, and worth no points themselves.
      hand: cards in a hand before a turn, H.
      penalty: points added to the sum of an expedition with any card (negative).
      bonus_cards: cards an expedition needs for the bonus; wagers count.
      bonus: points of the bonus, which wagers do not multiply.
      max_turns: turns of both players together after which a game ends as it stands.

    Raises:
      ValueError: on construction, for a value out of bounds or a deck that two hands
        would use up.
    """

    colors: int = 5
    ranks: int = 9
    lowest: int = 2
    wagers: int = 3
    hand: int = 8
    penalty: int = -20
    bonus_cards: int = 8
    bonus: int = 20
    max_turns: int = 200

    def __post_init__(self):
        for name, (low, high) in _BOUNDS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise ValueError(f"rules.{name} is {value!r}; allowed: a whole number")
            if not low <= value <= high:
                raise ValueError(f"rules.{name} is {value}; allowed: {low} to {high}")
        if self.cards_per_color > MAX_CARDS_PER_COLOR:
            raise ValueError(
                f"rules.ranks + rules.wagers is {self.cards_per_color}; "
                f"allowed: at most {MAX_CARDS_PER_COLOR}"
            )
        if self.deck_after_deal < 1:
            raise ValueError(
                f"rules.hand is {self.hand}; allowed: at most {(self.num_cards - 1) // 2}, "
                f"since two hands must leave a card of {self.num_cards} in the deck"
            )

    @property
    def faces(self) -> int:
        """Distinct cards of one colour, R + 1: face 0 is the wager, face r the r-th number."""
        return self.ranks + 1

    @property
    def cards_per_color(self) -> int:
        """Cards of one colour, K."""
        return self.ranks + self.wagers

    @property
    def num_cards(self) -> int:
        """Cards in the game, N."""
        return self.colors * self.cards_per_color

    @property
    def deck_after_deal(self) -> int:
        """Cards left in the deck when both hands have been dealt."""
        return self.num_cards - NUM_PLAYERS * self.hand

    @property
    def num_card_actions(self) -> int:
        """Actions of the card phase: play slot 0..H-1, then discard slot 0..H-1."""
        return 2 * self.hand

    @property
    def num_draw_actions(self) -> int:
        """Actions of the draw phase: the deck, then the pile of colour 0..C-1."""
        return 1 + self.colors

    @property
    def num_actions(self) -> int:
        """Actions of both phases, A: the card actions first, then the draw actions."""
        return self.num_card_actions + self.num_draw_actions


CLASSIC = Rules()
SIX_COLORS = Rules(colors=6, max_turns=240)
MINI = Rules(
    colors=2,
    ranks=2,
    lowest=2,
    wagers=1,
    hand=2,
    penalty=-4,
    bonus_cards=3,
    bonus=2,
    max_turns=4,
)
PRESETS = {"classic": CLASSIC, "six_colors": SIX_COLORS, "mini": MINI}
