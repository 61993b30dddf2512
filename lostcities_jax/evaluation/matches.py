"""Matches of Lost Cities between two agents: both seats of every deal, all games in lockstep."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lostcities_jax import engine
from lostcities_jax.evaluation.agents import Agent, Mixture
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.rollout import Match, Player, play_match, spread_match
from lostcities_jax.rules import CARD_PHASE, DRAW_PHASE, NUM_PLAYERS, Rules

MIXTURE_BLOCKS = 20  # parts of a match, for each of which a mixture draws one of its agents
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)  # of the points ahead in a match's games
Z_95 = 1.959963984540054  # normal quantile of a two-sided 95 % interval


@dataclasses.dataclass(frozen=True)
class MatchResult:
    """A match from the first agent's view; rates are shares of 1, lengths in plies.

    Attributes:
      opponent: the second agent's name.
      greedy: whether the first agent took its most probable actions.
      games: games played, half in each seat.
      win_rate: share of games won.
      win_rate_low: lower end of its 95 % interval (Wilson 1927), of a mixture's as if there
        were fewer games, as many as say as much when none shares its draw with another.
      win_rate_high: upper end.
      tie_rate: share of games drawn.
      score_difference: mean points ahead.
      score_difference_error: its standard error, over deals (both seats of a deal are one), or
        over the draws of a mixture's agents.
      score_quantiles: points ahead at each of QUANTILES of its games.
      timeout_rate: share of games ended by the turn limit.
      mean_plies: mean half-steps of a game.
      opened: expeditions the first agent opened in a game, on average.
      play_rate: share of its card turns in which it played instead of discarding.
      pile_draw_rate: share of its draws that came from a pile.
    """

    opponent: str
    greedy: bool
    games: int
    win_rate: float
    win_rate_low: float
    win_rate_high: float
    tie_rate: float
    score_difference: float
    score_difference_error: float
    score_quantiles: tuple[float, ...]
    timeout_rate: float
    mean_plies: float
    opened: float
    play_rate: float
    pile_draw_rate: float

    @property
    def decisions(self) -> float:
        """Decisions of the first agent in all games, which has half of them."""
        return self.games * self.mean_plies / NUM_PLAYERS

    def metrics(self, section: str) -> Mapping[str, Any]:
        """Its figures under `<section>/<opponent>/<greedy or sampled>/...`."""
        prefix = f"{section}/{self.opponent}/{'greedy' if self.greedy else 'sampled'}"
        figures = dataclasses.asdict(self)
        names = [name for name in figures if name not in ("opponent", "greedy")]
        return {f"{prefix}/{name}": figures[name] for name in names}


def evaluate(
    rules: Rules,
    agent: Agent | Mixture,
    opponents: Iterable[Agent | Mixture],
    games: int,
    width: int,
    seed: int,
    mesh: Mesh | None = None,
) -> Iterable[MatchResult]:
    """Yields the agent's matches against each opponent, greedy and then sampled.

    An agent without a choice between the two plays each match once. The arguments are those of
    `play_pair`.
    """
    for opponent in opponents:
        for greedy in (True, False) if agent.is_stochastic else (False,):
            yield play_pair(rules, agent, opponent, games, width, seed, greedy, mesh)


def play_pair(
    rules: Rules,
    agent: Agent | Mixture,
    opponent: Agent | Mixture,
    games: int,
    width: int,
    seed: int,
    greedy: bool = False,
    mesh: Mesh | None = None,
) -> MatchResult:
    """Plays `games` games: every deal twice, with the seats changed.

    Args:
      rules: the rule set.
      agent: whose figures are wanted.
      opponent: plays as it samples.
      games: an even number.
      width: lanes of all devices together. Deals and draws do not depend on it; what a policy
        makes of them does by its rounding, at most.
      seed: seed of deals and draws; the same seed gives every pair the same deals.
      greedy: whether `agent` takes its most probable actions.
      mesh: the devices that games are divided among, any number; they matter as little as the
        width. JAX's default device without one.
    """
    played = play_games(rules, agent, opponent, games, width, seed, (greedy, False), mesh)
    return _result(opponent.name, greedy, played, num_clusters((agent, opponent), games))


@dataclasses.dataclass(frozen=True)
class GameFigures:
    """Games from the first agent's view: its seat, then the deal. Arrays int32[2, deals].

    Attributes:
      difference: points ahead.
      is_timeout: whether the turn limit ended the game. bool[2, deals].
      turns: turns of both.
      opened: expeditions opened.
      plays: cards played.
      pile_draws: cards drawn from piles.
      own_turns: turns of its own.
    """

    difference: jax.Array | np.ndarray
    is_timeout: jax.Array | np.ndarray
    turns: jax.Array | np.ndarray
    opened: jax.Array | np.ndarray
    plays: jax.Array | np.ndarray
    pile_draws: jax.Array | np.ndarray
    own_turns: jax.Array | np.ndarray


jax.tree_util.register_dataclass(GameFigures)


def play_games(
    rules: Rules,
    agent: Agent | Mixture,
    opponent: Agent | Mixture,
    games: int,
    width: int,
    seed: int,
    greedy: tuple[bool, bool],
    mesh: Mesh | None = None,
) -> GameFigures:
    """Every game of a pair; the arguments are those of `play_pair`, `greedy` for each agent.

    A mixture draws one of its agents for each cluster of deals.
    """
    deals = games // NUM_PLAYERS
    is_drawn = isinstance(agent, Mixture) or isinstance(opponent, Mixture)
    starts = cluster_starts(deals, num_clusters((agent, opponent), games) if is_drawn else 1)
    sizes = np.diff(starts, append=deals)
    most = int(sizes.max())  # so that blocks of two sizes are one program
    ones, others = (
        _draw(player, len(starts), 2 * seed + n) for n, player in enumerate((agent, opponent))
    )
    blocks = []
    for one, other, start, size in zip(ones, others, starts.tolist(), sizes.tolist(), strict=True):
        seats = both_seats(rules, one, other, most, start, width, seed, greedy, mesh)
        whole = jax.tree.map(lambda *each: np.stack(each), *jax.device_get(seats))
        blocks.append(jax.tree.map(lambda figures, n=size: figures[:, :n], whole))
    return jax.tree.map(lambda *block: np.concatenate(block, axis=1), *blocks)


def num_clusters(agents: Sequence[Agent | Mixture], games: int) -> int:
    """Parts of a pair's games that do not depend on each other: deals, or those of one draw.

    With a mixture, MIXTURE_BLOCKS or, if they are fewer, the deals.

    Args:
      agents: all who play on these deals.
      games: an even number.
    """
    deals = games // NUM_PLAYERS
    return min(deals, MIXTURE_BLOCKS) if any(isinstance(a, Mixture) for a in agents) else deals


def cluster_starts(deals: int, clusters: int) -> np.ndarray:
    """The first deal of each cluster; sizes differ by one at most. int[clusters]."""
    return np.arange(clusters) * deals // clusters


def clustered_error(values: np.ndarray, clusters: int) -> np.ndarray:
    """Standard error of means over deals that depend on each other in clusters, in any way.

    A cluster counts by its deals, so that clusters may differ in size (Liang and Zeger 1986);
    for clusters of one deal it is the usual standard error.

    Args:
      values: of deals in order. float[deals, ...].
      clusters: as of `cluster_starts`.

    Returns:
      float[...]; NaN for one cluster.
    """
    deals = len(values)
    starts = cluster_starts(deals, clusters)
    totals = np.add.reduceat(values - values.mean(0), starts, axis=0)
    if clusters < 2:
        return np.full(totals.shape[1:], math.nan)
    return np.sqrt(clusters / (clusters - 1) * (totals**2).sum(0)) / deals


def _draw(agent: Agent | Mixture, blocks: int, seed: int) -> list[Agent]:
    """Who plays each block of deals."""
    return agent.draw(blocks, seed) if isinstance(agent, Mixture) else [agent] * blocks


def both_seats(
    rules: Rules,
    agent: Agent,
    opponent: Agent,
    deals: int,
    first: int,
    width: int,
    seed: int | jax.Array,
    greedy: tuple[bool, bool],
    mesh: Mesh | None = None,
) -> tuple[GameFigures, GameFigures]:
    """Plays deals `first` and on with the agent in seat 0, then in seat 1.

    May be traced, and batched over parameters of the agents.

    Returns:
      arrays [deals]; over a mesh maybe some more, that nobody played, to be cut off on the host.
    """
    inputs = (
        [Player(params, jnp.asarray(greedy[0])) for params in agent.params],
        [Player(params, jnp.asarray(greedy[1])) for params in opponent.params],
        jax.random.key(seed),
        jnp.int32(first),
    )
    if mesh is not None:
        inputs = jax.device_put(inputs, NamedSharding(mesh, PartitionSpec()))
    own, other, key, start = inputs
    pairs = (
        ((agent.policy, opponent.policy), (own[0], other[1])),
        ((opponent.policy, agent.policy), (other[0], own[1])),
    )
    first_seat, second_seat = (
        _play(
            rules,
            Match(policies, min(width, deals), deals, _is_marked(rules)),
            mesh,
            jnp.int32(seat),
            players,
            key,
            start,
        )
        for seat, (policies, players) in enumerate(pairs)
    )
    return first_seat, second_seat


@functools.cache
def _is_marked(rules: Rules) -> Callable[[int, jax.Array], jax.Array]:
    """Marks the actions to count: plays among card actions, piles among draws."""
    return lambda head, action: action < rules.hand if head == CARD_PHASE else action > 0


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _play(
    rules: Rules,
    match: Match,
    mesh: Mesh | None,
    seat: jax.Array,
    players: tuple[Player, Player],
    key: jax.Array,
    first: jax.Array,
) -> GameFigures:
    """Plays all deals with the agent in `seat`; arrays as of `both_seats`.

    The seat is traced: two agents of one policy function are one program in both.
    """
    game = lost_cities(rules)
    if mesh is None:
        played = play_match(game, match, players, key, first)
    else:
        played = spread_match(game, match, mesh, players, key, first)
    final = played.final
    scores = jax.vmap(functools.partial(engine.scores, rules))(final)
    heads = [(phase.player, phase.head) for phase in game.phases]
    card, draw = (
        jnp.array([heads.index((player, head)) for player in range(NUM_PLAYERS)])[seat]
        for head in (CARD_PHASE, DRAW_PHASE)
    )
    turns = final.turn.astype(jnp.int32)
    return GameFigures(
        difference=scores[:, seat] - scores[:, 1 - seat],
        is_timeout=jax.vmap(functools.partial(engine.is_timeout, rules))(final),
        turns=turns,
        opened=(final.expeditions[:, seat] > 0).sum(-1),
        plays=played.marks[:, card],
        pile_draws=played.marks[:, draw],
        own_turns=(turns + 1 - seat) // NUM_PLAYERS,
    )


def _result(opponent: str, greedy: bool, played: GameFigures, clusters: int) -> MatchResult:
    difference = np.asarray(played.difference, np.float64)
    games = difference.size
    is_won = difference > 0
    low, high = _rate_interval(is_won, clusters)
    own_turns = played.own_turns.sum()
    return MatchResult(
        opponent=opponent,
        greedy=greedy,
        games=games,
        win_rate=float(is_won.mean()),
        win_rate_low=low,
        win_rate_high=high,
        tie_rate=float((difference == 0).mean()),
        score_difference=float(difference.mean()),
        score_difference_error=float(clustered_error(difference.mean(0), clusters)),
        score_quantiles=tuple(np.quantile(difference, QUANTILES).tolist()),
        timeout_rate=float(played.is_timeout.mean()),
        mean_plies=float(played.turns.mean()) * 2,
        opened=float(played.opened.mean()),
        play_rate=float(played.plays.sum() / own_turns),
        pile_draw_rate=float(played.pile_draws.sum() / own_turns),
    )


def _rate_interval(is_won: np.ndarray, clusters: int) -> tuple[float, float]:
    """The 95 % interval of the share of games won; bool[2, deals].

    Games of one draw of a mixture are alike: all of them are taken for as many as would be
    independent and have the same error (Kish 1965, the effective size of a sample).
    """
    rate, games = float(is_won.mean()), float(is_won.size)
    if clusters < is_won.shape[1]:
        error = float(clustered_error(is_won.mean(0), clusters))
        games = min(games, rate * (1 - rate) / error**2) if error else games
    return wilson_interval(rate, games)


def wilson_interval(rate: float, trials: float) -> tuple[float, float]:
    """The 95 % interval of a rate (Wilson 1927), sound near 0 and 1 too."""
    z2 = Z_95**2
    centre = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
    spread = math.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials**2))
    half = Z_95 * spread / (1 + z2 / trials)
    return max(centre - half, 0.0), min(centre + half, 1.0)
