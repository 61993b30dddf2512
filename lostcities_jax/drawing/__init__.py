"""Pictures of a state: as text, as SVG, and as plain values for other ways to show it."""

from lostcities_jax.drawing.picture import Picture, picture
from lostcities_jax.drawing.svg import to_svg
from lostcities_jax.drawing.text import to_text

__all__ = ["Picture", "picture", "to_svg", "to_text"]
