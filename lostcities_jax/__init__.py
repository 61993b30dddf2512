"""Lockstep Deep CFR for the card game Lost Cities, in JAX.

The names below are the game itself: pure functions on fixed-shape arrays for one game, to
be batched with `jax.vmap` and compiled with `jax.jit`; and pictures of it, made on the host.
Training, populations, evaluation, rating, a board to play on and pages of runs are the commands
`python -m lostcities_jax.train`, `... .population`, `... .evaluate`, `... .rate`, `... .play` and
`... .report`.
"""

from lostcities_jax.drawing import Picture, picture, to_svg, to_text
from lostcities_jax.engine import (
    card_half_step,
    checked_step,
    current_player,
    draw_half_step,
    is_terminal,
    is_timeout,
    legal_mask,
    scores,
    step,
)
from lostcities_jax.info_state import InfoState, observe, pack, unpack
from lostcities_jax.rules import CLASSIC, MINI, SIX_COLORS, Rules
from lostcities_jax.state import State, deal, deal_from_deck

__all__ = [
    "CLASSIC",
    "MINI",
    "SIX_COLORS",
    "InfoState",
    "Picture",
    "Rules",
    "State",
    "card_half_step",
    "checked_step",
    "current_player",
    "deal",
    "deal_from_deck",
    "draw_half_step",
    "is_terminal",
    "is_timeout",
    "legal_mask",
    "observe",
    "pack",
    "picture",
    "scores",
    "step",
    "to_svg",
    "to_text",
    "unpack",
]
