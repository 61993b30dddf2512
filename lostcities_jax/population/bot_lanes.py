"""Bots as lanes: many candidates play the same deals in one program, and are mutated."""

import functools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from lostcities_jax.bots import BOTS, BotParams, batched_bot_policy
from lostcities_jax.evaluation.agents import Agent
from lostcities_jax.evaluation.matches import GameFigures, both_seats, clustered_error
from lostcities_jax.population.evolution import Score
from lostcities_jax.rules import NUM_PLAYERS, Rules

MOST_TIMEOUTS = 0.05  # share of games; a bot that stalls until the turn limit is no player


def mutate_bot(bot: BotParams, random: np.random.Generator, spread: float = 0.2) -> BotParams:
    """A copy with a normal change of every number it judges by, of `spread` times its size or 0.5.

    What makes a bot random or idle is not changed.
    """
    changed = {
        name: np.float32(value + spread * max(abs(value), 0.5) * random.normal())
        for name, value in bot.judgement._asdict().items()
    }
    return bot._replace(judgement=bot.judgement._replace(**changed))


def measure_bots(
    rules: Rules,
    bots: Sequence[BotParams],
    opponents: Sequence[str],
    games: int,
    width: int,
    seed: int,
    mesh: Mesh | None = None,
) -> list[Score]:
    """Mean points of each bot against rule-based players, all on the same deals, in one batch.

    Args:
      rules: the rule set.
      bots: one for each lane.
      opponents: names in BOTS.
      games: of each lane with each opponent, even: both seats of every deal.
      width: games in lockstep of each lane.
      seed: seed of the deals and draws.
      mesh: the devices that each lane's games are divided among; JAX's default device without.
    """
    candidates = jax.tree.map(lambda *values: np.stack(values), *bots)
    played = [
        _play(rules, candidates, BOTS[name], games, width, mesh, jnp.int32(seed))
        for name in opponents
    ]
    figures: GameFigures = jax.tree.map(
        lambda *each: np.stack(each)[..., : games // NUM_PLAYERS], *jax.device_get(played)
    )
    points = np.asarray(figures.difference).mean((0, 2))  # lanes, deals
    timeouts = np.asarray(figures.is_timeout).mean((0, 2, 3))
    errors = clustered_error(points.T, points.shape[-1])
    return [
        Score(float(mean), float(error), _failure(float(mean), float(timeout)))
        for mean, error, timeout in zip(points.mean(-1), errors, timeouts, strict=True)
    ]


def _failure(points: float, timeouts: float) -> str | None:
    if not math.isfinite(points):
        return "its points are not finite"
    if timeouts > MOST_TIMEOUTS:
        return f"{100 * timeouts:.0f} % of its games reach the turn limit"
    return None


@functools.partial(jax.jit, static_argnums=(0, 3, 4, 5))
def _play(
    rules: Rules,
    candidates: BotParams,
    opponent: BotParams,
    games: int,
    width: int,
    mesh: Mesh | None,
    seed: jax.Array,
) -> GameFigures:
    """Games of every candidate; arrays [lanes, 2, deals], or more as of `both_seats`."""
    policy = batched_bot_policy(rules)
    deals = games // NUM_PLAYERS

    def play(candidate: BotParams) -> GameFigures:
        agent, other = (Agent("", policy, (params, params)) for params in (candidate, opponent))
        seats = both_seats(rules, agent, other, deals, 0, width, seed, (False, False), mesh)
        return jax.tree.map(lambda *each: jnp.stack(each), *seats)

    return jax.vmap(play)(candidates)
