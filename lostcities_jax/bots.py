"""Rule-based players: yardsticks, and the first opponents of a learner.

A bot is data: `BotParams` says which of two programs plays and with which numbers. A program
scores every action, and the bot takes the best. Bots read the info state alone, so they
cannot peek.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax import expert, heuristic
from lostcities_jax.expert import ExpertParams
from lostcities_jax.features import hand_counts, open_faces, top_faces
from lostcities_jax.heuristic import HeuristicParams
from lostcities_jax.info_state import InfoState, unpack
from lostcities_jax.rules import CARD_PHASE, Rules

_IMPOSSIBLE = -1e9  # below the score of any action


class BotParams(NamedTuple):
    """How a bot plays: NumPy scalars, or arrays of equal shape under `jax.vmap`.

    Attributes:
      judgement: the numbers of its program; their type says which.
      uniform: share of uniformly random legal actions. float32[].
      never_plays: whether it always discards slot 0 and draws from the deck. bool[].
    """

    judgement: HeuristicParams | ExpertParams
    uniform: np.float32 | jax.Array = np.float32(0)
    never_plays: np.bool_ | jax.Array = np.bool_(False)


_BALANCED = HeuristicParams()
BOTS: dict[str, BotParams] = {
    "random": BotParams(_BALANCED, uniform=np.float32(1)),
    "discard-only": BotParams(_BALANCED, never_plays=np.bool_(True)),
    "cautious": BotParams(
        HeuristicParams(
            open_sum=np.float32(0.62),
            open_cards=np.float32(0.5),
            wager_sum=np.float32(1.35),
            wager_cards=np.float32(0.45),
            last_opening=np.float32(0.3),
        )
    ),
    "balanced": BotParams(_BALANCED),
    "aggressive": BotParams(
        HeuristicParams(
            open_sum=np.float32(0.42),
            open_cards=np.float32(0.3),
            wager_sum=np.float32(1),
            wager_cards=np.float32(0.25),
            last_opening=np.float32(0.12),
        )
    ),
    "noisy": BotParams(_BALANCED, uniform=np.float32(0.15)),
    "expert": BotParams(ExpertParams()),
}


def bot_policy(
    rules: Rules, params: BotParams, info: InfoState, legal: jax.Array, phase: int
) -> jax.Array:
    """A bot's probabilities of the actions of a phase; float32[A].

    All zero when no action is legal, as in a finished game.

    Args:
      rules: the rule set.
      params: the bot.
      info: what the mover knows; one info state, without leading lanes.
      legal: legal actions of the phase. bool[2H] or bool[1 + C].
      phase: CARD_PHASE or DRAW_PHASE, static.
    """
    if phase == CARD_PHASE:
        chosen = _best_card(rules, params.judgement, info)
        first_resort = rules.hand
    else:
        chosen = _best_draw(rules, params.judgement, info)
        first_resort = 0
    without_play = jnp.arange(legal.shape[-1]) == first_resort
    chosen = jnp.where(params.never_plays, without_play, chosen) & legal
    uniform = jnp.where(chosen.any(), params.uniform, 1.0)
    return (1 - uniform) * chosen + uniform * legal / jnp.maximum(legal.sum(), 1)


def _best_card(
    rules: Rules, judgement: HeuristicParams | ExpertParams, info: InfoState
) -> jax.Array:
    """The card action of the highest score, of equal ones the last card type; bool[2H]."""
    held = hand_counts(rules, info.hand) > 0
    possible = jnp.stack([held & open_faces(rules, info.own_expeditions), held])
    if isinstance(judgement, HeuristicParams):
        scores = heuristic.card_scores(rules, judgement, info)
    else:
        scores = expert.card_scores(rules, judgement, info)
    best = _last_best(jnp.where(possible, scores, _IMPOSSIBLE).reshape(-1))
    types = rules.colors * rules.faces
    slots = info.hand == (best % types).astype(jnp.uint8)
    first = slots & ~jnp.concatenate([jnp.zeros((1,), bool), slots[:-1]])
    return jnp.concatenate([first & (best < types), first & (best >= types)])


def _best_draw(
    rules: Rules, judgement: HeuristicParams | ExpertParams, info: InfoState
) -> jax.Array:
    """The draw action of the highest score, of equal ones the deck or the last pile; bool[1 + C].

    Draws from piles do not bring the end nearer, so none is made once the turns left are
    only enough to use up the deck: two bots always finish their game.
    """
    if isinstance(judgement, HeuristicParams):
        deck, cards = heuristic.draw_scores(rules, judgement, info)
    else:
        deck, cards = expert.draw_scores(rules, judgement, info)
    piles = jnp.where(top_faces(rules, info), cards, _IMPOSSIBLE).max(-1)
    spare_turns = rules.max_turns - info.turn.astype(jnp.int32) - info.deck_left
    not_barred = jnp.arange(rules.colors, dtype=jnp.uint8) != info.barred
    piles = jnp.where(not_barred & (spare_turns > 0), piles, _IMPOSSIBLE)
    pile = _last_best(piles)
    action = jnp.where(piles[pile] > deck, 1 + pile, 0)
    return jnp.arange(rules.num_draw_actions) == action


def _last_best(scores: jax.Array) -> jax.Array:
    """Index of the highest score, of equal ones the last; int32[].

    Two plain maxima: with an `argmax` a decision takes a quarter more time on a CPU.
    """
    places = jnp.arange(scores.size, dtype=jnp.int32)
    return jnp.where(scores == scores.max(), places, 0).max()


@functools.cache
def batched_bot_policy(rules: Rules) -> Callable[..., jax.Array]:
    """`(params, packed info uint8[B, I], legal bool[B, A], head) -> probabilities [B, A]`.

    Cached, so that all bots of a rule set and a program share compiled programs.
    """

    def policy(params: BotParams, info: jax.Array, legal: jax.Array, head: int) -> jax.Array:
        def one_lane(packed: jax.Array, mask: jax.Array) -> jax.Array:
            return bot_policy(rules, params, unpack(rules, packed), mask, head)

        return jax.vmap(one_lane)(info, legal)

    return policy
