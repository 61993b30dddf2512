"""`python -m benchmarks.search`: what search at play time gains, and what it costs.

The same agent with and without search plays the same deals, against an opponent and against
itself without search, for each number of sampled worlds.
"""

import dataclasses
import math
import sys
import time
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from benchmarks.harness import Measurement, Report, parse_flags
from lostcities_jax.cli import Preset
from lostcities_jax.compile_clock import CompileClock
from lostcities_jax.devices import select_devices
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.evaluation.agents import Agent, Mixture
from lostcities_jax.evaluation.loading import load_agents
from lostcities_jax.evaluation.matches import Z_95, MatchResult, play_pair
from lostcities_jax.evaluation.search import search_agent
from lostcities_jax.rules import PRESETS, Rules
from lostcities_jax.settings import (
    BatchWidth,
    CountOrZero,
    Games,
    LeastProbability,
    Opponent,
    SearchConfig,
    Seed,
    Weight,
    checked,
)

NAME = "search"


@checked
@dataclasses.dataclass(frozen=True)
class Flags:
    """Points and games that a search at play time gains, and its milliseconds a decision.

    Attributes:
      agent: who searches: a bot or a checkpoint.
      policy: strategy a checkpoint plays, greedily without search.
      opponent: bot to gain points against.
      rules: rules of matches between bots; a checkpoint brings its own.
      worlds: sampled worlds of a decision, each in turn.
      actions: likeliest legal actions that are tried.
      depth: own turns before the score as it stands; 0 for play to the end.
      margin: standard errors by which an action must beat the policy's own.
      play: whether rollouts are greedy or sampled.
      least_probability: of an action beside the most probable one, for it to be tried.
      games: games of a match, both seats of each deal.
      width: games, and rollouts, in lockstep.
      seed: seed of the deals, draws and worlds.
      store: append the records to benchmarks/results.
    """

    agent: Annotated[str, Field(min_length=1)] = "balanced"
    policy: Literal["average", "current"] = "current"
    opponent: Opponent = "aggressive"
    rules: Preset | None = None
    worlds: Annotated[tuple[Annotated[int, Field(ge=2, le=4096)], ...], Field(min_length=1)] = (
        16,
        64,
    )
    actions: Annotated[int, Field(ge=2, le=80)] = SearchConfig.actions
    depth: CountOrZero = SearchConfig.depth
    margin: Weight = SearchConfig.margin
    play: Literal["greedy", "sampled"] = SearchConfig.play
    least_probability: LeastProbability = SearchConfig.least_probability
    games: Games = 100
    width: BatchWidth = 1024
    seed: Seed = 0
    store: bool = False


def main(argv: Sequence[str]) -> None:
    """Runs the command; raises UserError for whatever the user can mend."""
    flags = parse_flags(Flags, argv, NAME)
    select_devices("auto")
    wanted = PRESETS[flags.rules] if flags.rules else None
    rules, (base, opponent) = load_agents((flags.agent, flags.opponent), flags.policy, wanted)
    if isinstance(base, Mixture) or isinstance(opponent, Mixture):
        raise UserError("a mixture of policies; allowed: a single policy")
    title = f"{base.name} with search, {flags.games} games a match"
    report = Report(NAME, title, flags, argv)
    plain = play_pair(
        rules, base, opponent, flags.games, flags.width, flags.seed, base.is_stochastic
    )
    for worlds in flags.worlds:
        report.add(_measure(flags, rules, base, opponent, plain, worlds))
    report.finish()


def _measure(
    flags: Flags, rules: Rules, base: Agent, opponent: Agent, plain: MatchResult, worlds: int
) -> Measurement:
    """Both matches with one number of worlds, and their decisions per second."""
    search = SearchConfig(
        worlds, flags.actions, flags.depth, flags.margin, flags.play, flags.least_probability
    )
    agent = search_agent(rules, base, search, flags.width, flags.seed)
    clock = CompileClock()
    results, rates = [], []
    for other in (opponent, base):
        started, compiled = time.perf_counter(), clock.seconds
        result = play_pair(rules, agent, other, flags.games, flags.width, flags.seed)
        seconds = time.perf_counter() - started - (clock.seconds - compiled)
        results.append(result)
        rates.append(result.decisions / seconds)
    against, itself = results
    milliseconds = 1000 / (sum(rates) / len(rates))
    points = against.score_difference - plain.score_difference
    low, high = _gain_interval(against, plain)
    return Measurement(
        settings={"worlds": worlds},
        unit="decisions/s",
        rates=rates,
        compile_seconds=clock.seconds,
        figures={
            "ms/decision": milliseconds,
            "points gained": points,
            "± (95 %)": Z_95 * _joint_error(against, plain),
            "win % gained": 100 * (against.win_rate - plain.win_rate),
            "low": 100 * low,
            "high": 100 * high,
            "points gained/ms": points / milliseconds,
            "points against itself": itself.score_difference,
            "± (95 %), itself": Z_95 * itself.score_difference_error,
            "win % against itself": 100 * itself.win_rate,
            "low, itself": 100 * itself.win_rate_low,
            "high, itself": 100 * itself.win_rate_high,
        },
    )


def _joint_error(one: MatchResult, other: MatchResult) -> float:
    """Standard error of a difference, as if the deals were not the same: too large, if anything."""
    return math.hypot(one.score_difference_error, other.score_difference_error)


def _gain_interval(one: MatchResult, other: MatchResult) -> tuple[float, float]:
    """95 % interval of a difference of rates from the intervals of both (Newcombe 1998, no. 10)."""
    gain = one.win_rate - other.win_rate
    below = math.hypot(one.win_rate - one.win_rate_low, other.win_rate_high - other.win_rate)
    above = math.hypot(one.win_rate_high - one.win_rate, other.win_rate - other.win_rate_low)
    return gain - below, gain + above


if __name__ == "__main__":
    sys.exit(run_command(main))
