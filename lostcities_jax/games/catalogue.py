"""Games by name, so that a setting can choose one."""

from lostcities_jax.errors import UserError, nearest, shown
from lostcities_jax.games.game import Game
from lostcities_jax.games.kuhn import kuhn
from lostcities_jax.games.leduc import leduc
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.rules import Rules

GAMES = ("lost_cities", "kuhn", "leduc")


def make_game(name: str, rules: Rules) -> Game:
    """A game of `GAMES`; the rules are those of Lost Cities, and the poker games have none.

    Raises:
      UserError: for a name that is not in `GAMES`.
    """
    if name == "lost_cities":
        return lost_cities(rules)
    if name == "kuhn":
        return kuhn()
    if name == "leduc":
        return leduc()
    allowed = ", ".join(GAMES)
    raise UserError(f"game is {shown(name)}; allowed: {allowed}{nearest(name, GAMES)}")
