"""Lockstep Deep CFR for the card game Lost Cities, in JAX.

The names below are the game itself: pure functions on fixed-shape arrays for one game, to
be batched with `jax.vmap` and compiled with `jax.jit`; and pictures of it, made on the host.

```python
import jax
import lostcities_jax as lc

deal = jax.vmap(lambda key: lc.deal(lc.CLASSIC, key))
states = deal(jax.random.split(jax.random.key(0), 1024))
masks = jax.vmap(lambda state: lc.legal_mask(lc.CLASSIC, state))(states)  # bool[1024, 22]
```

Training, populations, evaluation, rating, a board to play on and pages of runs are the commands
`python -m lostcities_jax.train`, `... .population`, `... .evaluate`, `... .rate`, `... .play` and
`... .report`, each with `--help`. Their parts are the other modules: `games` for what a game is,
`networks`, `traversal` for the lockstep machine, `solvers`, `evaluation` for agents and matches,
`exact` for games small enough, and `adapters` to other libraries.
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
