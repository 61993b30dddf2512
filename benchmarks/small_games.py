"""`python -m benchmarks.small_games`: how near an equilibrium the train command comes, and when.

Runs the shipped configs as anybody would, each in a process of its own, so that starting and
compiling count; then reads exact figures from the run's metrics.
"""

import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from benchmarks.harness import Measurement, Report, parse_flags
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.settings import CountOrZero, Positive, Seed, checked

NAME = "small_games"
_CONFIGS = pathlib.Path(__file__).parent.parent / "configs"
_SECTIONS = {
    "average network": "eval",
    "average of iterates": "eval_iterates",
}


@checked
@dataclasses.dataclass(frozen=True)
class Flags:
    """NashConv of the train command's policies in small games, with the seconds it took.

    Attributes:
      game: shipped config to run.
      samplings: ways to sample the traverser's actions.
      estimators: estimators of regrets, each with every sampling.
      seeds: seeds of the runs.
      iterations: iterations of a run; 0 for the config's own.
      timeout: seconds after which a run counts as failed.
      store: append the records to benchmarks/results.
    """

    game: Literal["kuhn", "leduc", "mini"] = "kuhn"
    samplings: Annotated[
        tuple[Literal["outcome", "external", "robust"], ...], Field(min_length=1)
    ] = ("external",)
    estimators: Annotated[
        tuple[Literal["outcome", "baseline", "critic"], ...], Field(min_length=1)
    ] = ("outcome",)
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (1, 2, 3)
    iterations: CountOrZero = 0
    timeout: Positive = 900.0
    store: bool = False


def main(argv: Sequence[str]) -> None:
    """Runs the command; raises UserError for whatever the user can mend."""
    flags = parse_flags(Flags, argv, NAME)
    report = Report(NAME, f"exact NashConv, {flags.game}", flags, argv)
    for sampling in flags.samplings:
        for estimator in flags.estimators:
            for seed in flags.seeds:
                report.add(_measure(flags, sampling, estimator, seed))
    report.finish()


def _measure(flags: Flags, sampling: str, estimator: str, seed: int) -> Measurement:
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        started = time.perf_counter()
        _train(flags, run, sampling, estimator, seed)
        seconds = time.perf_counter() - started
        lines = [json.loads(line) for line in (run / "metrics.jsonl").open(encoding="utf-8")]
    last = lines[-1]
    figures = {"seconds": seconds, "iterations": float(last["iteration"])}
    for name, section in _SECTIONS.items():
        figures[name] = last[f"{section}/exact/nash_conv"]
    figures["value"] = last["eval_iterates/exact/value"]
    figures["traversals/s"] = _traversals_per_second(lines)
    figures |= dict(_course(lines))
    return Measurement(
        settings={"sampling": sampling, "estimator": estimator, "seed": seed},
        unit="NashConv",
        rates=[min(figures[name] for name in _SECTIONS)],
        compile_seconds=sum(line["time/compile_seconds"] for line in lines),
        figures=figures,
    )


def _traversals_per_second(lines: list[dict[str, Any]]) -> float:
    """Median over the iterations, both players' batches, sampling alone."""
    rates = sorted(line["traversal/traversals_per_second"] for line in lines)
    return rates[len(rates) // 2]


def _course(lines: list[dict[str, Any]]) -> Iterator[tuple[str, float]]:
    """NashConv of the average of iterates at each evaluation."""
    for line in lines[:-1]:
        if "eval_iterates/exact/nash_conv" in line:
            yield f"at {line['iteration']}", line["eval_iterates/exact/nash_conv"]


def _train(flags: Flags, run: pathlib.Path, sampling: str, estimator: str, seed: int) -> None:
    command = [
        *(sys.executable, "-m", "lostcities_jax.train"),
        *("--config", str(_CONFIGS / f"{flags.game}.yaml")),
        *("--run-dir", str(run), "--seed", str(seed)),
        *("--traversal.sampling", sampling, "--traversal.estimator", estimator),
    ]
    if flags.iterations:
        command += ["--iterations", str(flags.iterations)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=flags.timeout)
    except subprocess.TimeoutExpired as error:
        raise UserError(f"timeout is {flags.timeout}, too short for a run") from error
    if done.returncode:
        raise UserError(f"a run failed: {(done.stderr.strip().splitlines() or ['no word'])[-1]}")


if __name__ == "__main__":
    sys.exit(run_command(main))
