"""What every adapter shows of a state: features of one player's info state, and their bounds."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax.cards import face_values
from lostcities_jax.features import SCORE_SCALE
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.info_state import observe, pack
from lostcities_jax.positions import state_of
from lostcities_jax.reference import Game
from lostcities_jax.rules import Rules
from lostcities_jax.state import State

_SCORES = 2  # the last features: scores of both players


def features(rules: Rules, state: State, player: jax.Array | int) -> jax.Array:
    """What a player knows, as the package's own flat networks read it; float32[D].

    Nothing of it depends on the other hand, beyond the cards seen taken from a pile.

    Args:
      rules: the rule set.
      state: one game.
      player: the player who looks, traced or not. int32[].
    """
    views = [pack(observe(state, seat)) for seat in range(2)]
    return lost_cities(rules).encode(jnp.where(player == 0, *views))


def feature_bounds(rules: Rules) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest value of each feature; float32[D] twice."""
    size = jax.eval_shape(lost_cities(rules).encode, _packed(rules)).shape[-1]
    low, high = np.zeros(size, np.float32), np.ones(size, np.float32)
    low[-_SCORES:] = rules.colors * _lowest_column(rules) / SCORE_SCALE
    high[-_SCORES:] = rules.colors * _highest_column(rules) / SCORE_SCALE
    return low, high


def largest_difference(rules: Rules) -> int:
    """Points by which no game can be exceeded: all columns at their best against the worst.

    It is the price of an illegal action where an environment ends the game for one, so that
    none is ever worth it.
    """
    return rules.colors * (_highest_column(rules) - _lowest_column(rules))


@functools.cache
def host_features(rules: Rules) -> Callable[[Game, int], np.ndarray]:
    """`(reference game, player) -> float32[D]`, compiled once for each rule set."""
    compiled = jax.jit(functools.partial(features, rules))

    def of_game(game: Game, player: int) -> np.ndarray:
        return np.array(compiled(state_of(game), np.int32(player)))

    return of_game


def _packed(rules: Rules) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((lost_cities(rules).info_size,), jnp.uint8)


def _lowest_column(rules: Rules) -> int:
    """No column scores less than all its wagers alone, without the bonus."""
    return rules.penalty * (1 + rules.wagers)


def _highest_column(rules: Rules) -> int:
    """No column scores more than all its cards, with the bonus."""
    points = int(face_values(rules).sum()) + rules.penalty
    return max(points * (1 + rules.wagers), 0) + rules.bonus
