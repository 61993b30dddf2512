"""Values, best responses and exploitability of strategies on a whole game tree, in float64.

Exploitability is NashConv / 2: what a best response wins beyond the value of the game, on
average over the seats (Lanctot et al. 2017, section 4; Timbers et al. 2022). Strategies are
tables float64[histories, A], see `tree`.
"""

from collections.abc import Sequence

import numpy as np

from lostcities_jax.exact.tree import NONE, GameTree

PLAYERS = (0, 1)


def reach_probabilities(tree: GameTree, table: np.ndarray, player: int) -> np.ndarray:
    """Probability of every node if `player` always moved towards it; float64[N].

    This is what weighs counterfactual values (Zinkevich et al. 2007, section 3).
    """
    mover = np.where(tree.parent == NONE, NONE, tree.player[tree.parent])
    moved = (mover != NONE) & (mover != player)
    of_action = table[tree.history[tree.parent], tree.action]
    reach = tree.chance * np.where(moved, of_action, 1.0)
    for level in tree.levels:
        parent = tree.parent[level]
        reach[level] *= np.where(parent == NONE, 1.0, reach[parent])
    return reach


def own_reach(tree: GameTree, table: np.ndarray) -> np.ndarray:
    """Probability that the player's own actions allow a history; float64[histories]."""
    histories = tree.histories
    first = histories.parent == NONE
    reach = np.where(first, 1.0, table[histories.parent, histories.action])
    for level in histories.levels:
        reach[level] *= np.where(first[level], 1.0, reach[histories.parent[level]])
    return reach


def action_values(tree: GameTree, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Player 0's expected payoff at every node, and after each of its actions.

    Returns:
      values float64[N] and action values float64[N, A], 0 for illegal actions and at ends.
    """
    value = tree.value.copy()
    of_action = np.zeros((len(value), table.shape[-1]))
    for level in reversed(tree.levels):
        decides = tree.player[level] != NONE
        strategy = table[tree.history[level]]
        value[level] += np.where(decides, (strategy * of_action[level]).sum(-1), 0.0)
        _hand_up(tree, level, value, of_action)
    return value, of_action


def expected_value(tree: GameTree, table: np.ndarray) -> float:
    """Player 0's expected payoff when both play the table."""
    value, _ = action_values(tree, table)
    return _at_roots(tree, value)


def best_response_value(tree: GameTree, table: np.ndarray, player: int) -> float:
    """A player's expected payoff from a best response, with perfect recall, to the table."""
    sign = 1.0 if player == 0 else -1.0
    reach = reach_probabilities(tree, table, player)
    value = sign * tree.value
    of_action = np.zeros((len(value), table.shape[-1]))
    for level, ids in zip(reversed(tree.levels), reversed(tree.histories.levels), strict=True):
        history, mover = tree.history[level], tree.player[level]
        strategy = table[history]
        if np.any(mover == player):
            own = mover == player
            weighted = (reach[level, None] * of_action[level])[own]
            total = sum_by_history(weighted, history[own] - ids.start, ids.stop - ids.start)
            best = np.where(tree.histories.legal[ids], total, -np.inf).argmax(-1)
            strategy[own] = np.eye(table.shape[-1])[best[history[own] - ids.start]]
        value[level] += np.where(mover != NONE, (strategy * of_action[level]).sum(-1), 0.0)
        _hand_up(tree, level, value, of_action)
    return _at_roots(tree, value)


def nash_conv(tree: GameTree, table: np.ndarray) -> float:
    """What both players together gain by best responses; 0 at an equilibrium only."""
    return sum(best_response_value(tree, table, player) for player in PLAYERS)


def exploitability(tree: GameTree, table: np.ndarray) -> float:
    """NashConv / 2."""
    return nash_conv(tree, table) / 2


def mix(
    tree: GameTree, tables: Sequence[np.ndarray], weights: Sequence[float] | np.ndarray
) -> np.ndarray:
    """The strategy of a player who draws one table for a whole game; float64[histories, A].

    By Kuhn's theorem this is the average weighted by own reach (Steinberger 2019, Single Deep
    CFR, section 4.1). Histories that no table reaches get the plain weighted average.
    """
    shares = np.asarray(weights, np.float64) / np.sum(weights)
    shape = tables[0].shape
    played, reached, plain = np.zeros(shape), np.zeros((shape[0], 1)), np.zeros(shape)
    for table, share in zip(tables, shares, strict=True):
        reach = share * own_reach(tree, table)[:, None]
        played += reach * table
        reached += reach
        plain += share * table
    return np.where(reached > 0, played / np.where(reached > 0, reached, 1.0), plain)


def sum_by_history(rows: np.ndarray, history: np.ndarray, count: int) -> np.ndarray:
    """Sums float64[n, A] over the rows of each history; float64[count, A]."""
    columns = [np.bincount(history, weights=column, minlength=count) for column in rows.T]
    return np.stack(columns, axis=-1)


def _hand_up(tree: GameTree, level: slice, value: np.ndarray, of_action: np.ndarray) -> None:
    """Writes the values of a level where its parents look for them."""
    below = tree.parent[level] != NONE
    of_action[tree.parent[level][below], tree.action[level][below]] = value[level][below]


def _at_roots(tree: GameTree, value: np.ndarray) -> float:
    roots = tree.parent == NONE
    return float((tree.chance[roots] * value[roots]).sum())
