"""One decision of an agent in a game on the host, for play one move at a time."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lostcities_jax.evaluation.agents import Agent
from lostcities_jax.info_state import InfoState, observe, pack
from lostcities_jax.positions import state_of
from lostcities_jax.reference import Game
from lostcities_jax.rollout import Policy
from lostcities_jax.rules import CARD_PHASE


def action_probabilities(agent: Agent, game: Game) -> np.ndarray:
    """What an agent would do in the place of the player to act; float64[A], legal or 0.

    It sees the info state of that player alone. The first call for a policy in each phase
    compiles it.

    Args:
      agent: whose policy is asked.
      game: the position, not over.
    """
    rules, player = game.rules, game.player
    legal = np.zeros(rules.num_actions, bool)
    legal[game.legal_actions()] = True
    first = 0 if game.phase == CARD_PHASE else rules.num_card_actions
    last = rules.num_card_actions if game.phase == CARD_PHASE else rules.num_actions
    head = np.asarray(
        _compiled(agent.policy)(
            agent.params[player], observe(state_of(game), player), legal[first:last], game.phase
        ),
        np.float64,
    )
    every = np.zeros(rules.num_actions)
    every[first:last] = head / head.sum()
    return every


@functools.cache
def _compiled(policy: Policy) -> Callable[..., jax.Array]:
    def one_game(params: Any, info: InfoState, legal: jax.Array, head: int) -> jax.Array:
        return policy(params, pack(info)[None], legal[None], head)[0]

    return jax.jit(one_game, static_argnums=3)
