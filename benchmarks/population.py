"""`python -m benchmarks.population`: what a population costs beside runs one after another.

The same variants are trained as lanes at several limits in flight, compiling anew each time, and
a few of them by the train command, each in a process of its own. Then lanes play a bot, on shared
deals and each on its own, for how well their differences are known.
"""

import dataclasses
import itertools
import math
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import jax
import numpy as np
from pydantic import Field

from benchmarks.harness import Measurement, Report, parse_flags
from lostcities_jax.compile_clock import CompileClock
from lostcities_jax.config import with_values
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.evaluation.agents import bot_agent
from lostcities_jax.evaluation.loading import agent_of
from lostcities_jax.evaluation.matches import play_games
from lostcities_jax.population.flight import Batch, Outcome
from lostcities_jax.population.revisions import Registry
from lostcities_jax.population.training import train_population
from lostcities_jax.population.variants import differences
from lostcities_jax.run_state import metadata_of
from lostcities_jax.settings import Config, Count, CountOrZero, Games, checked

NAME = "population"


@checked
@dataclasses.dataclass(frozen=True)
class Flags:
    """Seconds of a population over limits in flight, and of runs one after another.

    Attributes:
      lanes: variants, all of different seeds and learning rates.
      limits: lanes in flight, each in turn.
      iterations: of every lane.
      runs: runs of the train command to time; the first compiles, the others find its programs.
      games: of each lane with the bot, for the error of differences; both seats of each deal.
      compared: lanes that play them.
      hidden: units of a layer of the network.
      traversals: games of an iteration.
      store: append the records to benchmarks/results.
    """

    lanes: Count = 32
    limits: Annotated[tuple[Count, ...], Field(min_length=1)] = (1, 2, 4, 8, 16, 32)
    iterations: Count = 2
    runs: CountOrZero = 2
    games: Games = 400
    compared: Annotated[int, Field(ge=2)] = 4
    hidden: Count = 96
    traversals: Count = 512
    store: bool = False


def main(argv: Sequence[str]) -> None:
    """Runs the command; raises UserError for whatever the user can mend."""
    flags = parse_flags(Flags, argv, NAME)
    variants = _variants(flags)
    report = Report(NAME, "Populations", flags, argv)
    separate = _separate_runs(variants, flags, report)
    # A population that found its programs in a cache would look cheaper than it is.
    jax.config.update("jax_enable_compilation_cache", False)
    base, outcomes = None, []
    for limit in flags.limits:
        measured, outcomes = _measure(variants, limit, base, separate)
        base = base or measured.rate
        report.add(measured)
    _compare_deals(
        [one for one in outcomes if one.policy is not None][: flags.compared], flags, report
    )
    report.finish()


def _variants(flags: Flags) -> list[Config]:
    """Distinct variants of the default configuration."""
    base = with_values(
        Config(),
        {
            "iterations": flags.iterations,
            "network.hidden": flags.hidden,
            "traversal.traversals": flags.traversals,
            "traversal.batch_width": min(Config().traversal.batch_width, flags.traversals),
            "evaluation.every": 0,
            "evaluation.opponents": [],
            "checkpoint.every": flags.iterations,
        },
    )
    variants = [
        with_values(base, {"seed": lane, "learner.learning_rate": 1.5e-3 * 0.97**lane})
        for lane in range(flags.lanes)
    ]
    if len(set(variants)) != len(variants):
        raise UserError(f"lanes is {flags.lanes}, of which some are equal; allowed: fewer")
    above = [limit for limit in flags.limits if limit > len(variants)]
    if above:
        raise UserError(f"limits has {above[0]}; allowed: at most the {len(variants)} lanes")
    return variants


class Cost(NamedTuple):
    """Seconds on the clock, and of all cores together."""

    wall: float
    cpu: float


_NOTHING = Cost(0.0, 0.0)


def _cost_since(start: Cost = _NOTHING) -> Cost:
    """What this process and those it started have taken since then."""
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(use.ru_utime + use.ru_stime for use in uses)
    return Cost(time.perf_counter() - start.wall, cpu - start.cpu)


def _separate_runs(variants: Sequence[Config], flags: Flags, report: Report) -> list[Cost]:
    """The first variants as runs of the train command, each its own process."""
    costs = []
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("JAX_COMP")
        } | {"XDG_CACHE_HOME": folder}
        for place, variant in enumerate(variants[: flags.runs]):
            flagged = differences([Config(), variant])
            values = [f"--{key}={own[1]}" for key, own in flagged.items() if own[1] != ()]
            values += ["--evaluation.opponents", "--run-dir", f"{folder}/run{place}"]
            start = _cost_since()
            subprocess.run(
                [sys.executable, "-m", "lostcities_jax.train", *values],
                env=environment,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            costs.append(_cost_since(start))
            kind = "with compiling" if place == 0 else "programs in the cache"
            report.note(
                f"run {place} of the train command, {kind}: {costs[-1].wall:.1f} s, "
                f"{costs[-1].cpu:.1f} s of all cores"
            )
    return costs


def _measure(
    variants: Sequence[Config], limit: int, base: float | None, separate: Sequence[Cost]
) -> tuple[Measurement, list[Outcome]]:
    """Trains and registers all variants at one limit; also returns what became of the lanes."""
    batches: list[Batch] = []
    with tempfile.TemporaryDirectory() as folder:
        registry = Registry(pathlib.Path(folder))

        def keep(outcome: Outcome) -> None:
            assert outcome.policy is not None
            metadata = metadata_of(outcome.config, outcome.policy)
            registry.register(outcome.policy, metadata, outcome.config, outcome.metrics)

        clock, start = CompileClock(), _cost_since()
        outcomes = train_population(variants, limit, keep=keep, note=batches.append)
        cost = _cost_since(start)
        assert len(registry.ids()) == len(variants)
    iterations = sum(batch.iterations for batch in batches)
    rate = iterations / cost.wall
    figures = {
        "wall s": cost.wall,
        "cpu s": cost.cpu,
        "lane s": sum(outcome.seconds for outcome in outcomes),
        "serial s": sum(batch.serial_seconds for batch in batches),
        "gain": rate / (base or rate),
    }
    if separate:
        cold, *warm = separate
        for name, later in (("cold", cold), ("warm", warm[-1] if warm else cold)):
            all_runs = Cost(
                *(c + (len(variants) - 1) * w for c, w in zip(cold, later, strict=True))
            )
            figures[f"of {name} runs"] = cost.wall / all_runs.wall
            figures[f"cpu of {name} runs"] = cost.cpu / all_runs.cpu
    settings = {"lanes": len(variants), "limit": limit}
    return Measurement(settings, "iterations/s", [rate], clock.seconds, figures=figures), outcomes


def _compare_deals(outcomes: Sequence[Outcome], flags: Flags, report: Report) -> None:
    """Says how well the differences of lanes are known with and without shared deals."""
    rules = outcomes[0].config.rules
    bot = bot_agent(rules, "balanced")
    for is_shared in (True, False):
        points = []
        for place, outcome in enumerate(outcomes):
            assert outcome.policy is not None
            metadata = metadata_of(outcome.config, outcome.policy)
            agent = agent_of(str(outcome.lane), metadata, outcome.policy, "current")
            seed = 0 if is_shared else place
            played = play_games(rules, agent, bot, flags.games, 256, seed, (True, False))
            points.append(np.asarray(played.difference).mean(0))
        errors = [
            (one - other).std(ddof=1) / math.sqrt(len(one))
            for one, other in itertools.combinations(points, 2)
        ]
        deals = "shared deals" if is_shared else "deals of their own"
        report.note(
            f"{len(outcomes)} lanes on {deals}: a difference of two is known to "
            f"±{np.mean(errors):.2f} points a game after {flags.games} games"
        )


if __name__ == "__main__":
    sys.exit(run_command(main))
