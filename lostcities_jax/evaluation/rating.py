"""Ratings from a round robin: every pair of agents on the same deals, and one strength for each.

Bradley and Terry (1952): i beats j with probability `e^s_i / (e^s_i + e^s_j)`; a tie counts
half a win for each. On Elo's scale a strength of 1 is 400 / log(10) points.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jax.sharding import Mesh

from lostcities_jax.errors import UserError
from lostcities_jax.evaluation.agents import Agent, Mixture
from lostcities_jax.evaluation.matches import (
    MIXTURE_BLOCKS,
    Z_95,
    clustered_error,
    num_clusters,
    play_games,
)
from lostcities_jax.rollout import Policy
from lostcities_jax.rules import NUM_PLAYERS, Rules

ANCHOR = "random"
ELO = 400 / math.log(10)
_MIN_CLUSTERS = 10
_TOLERANCE = 1e-6  # of strengths; a Newton step below it leaves far less


@dataclasses.dataclass(frozen=True)
class Rating:
    """An agent in the table of a round robin.

    Attributes:
      agent: its name.
      rating: strength in Elo points above the bot `random`, or above the mean without it.
      rating_low: lower end of its 95 % interval.
      rating_high: upper end.
      lead: points ahead of the next agent in the table; None for the last.
      lead_error: half the width of its 95 % interval. The anchor's own error is in every
        rating's interval but in no lead.
      games: games played.
      win_share: share of them won, ties half.
      points: mean points ahead in a game.
      points_error: its standard error, over clusters of games.
      timeout_rate: share of games ended by the turn limit.
    """

    agent: str
    rating: float
    rating_low: float
    rating_high: float
    lead: float | None
    lead_error: float | None
    games: int
    win_share: float
    points: float
    points_error: float
    timeout_rate: float


class Standings(NamedTuple):
    """The outcome of a round robin.

    Attributes:
      ratings: the agents, best first.
      points: mean points in a game by which the agent of a row leads that of a column, in
        the order of `ratings`; NaN for an agent and itself. float[N, N].
    """

    ratings: tuple[Rating, ...]
    points: np.ndarray


class Meeting(NamedTuple):
    """The games of a pair, by cluster: games of one deal, or of one draw of mixtures' agents.

    Attributes:
      first: index of the first agent.
      second: index of the second.
      wins: share of games that the first won, ties half. float[clusters].
      points: mean points it was ahead. float[clusters].
      timeouts: share of games ended by the turn limit.
    """

    first: int
    second: int
    wins: np.ndarray
    points: np.ndarray
    timeouts: float


def play_round_robin(
    rules: Rules,
    agents: Sequence[Agent | Mixture],
    games: int,
    width: int,
    seed: int,
    greedy: bool,
    mesh: Mesh | None = None,
) -> Iterator[Meeting]:
    """Yields the games of every pair, each on the same deals and in both seats.

    Args:
      rules: the rule set.
      agents: of different names; their order does not matter.
      games: games of a pair, even.
      width: lanes of all devices together. Deals and draws do not depend on it; what a policy
        makes of them does by its rounding, at most.
      seed: seed of deals and draws.
      greedy: whether agents that have the choice take their most probable actions.
      mesh: the devices that games are divided among, any number; they matter as little as the
        width. JAX's default device without one.

    Raises:
      UserError: for fewer than two agents, or games that do not make enough clusters.
    """
    if len(agents) < 2:
        raise UserError(f"the number of agents is {len(agents)}; allowed: at least 2")
    clusters = _equal_clusters(agents, games)
    for first, second in _pairs(agents):
        one, other = agents[first], agents[second]
        is_greedy = (greedy and one.is_stochastic, greedy and other.is_stochastic)
        played = play_games(rules, one, other, games, width, seed, is_greedy, mesh)
        difference = np.asarray(played.difference)
        wins, points = (
            figures.reshape(NUM_PLAYERS, clusters, -1).mean((0, 2))
            for figures in ((np.sign(difference) + 1) / 2, difference)
        )
        yield Meeting(first, second, wins, points, float(played.is_timeout.mean()))


def rate(names: Sequence[str], meetings: Sequence[Meeting], games: int) -> Standings:
    """The table of a round robin.

    Args:
      names: the agents' names.
      meetings: one for each pair of them.
      games: games of each.
    """
    tally = _tally(len(names), meetings)
    clusters, agents = tally.wins.shape
    share, opponents = games / clusters, agents - 1
    strengths, covariance = fit_strengths(share * tally.wins, share)
    order: list[int] = np.argsort(-strengths, kind="stable").tolist()
    each = np.eye(agents)
    anchor = each[names.index(ANCHOR)] if ANCHOR in names else each.mean(0)
    ratings, errors = _elo(each - anchor, strengths, covariance, clusters)
    ranked = each[order]
    leads, lead_errors = _elo(ranked[:-1] - ranked[1:], strengths, covariance, clusters)
    points_errors = clustered_error(tally.points, clusters)
    table = tuple(
        Rating(
            agent=names[index],
            rating=float(ratings[index]),
            rating_low=float(ratings[index] - errors[index]),
            rating_high=float(ratings[index] + errors[index]),
            lead=float(leads[place]) if place < opponents else None,
            lead_error=float(lead_errors[place]) if place < opponents else None,
            games=games * opponents,
            win_share=float(tally.wins[:, index].mean() / opponents),
            points=float(tally.points[:, index].mean() / opponents),
            points_error=float(points_errors[index] / opponents),
            timeout_rate=float(tally.timeouts[index] / opponents),
        )
        for place, index in enumerate(order)
    )
    return Standings(table, tally.cross[np.ix_(order, order)])


def fit_strengths(wins: np.ndarray, games: float) -> tuple[np.ndarray, np.ndarray]:
    """Bradley-Terry strengths and their covariance, sound for games that depend on each other.

    The likelihood alone has no finite maximum if some agents won every game against the
    rest (Hunter 2004, assumption 1). So each agent also has a drawn game against a virtual
    agent of strength 0 (after Mease 2003, whose teams have a win and a loss against one):
    the maximum is finite and unique, and strengths have 0 in their middle.

    Games of one cluster may depend on each other in any way, so the covariance is a
    sandwich over clusters (Liang and Zeger 1986). The square of what the virtual games shift
    is part of it: otherwise an agent that never lost would seem to be known well. With it,
    the lower end of that agent's interval is about the exact one (Clopper and Pearson 1934).
    Intervals that rest on one or two games won or lost cover less than their 95 %.

    Args:
      wins: wins of each agent against all others in each cluster, ties half. float[clusters, N].
      games: games of each pair in a cluster.

    Returns:
      Strengths float[N] and their covariance float[N, N].
    """
    clusters, agents = wins.shape
    strengths, step = np.zeros(agents), np.full(agents, math.inf)
    while np.abs(step).max() > _TOLERANCE:
        chance = _logistic(strengths[:, None] - strengths) * (1 - np.eye(agents))
        virtual = _logistic(strengths)
        shift = 0.5 - virtual
        weights = clusters * games * chance * (1 - chance)
        own = weights.sum(1) + virtual * (1 - virtual)
        bread = np.linalg.inv(np.diag(own) - weights)
        residuals = wins - games * chance.sum(1)
        step = bread @ (residuals.sum(0) + shift)
        # So long as no difference moves by more than 1, a step always gains likelihood: the
        # curvature changes by less than a factor of e on the way (Bach 2010).
        strengths = strengths + step / max(1.0, np.ptp(np.append(step, 0)))
    meat = clusters / (clusters - 1) * residuals.T @ residuals + np.outer(shift, shift)
    return strengths, bread @ meat @ bread


def t_quantile_95(degrees: int) -> float:
    """Two-sided 95 % quantile of Student's t, to 0.001 from 9 degrees on.

    Abramowitz and Stegun (1964), 26.7.5.
    """
    z = Z_95
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / degrees**power for power, term in enumerate(terms, 1))


class _Tally(NamedTuple):
    """Sums over the opponents of each agent.

    Attributes:
      wins: shares of games won, by cluster. float[clusters, N].
      points: mean points ahead, by cluster. float[clusters, N].
      timeouts: shares of games ended by the turn limit. float[N].
      cross: mean points ahead of each opponent, no sum. float[N, N].
    """

    wins: np.ndarray
    points: np.ndarray
    timeouts: np.ndarray
    cross: np.ndarray


def _tally(agents: int, meetings: Sequence[Meeting]) -> _Tally:
    clusters = len(meetings[0].wins)
    wins, points = np.zeros((clusters, agents)), np.zeros((clusters, agents))
    timeouts, cross = np.zeros(agents), np.full((agents, agents), math.nan)
    for first, second, won, ahead, timed_out in meetings:
        wins[:, [first, second]] += np.stack([won, 1 - won], axis=1)
        points[:, [first, second]] += np.stack([ahead, -ahead], axis=1)
        timeouts[[first, second]] += timed_out
        cross[first, second], cross[second, first] = ahead.mean(), -ahead.mean()
    return _Tally(wins, points, timeouts, cross)


def _elo(
    contrasts: np.ndarray, strengths: np.ndarray, covariance: np.ndarray, clusters: int
) -> tuple[np.ndarray, np.ndarray]:
    """Values of contrasts in Elo points, and half the widths of their 95 % intervals.

    Of t with the clusters less one as degrees of freedom (Cameron and Miller 2015).
    """
    variances = np.einsum("ki,ij,kj->k", contrasts, covariance, contrasts)
    variances = np.maximum(variances, 0)  # of equals, rounding leaves less than nothing
    half_widths = t_quantile_95(clusters - 1) * np.sqrt(variances)
    return ELO * contrasts @ strengths, ELO * half_widths


def _logistic(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _equal_clusters(agents: Sequence[Agent | Mixture], games: int) -> int:
    """Independent parts of each pair's games, as `num_clusters`, enough of them and equal."""
    clusters, multiple = num_clusters(agents, games), NUM_PLAYERS * MIXTURE_BLOCKS
    if any(isinstance(agent, Mixture) for agent in agents) and games % multiple:
        raise UserError(
            f"games is {games}; allowed with a draw of iterates: a multiple of {multiple}"
        )
    if clusters < _MIN_CLUSTERS:
        raise UserError(f"games is {games}; allowed: at least {NUM_PLAYERS * _MIN_CLUSTERS}")
    return clusters


def _pairs(agents: Sequence[Agent | Mixture]) -> Iterator[tuple[int, int]]:
    """Indices of the pairs, two policy functions always in the same order: so each two of
    them are compiled once, whatever the order and number of agents."""
    by_name = sorted(range(len(agents)), key=lambda index: agents[index].name)
    policies = list(dict.fromkeys(_policy_of(agents[index]) for index in by_name))
    by_policy = sorted(by_name, key=lambda index: policies.index(_policy_of(agents[index])))
    return itertools.combinations(by_policy, 2)


def _policy_of(agent: Agent | Mixture) -> Policy:
    return agent.agents[0].policy if isinstance(agent, Mixture) else agent.policy
