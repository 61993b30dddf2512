"""What the colours look like: every one has a letter and a shape besides its colour."""

from typing import NamedTuple

WAGER_SIGN = "\N{MULTIPLICATION SIGN}"  # a wager multiplies
WAGER_LETTER = "x"  # the same where people type it


class Suit(NamedTuple):
    """The looks of one colour.

    Attributes:
      name: English name of the colour.
      letter: its first letter, different for each colour.
      shape: path of its symbol in a box from -1 to 1.
      fill: colour of its cards.
      ink: colour of the writing on them.
    """

    name: str
    letter: str
    shape: str
    fill: str
    ink: str


# Lightness differs from neighbour to neighbour, so that the columns stay apart for eyes that
# tell few hues; after the palette of Okabe and Ito (2008), "Color universal design".
SUITS = (
    Suit("yellow", "Y", "M0-1L1 .75H-1Z", "#f0c93a", "#2b2100"),
    Suit("blue", "B", "M-.8-.8H.8V.8H-.8Z", "#1f5fa8", "#ffffff"),
    Suit("white", "W", "M0-.95A.95.95 0 1 1 0 .95A.95.95 0 1 1 0-.95Z", "#f7f5ee", "#33302a"),
    Suit("green", "G", "M0-1.05L.85 0L0 1.05L-.85 0Z", "#13805f", "#ffffff"),
    Suit(
        "red",
        "R",
        "M0-1L.27-.31L.95-.31L.44.12L.62.81L0 .4L-.62.81L-.44.12L-.95-.31L-.27-.31Z",
        "#cc4a1c",
        "#ffffff",
    ),
    Suit(
        "purple",
        "P",
        "M-.33-.95H.33V-.33H.95V.33H.33V.95H-.33V.33H-.95V-.33H-.33Z",
        "#c9a0d8",
        "#2d1238",
    ),
)


def card_name(color: int, number: int) -> str:
    """Letter and number of a card, such as "Y7", or "Yx" for a wager."""
    return f"{SUITS[color].letter}{number or WAGER_LETTER}"
