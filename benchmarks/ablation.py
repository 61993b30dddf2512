"""`python -m benchmarks.ablation`: what each choice of a solver buys in the same time.

Every variant is the default configuration or that of the other solver, with a few other settings,
trained by the train command for as many minutes as every other, compiling included, at a constant
learning rate, since nobody knows beforehand how many iterations there will be. Then its strategies
meet three bots.
"""

import dataclasses
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from benchmarks.harness import Measurement, Report, parse_flags
from lostcities_jax.devices import select_devices
from lostcities_jax.errors import UserError, nearest, run_command, shown
from lostcities_jax.evaluation.agents import bot_agent
from lostcities_jax.evaluation.loading import load_policy
from lostcities_jax.evaluation.matches import play_pair
from lostcities_jax.rules import CLASSIC
from lostcities_jax.settings import Games, Seed, checked
from lostcities_jax.tracking import read_metrics

NAME = "ablation"
_RESERVOIR = {"learner.accumulation": "reservoir", "learner.target_scale": 30.0}
_ENTROPY = ("gradient.entropy", "gradient.final_entropy")  # held: a run of minutes has no last one
_GRADIENT = {"config": "policy_gradient"} | dict.fromkeys(_ENTROPY, 0.01)
_LEAGUE = {"traversal.opponent": "league", "snapshots.every": 5}
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "reservoir, critic": _RESERVOIR,
    "reservoir, baseline": _RESERVOIR | {"traversal.estimator": "baseline"},
    "reservoir, outcome": _RESERVOIR | {"traversal.estimator": "outcome"},
    "reservoir, critic, no weighting": _RESERVOIR | {"learner.weighting": "none"},
    "mlp 512x3": {"network.kind": "mlp", "network.hidden": 512},
    "color_shared 64x3": {"network.hidden": 64},
    "color_shared 128x4": {"network.hidden": 128, "network.layers": 4},
    "epsilon 0.005": {"traversal.epsilon": 0.005},
    "epsilon 0.1": {"traversal.epsilon": 0.1},
    "batches of 1024": {
        "learner.batch_size": 1024,
        "learner.advantage_steps": 100,
        "critic.steps": 120,
    },
    "horizon 10": {"learner.horizon": 10},
    "horizon 160": {"learner.horizon": 160},
    "trace 0.5": {"critic.trace": 0.5},
    "league": _LEAGUE,
    "utility win": {"utility.points": 0.0, "utility.win": 30.0},
    "utility mixed": {"utility.points": 0.5, "utility.win": 15.0},
    "policy gradient": _GRADIENT,
    "policy gradient, league": _GRADIENT | _LEAGUE,
    "policy gradient, batches of 1024": _GRADIENT
    | {"learner.batch_size": 1024, "gradient.steps": 150, "critic.steps": 120},
    "policy gradient, entropy 0.05": _GRADIENT | dict.fromkeys(_ENTROPY, 0.05),
    "policy gradient, utility win": _GRADIENT | {"utility.points": 0.0, "utility.win": 30.0},
}
OPPONENTS = ("discard-only", "expert")


@checked
@dataclasses.dataclass(frozen=True)
class Flags:
    """Strength after the same minutes of training, for variants of the default configuration.

    Attributes:
      variants: names of variants; all by default.
      seeds: seeds of the runs.
      minutes: of each run.
      games: games of each match, both seats of each deal.
      store: append the records to benchmarks/results.
    """

    variants: tuple[str, ...] = tuple(VARIANTS)
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (1, 2)
    minutes: Annotated[float, Field(gt=0)] = 4.0
    games: Games = 2000
    store: bool = False


def main(argv: Sequence[str]) -> None:
    """Runs the command; raises UserError for whatever the user can mend."""
    flags = parse_flags(Flags, argv, NAME)
    for name in flags.variants:
        if name not in VARIANTS:
            allowed = ", ".join(VARIANTS)
            raise UserError(
                f"variants has {shown(name)}; allowed: {allowed}{nearest(name, VARIANTS)}"
            )
    select_devices("auto")
    report = Report(NAME, f"points ahead of expert, {flags.minutes:g} minutes", flags, argv)
    for name in flags.variants:
        for seed in flags.seeds:
            report.add(_measure(flags, name, seed))
    report.finish()


def _measure(flags: Flags, name: str, seed: int) -> Measurement:
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        _train(flags, run, VARIANTS[name], seed)
        rows = read_metrics(run)
        figures: dict[str, float] = {
            "iterations": float(rows[-1]["iteration"]),
            "games": sum(sum(row["traversal/depth_histogram"]) for row in rows),
        }
        # A run that was stopped has not fitted its average strategy: the current one is met.
        agent = load_policy(str(run), "current")
        for opponent in OPPONENTS:
            bot = bot_agent(CLASSIC, opponent)
            result = play_pair(CLASSIC, agent, bot, flags.games, 512, seed, greedy=True)
            figures |= {
                f"{opponent}, win %": 100 * result.win_rate,
                f"{opponent}, points": result.score_difference,
                f"{opponent}, error": result.score_difference_error,
                f"{opponent}, off piles %": 100 * result.pile_draw_rate,
                f"{opponent}, timeouts %": 100 * result.timeout_rate,
            }
    return Measurement(
        settings={"variant": name, "seed": seed},
        unit="points ahead of expert",
        rates=[figures["expert, points"]],
        compile_seconds=sum(row["time/compile_seconds"] for row in rows),
        figures=figures,
    )


def _train(flags: Flags, run: pathlib.Path, settings: dict[str, Any], seed: int) -> None:
    command = [sys.executable, "-m", "lostcities_jax.train", "--run-dir", str(run)]
    command += ["--seed", str(seed), "--max-minutes", str(flags.minutes)]
    fixed = {
        "iterations": 100_000,
        "learner.final_rate": 1.0,
        "evaluation.every": 0,
        "checkpoint.every": 100_000,
    }
    for key, value in (fixed | settings).items():
        command += [f"--{key}", str(value)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"a run failed: {(done.stderr.strip().splitlines() or ['no word'])[-1]}")


if __name__ == "__main__":
    sys.exit(run_command(main))
