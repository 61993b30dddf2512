"""What the environments of the Gymnasium family share: a game on the host and its spaces."""

import numpy as np
from gymnasium import spaces

from lostcities_jax.adapters.views import feature_bounds, host_features
from lostcities_jax.cards import all_cards
from lostcities_jax.drawing import to_svg, to_text
from lostcities_jax.errors import UserError, nearest, shown
from lostcities_jax.positions import state_of
from lostcities_jax.reference import Game
from lostcities_jax.rules import Rules

RENDER_MODES = ["human", "ansi", "svg"]


def deal_game(rules: Rules, generator: np.random.Generator) -> Game:
    """A game with a shuffled deck, before its first action."""
    return Game(rules, generator.permutation(all_cards(rules)).tolist())


def observation_space(rules: Rules) -> spaces.Dict:
    """Features of an info state and the mask of legal actions."""
    mask = spaces.Box(0, 1, (rules.num_actions,), np.int8)
    return spaces.Dict(
        {"observation": spaces.Box(*feature_bounds(rules), dtype=np.float32), "action_mask": mask}
    )


def observation(game: Game, player: int) -> dict[str, np.ndarray]:
    """What a player knows, and may do if it is the player's turn; new arrays."""
    return {
        "observation": host_features(game.rules)(game, player),
        "action_mask": action_mask(game, player),
    }


def action_mask(game: Game, player: int) -> np.ndarray:
    """1 for every legal action, all 0 out of turn and when the game is over; int8[A]."""
    mask = np.zeros(game.rules.num_actions, np.int8)
    if game.player == player:
        mask[game.legal_actions()] = 1
    return mask


def lead(game: Game, player: int) -> int:
    """Points by which a player is ahead as the table stands."""
    points = game.scores()
    return points[player] - points[1 - player]


def check_render_mode(mode: str | None) -> None:
    """Refuses a render mode that does not exist.

    Raises:
      UserError: names those that do.
    """
    if mode is not None and mode not in RENDER_MODES:
        allowed = ", ".join(RENDER_MODES)
        near = nearest(str(mode), RENDER_MODES)
        raise UserError(f"render_mode is {shown(mode)}; allowed: {allowed}, None{near}")


def render(game: Game, mode: str | None, view: int | None) -> str | None:
    """The picture of a game: text ("ansi") or SVG ("svg"); "human" prints the text.

    Args:
      game: the position.
      mode: one of RENDER_MODES, or None for no picture.
      view: the player whose hand shows; None for both.
    """
    if mode is None:
        return None
    if mode == "svg":
        return to_svg(game.rules, state_of(game), view)
    text = to_text(game.rules, state_of(game), view)
    if mode == "ansi":
        return text
    print(text)
    return None
