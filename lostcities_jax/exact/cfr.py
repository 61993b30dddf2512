"""Tabular counterfactual regret minimisation on a whole game tree: what sampling aims at.

Zinkevich et al. 2007 (Regret minimization in games with incomplete information), CFR+ of
Tammelin 2014 (Solving large imperfect information games using CFR+), linear CFR of Brown and
Sandholm 2019 (Solving imperfect-information games via discounted regret minimization).
"""

from typing import NamedTuple

import numpy as np

from lostcities_jax.errors import UserError, nearest, shown
from lostcities_jax.exact.best_response import (
    PLAYERS,
    action_values,
    own_reach,
    reach_probabilities,
    sum_by_history,
)
from lostcities_jax.exact.tree import GameTree


class Variant(NamedTuple):
    """How a variant of CFR departs from the first one.

    Attributes:
      alternating: the second player answers the first one's new strategy, as in the
        experiments of both later papers; else both move at once.
      clipped: regrets never fall below 0 (regret matching+).
      linear_regrets: iteration t counts t-fold in the regrets.
      linear_average: iteration t counts t-fold in the average strategy.
    """

    alternating: bool
    clipped: bool
    linear_regrets: bool
    linear_average: bool


VARIANTS = {
    "cfr": Variant(False, False, False, False),
    "cfr_plus": Variant(True, True, False, True),
    "lcfr": Variant(True, False, True, True),
}


def run_cfr(tree: GameTree, variant: str, iterations: int) -> np.ndarray:
    """The average strategy after full-width iterations; float64[histories, A].

    Raises:
      UserError: for a variant that is not in `VARIANTS`.
    """
    if variant not in VARIANTS:
        near = nearest(variant, VARIANTS)
        raise UserError(f"variant is {shown(variant)}; allowed: {', '.join(VARIANTS)}{near}")
    how = VARIANTS[variant]
    regrets = np.zeros(tree.histories.legal.shape)
    strategy = _regret_matching(regrets, tree.histories.legal)
    average = np.zeros_like(regrets)
    groups = [(player,) for player in PLAYERS] if how.alternating else [PLAYERS]
    for t in range(1, iterations + 1):
        for players in groups:
            # Both average what they play while their regrets of this iteration are taken.
            own = np.isin(tree.histories.player, players)[:, None]
            weight = t if how.linear_average else 1.0
            average += np.where(own, weight * own_reach(tree, strategy)[:, None] * strategy, 0.0)
            gained = sum(_instant_regrets(tree, strategy, player) for player in players)
            regrets += (t if how.linear_regrets else 1.0) * gained
            if how.clipped:
                regrets = np.maximum(regrets, 0.0)
            strategy = np.where(own, _regret_matching(regrets, tree.histories.legal), strategy)
    return _normalised(average, tree.histories.legal)


def _instant_regrets(tree: GameTree, strategy: np.ndarray, player: int) -> np.ndarray:
    """Counterfactual regrets of one player against the other's strategy; float64[histories, A]."""
    value, of_action = action_values(tree, strategy)
    own = tree.player == player
    sign = 1.0 if player == 0 else -1.0
    reach = sign * reach_probabilities(tree, strategy, player)[own]
    gains = reach[:, None] * (of_action[own] - value[own, None])
    regrets = sum_by_history(gains, tree.history[own], len(strategy))
    return np.where(tree.histories.legal, regrets, 0.0)


def _regret_matching(regrets: np.ndarray, legal: np.ndarray) -> np.ndarray:
    """Proportional to positive regrets, else uniform (Hart and Mas-Colell 2000)."""
    return _normalised(np.where(legal, np.maximum(regrets, 0.0), 0.0), legal)


def _normalised(weights: np.ndarray, legal: np.ndarray) -> np.ndarray:
    """Rows scaled to sum to 1; uniform over the legal actions where all are 0."""
    total = weights.sum(-1, keepdims=True)
    uniform = legal / legal.sum(-1, keepdims=True)
    return np.where(total > 0, weights / np.where(total > 0, total, 1.0), uniform)
