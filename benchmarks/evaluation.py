"""`python -m benchmarks.evaluation`: games per second of matches.

One pair of rule-based players, and a network against one of them, as training evaluates
its policies.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Literal

from jax.sharding import Mesh

from benchmarks.fixtures import choosing_params, row_flops
from benchmarks.harness import Measurement, Report, device_meshes, measure_rates, parse_flags
from benchmarks.limits import matmul_limit
from lostcities_jax.cli import Preset
from lostcities_jax.compile_clock import CompileClock
from lostcities_jax.errors import run_command
from lostcities_jax.evaluation.agents import Agent, average_agent, bot_agent
from lostcities_jax.evaluation.matches import MatchResult, play_pair
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.networks import make_network
from lostcities_jax.rules import PRESETS, Rules
from lostcities_jax.settings import BatchWidth, Count, Games, Opponent, Positive, Seed, checked

NAME = "evaluation"


@checked
@dataclasses.dataclass(frozen=True)
class Flags:
    """Games per second between two bots, and of a network against a bot, on one device and all.

    Attributes:
      rules: rules of the game.
      network: mlp over flat features, or one network shared by all colours.
      hidden: units of a hidden layer.
      layers: hidden layers.
      bot: player that both matches are with.
      opponent: the bot it meets in the first one.
      games: games of a match, both seats of each deal.
      width: games played in lockstep, on all devices together.
      repeats: timed matches of each pair.
      seconds: time after which a pair gets no more matches.
      seed: seed of the deals and draws.
      store: append the records to benchmarks/results.
    """

    rules: Preset = "classic"
    network: Literal["mlp", "color_shared"] = "color_shared"
    hidden: Count = 64
    layers: Count = 3
    bot: Opponent = "balanced"
    opponent: Opponent = "cautious"
    games: Games = 2000
    width: BatchWidth = 1024
    repeats: Count = 3
    seconds: Positive = 20.0
    seed: Seed = 0
    store: bool = False


def main(argv: Sequence[str]) -> None:
    """Runs the command; raises UserError for whatever the user can mend."""
    flags = parse_flags(Flags, argv, NAME)
    meshes = device_meshes(())
    limit = matmul_limit(meshes)
    rules = PRESETS[flags.rules]
    network = make_network(lost_cities(rules), flags.network, flags.hidden, flags.layers)
    params = choosing_params(network, flags.seed)
    flops = row_flops(lost_cities(rules), network, params)
    bot = bot_agent(rules, flags.bot)
    report = Report(NAME, f"matches of {flags.games} games, {flags.rules} rules", flags, argv)
    other, trained = bot_agent(rules, flags.opponent), average_agent("network", network, params)
    clock = CompileClock()
    for mesh in meshes:
        limit.measure()
        report.add(_measure(rules, flags, mesh, clock, other, bot)[0])
        limit.measure()
        played, plies = _measure(rules, flags, mesh, clock, trained, bot)
        # The network decides half the plies of a game.
        report.add(dataclasses.replace(played, per_item=plies / 2 * flops, limit=limit))
    limit.measure()
    report.finish()


def _measure(
    rules: Rules, flags: Flags, mesh: Mesh, clock: CompileClock, first: Agent, second: Agent
) -> tuple[Measurement, float]:
    """Games per second of a pair, and the mean plies of a game."""
    lengths: list[float] = []

    def run(repeat: int) -> MatchResult:
        seed = flags.seed + repeat
        return play_pair(rules, first, second, flags.games, flags.width, seed, mesh=mesh)

    def games(result: MatchResult) -> float:
        lengths.append(result.mean_plies)
        return float(result.games)

    before = clock.seconds
    run(0)
    compile_seconds = clock.seconds - before
    rates = measure_rates(run, games, flags.repeats, flags.seconds)
    where = "" if mesh.size == 1 else f", {mesh.size} devices"
    plies = sum(lengths) / len(lengths)
    measured = Measurement(
        settings={
            "pair": f"{first.name} - {second.name}{where}",
            "width": flags.width,
            "devices": mesh.size,
        },
        unit="games/s",
        rates=rates,
        compile_seconds=compile_seconds,
        figures={"plies/game": plies, "plies/s": plies * sorted(rates)[len(rates) // 2]},
    )
    return measured, plies


if __name__ == "__main__":
    sys.exit(run_command(main))
