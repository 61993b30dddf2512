"""`python -m benchmarks.faults`: a run that is killed again and again ends as one never stopped.

A small training run is killed with SIGKILL at random moments and resumed each time, until it has
been killed often enough and may finish. Exits with 1 if its metrics (but for times) or any array
of its last checkpoint differ in one bit from those of the same run left alone.
"""

import contextlib
import dataclasses
import multiprocessing
import os
import pathlib
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.harness import parse_flags
from lostcities_jax import checkpoint, train
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.settings import Count, Positive, Seed, checked
from lostcities_jax.tracking import LOG_FILE, METRICS_FILE, read_metrics

NAME = "faults"
_STARTUP_SHARE = 0.2  # of the kills, at any moment after the start of the process
_STARTED = ("training in", "resuming after")

# The smallest game, whose programs compile soonest, with everything that a checkpoint can hold.
CONFIG = """
game: kuhn
devices: cpu:1
network: {kind: mlp, hidden: 32, layers: 1}
traversal: {batch_width: 8, traversals: 16, opponent: league}
memory: {advantage_capacity: 700, strategy_capacity: 700}
learner: {batch_size: 32, advantage_steps: 5, strategy_steps: 5}
critic: {steps: 5, capacity: 500}
snapshots: {every: 3, slots: 4}
evaluation: {every: 50}
checkpoint: {every: 1, keep: 2}
"""


@checked
@dataclasses.dataclass(frozen=True)
class Flags:
    """Kills a run at random moments and compares its end with that of one left alone.

    Attributes:
      kills: how often.
      iterations: of the run.
      seconds: most that a process trains before it is killed.
      seed: seed of the run and of the moments.
    """

    kills: Count = 50
    iterations: Count = 400
    seconds: Positive = 2.0
    seed: Seed = 0


def main(argv: Sequence[str]) -> int:
    """Runs the command; raises UserError for whatever the user can mend."""
    flags = parse_flags(Flags, argv, NAME)
    with tempfile.TemporaryDirectory() as folder:
        whole, parts = pathlib.Path(folder) / "whole", pathlib.Path(folder) / "parts"
        finish(whole, flags)
        tally = kill_and_resume(parts, flags)
        found = differences(whole, parts)
    print(
        f"killed {flags.kills} times: {tally['in training']} in training, "
        f"{tally['in a save']} of them while a checkpoint was written, "
        f"{tally['starting']} while starting; {tally['repeated']} iterations were done again"
    )
    print("\n".join(found) or f"metrics and arrays of {flags.iterations} iterations: no difference")
    return 1 if found else 0


def kill_and_resume(folder: pathlib.Path, flags: Flags) -> dict[str, int]:
    """Trains a run to its end through `flags.kills` kills; counts where they struck.

    Raises:
      UserError: for a run that was finished before.
    """
    source = random.Random(flags.seed)
    tally: dict[str, int] = dict.fromkeys(("in training", "in a save", "starting", "repeated"), 0)
    for kill in range(flags.kills):
        starts = _starts(folder)
        process = _start(folder, flags)
        if source.random() >= _STARTUP_SHARE:
            while process.is_alive() and _starts(folder) == starts:
                time.sleep(0.01)
        process.join(source.uniform(0, flags.seconds))
        if not process.is_alive():
            raise UserError(
                f"iterations is {flags.iterations}, which were done after {kill} kills; "
                f"allowed: more"
            )
        process.kill()
        process.join()
        tally["in training" if _starts(folder) > starts else "starting"] += 1
        tally["in a save"] += any((folder / checkpoint.FOLDER).glob("*partial*"))
        tally["repeated"] += _repeated(folder)
    finish(folder, flags)
    return tally


def differences(one: pathlib.Path, other: pathlib.Path) -> list[str]:
    """What differs between two finished runs: metrics but for times, and arrays in any bit."""
    found = []
    rows, others = read_metrics(one), read_metrics(other)
    if len(rows) != len(others):
        found.append(f"{len(rows)} lines of metrics and {len(others)}")
    for left, right in zip(rows, others, strict=False):
        for key in sorted(left.keys() | right.keys()):
            if not is_time(key) and left.get(key) != right.get(key):
                found.append(f"iteration {left['iteration']}: {key}")
    arrays, other_arrays = _arrays(one), _arrays(other)
    if arrays.keys() != other_arrays.keys():
        found.append("the checkpoints hold other arrays")
    for name in sorted(arrays.keys() & other_arrays.keys()):
        if arrays[name] != other_arrays[name]:
            found.append(f"array {name}")
    return found


def is_time(metric: str) -> bool:
    """Whether a metric tells of the clock, which no two runs share."""
    return metric.startswith("time/") or metric.endswith("_per_second")


def _arrays(folder: pathlib.Path) -> dict[str, tuple[str, bytes]]:
    """Type, shape and bytes of every array of a run's newest checkpoint."""
    import jax
    import numpy as np
    import orbax.checkpoint as ocp

    found = {}
    path = checkpoint.resolve(folder)
    with ocp.StandardCheckpointer() as checkpointer:
        for item in ("policy", "training"):
            leaves = jax.tree_util.tree_flatten_with_path(checkpointer.restore(path / item))[0]
            for place, leaf in leaves:
                array = np.asarray(leaf)
                kind = f"{path.name} {array.dtype}{array.shape}"
                found[item + jax.tree_util.keystr(place)] = kind, array.tobytes()
    return found


def _starts(folder: pathlib.Path) -> int:
    """How many processes have begun to train in a run's folder."""
    log = folder / LOG_FILE
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return sum(text.count(line) for line in _STARTED)


def _repeated(folder: pathlib.Path) -> int:
    """Iterations with metrics that no checkpoint holds."""
    if not (folder / METRICS_FILE).exists():
        return 0
    rows = read_metrics(folder)
    return len(rows) - (checkpoint.latest(folder / checkpoint.FOLDER) or 0)


def _start(folder: pathlib.Path, flags: Flags) -> Any:
    """A process that begins or resumes the run; the imports are done, the rest is its own."""
    config = folder.with_suffix(".yaml")
    settings = {"seed": flags.seed, "iterations": flags.iterations}
    config.write_text("".join(f"{key}: {value}\n" for key, value in settings.items()) + CONFIG)
    argv = ["--config", str(config), "--run-dir", str(folder)]
    argv += ["--resume"] if (folder / "config.yaml").exists() else []
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["lostcities_jax.train", "orbax.checkpoint"])
    process = context.Process(target=_train, args=(argv,))
    process.start()
    return process


def _train(argv: list[str]) -> None:
    # What it says is in its log.
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        sys.exit(run_command(train.main, argv))


def finish(folder: pathlib.Path, flags: Flags) -> None:
    """Trains the run to its end in a process that is left alone.

    Raises:
      UserError: if it fails.
    """
    process = _start(folder, flags)
    process.join()
    if process.exitcode:
        raise UserError(f"the run in {folder} ended with exit code {process.exitcode}")


if __name__ == "__main__":
    sys.exit(run_command(main))
