"""A state as a picture that a notebook shows by itself."""

from typing import NamedTuple

from lostcities_jax.drawing.svg import to_svg
from lostcities_jax.drawing.text import to_text
from lostcities_jax.rules import Rules
from lostcities_jax.state import State


class Picture(NamedTuple):
    """One state, drawn: a notebook shows `svg`, a console prints `text`."""

    svg: str
    text: str

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return self.text


def picture(rules: Rules, state: State, view: int | None = None) -> Picture:
    """The picture of a state; as the last line of a notebook cell it shows itself.

    Args:
      rules: the rule set.
      state: one game, as arrays of JAX or NumPy.
      view: the player whose hand shows, at the bottom; None for both.

    Raises:
      ValueError: for another view, or a state that is not one game of these rules.
    """
    return Picture(to_svg(rules, state, view), to_text(rules, state, view))
