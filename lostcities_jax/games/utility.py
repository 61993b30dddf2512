"""Games played for something other than their points."""

import functools

import jax
import jax.numpy as jnp

from lostcities_jax.games.game import Game, GameState


@functools.cache
def with_utility(game: Game, points: float, win: float) -> Game:
    """The game that `paid_by` makes. Cached, so that equal games share compiled programs."""
    return game if (points, win) == (1.0, 0.0) else paid_by(game, points, win)


def paid_by(game: Game, points: float | jax.Array, win: float | jax.Array) -> Game:
    """The game whose payoff is `points` for each point ahead and `win` for being ahead at all.

    A mixture of the two asks for wins without giving up on how high they are.
    """

    def utility(difference: jax.Array) -> jax.Array:
        return points * difference + win * jnp.sign(difference)

    def value(state: GameState) -> jax.Array:
        return utility(game.value(state))

    def standing(packed: jax.Array) -> jax.Array:
        return utility(game.standing(packed))

    return game._replace(value=value, standing=standing)
