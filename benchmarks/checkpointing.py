"""`python -m benchmarks.checkpointing`: how much of its time a run spends on its checkpoints.

Iterations of the default configuration, in turn without a checkpoint, with one written while the
next iterations run, and with one that is waited for. Exits with 1 if checkpoints as often as the
configuration has them take more than 5 % of the time.
"""

import contextlib
import dataclasses
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

from benchmarks.harness import Measurement, Report, parse_flags
from lostcities_jax import checkpoint
from lostcities_jax.cli import Preset
from lostcities_jax.config import with_values
from lostcities_jax.devices import one_process, select_devices
from lostcities_jax.errors import run_command
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.networks import make_network
from lostcities_jax.rules import PRESETS
from lostcities_jax.run_state import Saver
from lostcities_jax.settings import Config, Count, checked
from lostcities_jax.solvers.catalogue import make_solver

NAME = "checkpointing"
MOST_PERCENT = 5.0
_KINDS = ("none", "written meanwhile", "waited for")


@checked
@dataclasses.dataclass(frozen=True)
class Flags:
    """Seconds of an iteration with and without a checkpoint.

    Attributes:
      rules: rules of the game.
      warmup: iterations before the first measured one, which also fill the memories.
      rounds: measured iterations of each kind.
      traversals: traversals of an iteration.
      hidden: units of a hidden layer.
      every: iterations between the checkpoints of a run.
      store: append the records to benchmarks/results.
    """

    rules: Preset = "classic"
    warmup: Count = 12
    rounds: Count = 6
    traversals: Count = Config().traversal.traversals
    hidden: Count = Config().network.hidden
    every: Count = Config().checkpoint.every
    store: bool = False


def main(argv: Sequence[str]) -> int:
    """Runs the command; raises UserError for whatever the user can mend."""
    flags = parse_flags(Flags, argv, NAME)
    report = Report(NAME, "iterations with and without a checkpoint", flags, argv)
    with tempfile.TemporaryDirectory() as folder:
        seconds, blocked, size = _measure(flags, pathlib.Path(folder))
    plain = statistics.median(seconds[_KINDS[0]])
    for kind in _KINDS:
        lost = statistics.median(seconds[kind]) - plain
        figures = {
            "s/iteration": statistics.median(seconds[kind]),
            "blocked ms": 1000 * statistics.median(blocked[kind]),
            "blocked % of iteration": 100 * statistics.median(blocked[kind]) / plain,
            "slower % of iteration": 100 * lost / plain,
            "slower % of run": 100 * lost / (flags.every * plain),
            "MB": size / 1e6,
        }
        rates = [1 / each for each in seconds[kind]]
        report.add(Measurement({"checkpoint": kind}, "iterations/s", rates, figures=figures))
    report.finish()
    share = 100 * (statistics.median(seconds[_KINDS[1]]) - plain) / (flags.every * plain)
    fits = share <= MOST_PERCENT
    report.note(
        f"a checkpoint every {flags.every} iterations slows a run by {share:.2f} %: "
        f"{'at most' if fits else 'MORE than'} {MOST_PERCENT:g} %"
    )
    return 0 if fits else 1


def _measure(
    flags: Flags, folder: pathlib.Path
) -> tuple[dict[str, list[float]], dict[str, list[float]], int]:
    """Seconds of iterations, those the run was blocked for, by kind; bytes of a checkpoint."""
    changed = {"traversal.traversals": flags.traversals, "network.hidden": flags.hidden}
    config = with_values(Config(rules=PRESETS[flags.rules]), changed)
    game = lost_cities(config.rules)
    network = make_network(game, **dataclasses.asdict(config.network))
    solver = make_solver(config, game, network, one_process(select_devices(config.devices)))
    state = solver.init()
    seconds: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    blocked: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    # A checkpoint is written within the iteration after it, so that one is what is timed.
    with contextlib.ExitStack() as at_exit:
        at_exit.callback(solver.close)
        saver = at_exit.enter_context(Saver(config, folder, solver, print))
        for iteration in range(1, flags.warmup + len(_KINDS) * flags.rounds + 1):
            kind = _KINDS[iteration % len(_KINDS)]
            saver.finish()
            started = time.perf_counter()
            if kind != _KINDS[0]:
                saver.save(state, iteration)
            if kind == _KINDS[2]:
                saver.finish()
            asked = time.perf_counter()
            state, _ = solver.iterate(state, iteration, _untimed)
            if iteration > flags.warmup:
                seconds[kind].append(time.perf_counter() - started)
                blocked[kind].append(asked - started)
    newest = checkpoint.resolve(folder)
    size = sum(path.stat().st_size for path in newest.rglob("*") if path.is_file())
    return seconds, blocked, size


@contextlib.contextmanager
def _untimed(_name: str, _title: str) -> Iterator[None]:
    yield


if __name__ == "__main__":
    sys.exit(run_command(main))
