"""`python -m benchmarks.host_transfers`: an iteration does no host work per sample.

Runs an iteration of each kind of Deep CFR at two sizes and counts what passes between host and
devices, and every function the host calls meanwhile. Exits with 1 if a count grows with the
size.
"""

import contextlib
import dataclasses
import gc
import itertools
import math
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from benchmarks.harness import Measurement, Report, device_meshes, parse_flags
from lostcities_jax.cli import Preset
from lostcities_jax.devices import one_process
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.networks import make_network
from lostcities_jax.rules import PRESETS
from lostcities_jax.settings import (
    BatchWidth,
    Config,
    Count,
    CriticConfig,
    Devices,
    LearnerConfig,
    MemoryConfig,
    NetworkConfig,
    Seed,
    TraversalConfig,
    checked,
)
from lostcities_jax.solvers.catalogue import make_solver
from lostcities_jax.solvers.solver import Solver

NAME = "host_transfers"
Accumulation = Literal["reservoir", "bootstrap"]
_ACCUMULATIONS: tuple[Accumulation, ...] = get_args(Accumulation)
_ITERATIONS = 4  # of which the first compiles; JAX's caches may fill in the next
_SLACK = 1.01  # of host calls: whether JAX finds shardings identical or equal changes a few
_TRANSFER = re.compile(
    r"(host-to-device|device-to-host|device-to-device) transfer:"
    r"(?: aval=ShapedArray\((\w+)\[([\d,]*)\])?"
)


@checked
@dataclasses.dataclass(frozen=True)
class Flags:
    """Host-device transfers and host calls of a training iteration at two sizes.

    Attributes:
      rules: rules of the game.
      width: lanes.
      traversals: traversals of a batch in the small iteration.
      steps: steps of each fit in the small iteration.
      factor: how many times larger the other iteration is, in both.
      devices: device settings to try; none for one CPU device and one per core, or all GPUs.
      seed: seed of the run.
      store: append the records to benchmarks/results.
    """

    rules: Preset = "classic"
    width: BatchWidth = 64
    traversals: Count = 128
    steps: Count = 50
    factor: Count = 4
    devices: tuple[Devices, ...] = ()
    seed: Seed = 0
    store: bool = False


def main(argv: Sequence[str]) -> int:
    """Runs the command; raises UserError for whatever the user can mend."""
    flags = parse_flags(Flags, argv, NAME)
    meshes = device_meshes(flags.devices)
    _check_that_guards_are_logged()
    report = Report(NAME, "one iteration", flags, argv)
    grown = []
    for mesh, accumulation in itertools.product(meshes, _ACCUMULATIONS):
        where = f"of {accumulation} on {mesh.size} device(s)"
        small, large = _measure(flags, mesh, accumulation)
        for counted in (small, large):
            report.add(counted)
        grown += [
            f"{name} {where}"
            for name in small.figures
            if name not in ("nodes", "MB between devices")
            and small.figures[name] != large.figures[name]
        ]
        if large.rate > _SLACK * small.rate:
            grown.append(f"host calls {where}")
    report.finish()
    report.note(f"grown with the samples: {', '.join(grown) or 'none of the counts'}")
    return 1 if grown else 0


def _measure(flags: Flags, mesh: Mesh, accumulation: Accumulation) -> list[Measurement]:
    """Counts of an iteration at both sizes: the leanest of several after the first.

    Both sizes compile before either is counted, so that both find JAX's caches alike.
    """
    runs = []
    for factor in (1, flags.factor):
        solver = _solver(flags, mesh, factor, accumulation)
        state, _ = solver.iterate(solver.init(), 1, _untimed)
        settings = {"accumulation": accumulation, "devices": mesh.size, "size": factor}
        runs.append((settings, solver, state))
    return [_leanest(*run) for run in runs]


def _leanest(settings: dict[str, Any], solver: Solver, state: Any) -> Measurement:
    measurements = []
    for iteration in range(2, _ITERATIONS + 1):
        lines: list[str] = []
        with _captured_stderr(lines), jax.transfer_guard("log_explicit"), _HostCalls() as host:
            state, report = jax.block_until_ready(solver.iterate(state, iteration, _untimed))
        nodes = sum(int(batch.nodes) for batch in report.statistics)
        measurements.append(_measurement(settings, nodes, lines, host))
    return min(measurements, key=lambda measured: measured.rate)


@contextlib.contextmanager
def _untimed(name: str, title: str) -> Iterator[None]:
    """A phase that nobody asks about."""
    del name, title
    yield


def _solver(flags: Flags, mesh: Mesh, factor: int, accumulation: Accumulation) -> Solver:
    config = Config(
        seed=flags.seed,
        iterations=_ITERATIONS,
        rules=PRESETS[flags.rules],
        network=NetworkConfig(hidden=16, layers=2),
        traversal=TraversalConfig(batch_width=flags.width, traversals=factor * flags.traversals),
        memory=MemoryConfig(advantage_capacity=50_000, strategy_capacity=50_000),
        critic=CriticConfig(steps=factor * flags.steps, capacity=50_000),
        learner=LearnerConfig(
            batch_size=64, advantage_steps=factor * flags.steps, accumulation=accumulation
        ),
    )
    game = lost_cities(config.rules)
    network = make_network(game, **dataclasses.asdict(config.network))
    return make_solver(config, game, network, one_process(mesh))


def _measurement(
    settings: dict[str, Any], nodes: int, lines: Sequence[str], host: "_HostCalls"
) -> Measurement:
    counts, sizes = _transfers(lines)
    return Measurement(
        settings=settings,
        unit="host calls",
        rates=[float(host.calls)],
        figures={
            "nodes": nodes,
            "to devices": counts["host-to-device"],
            # On a GPU the guards see each pull too; on a CPU only the calls do.
            "to the host": max(counts["device-to-host"], host.pulls),
            "bytes to the host": host.pulled_bytes,
            "between devices": counts["device-to-device"],
            "MB between devices": sizes["device-to-device"] / 1e6,
        },
    )


def _transfers(lines: Sequence[str]) -> tuple[Counter[str], Counter[str]]:
    """Number and known bytes of the logged transfers of each direction.

    JAX does not log the bytes of NumPy arguments of compiled functions, nor those of keys.
    """
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for line in lines:
        found = _TRANSFER.search(line)
        if found:
            direction, dtype, shape = found.groups()
            counts[direction] += 1
            with contextlib.suppress(TypeError):
                elements = math.prod(int(size) for size in (shape or "").split(",") if size)
                sizes[direction] += elements * np.dtype(dtype).itemsize if dtype else 0
    return counts, sizes


def _check_that_guards_are_logged() -> None:
    lines: list[str] = []
    with _captured_stderr(lines), jax.transfer_guard("log_explicit"):
        jnp.asarray(np.ones(1, np.float32))
    if not _transfers(lines)[0]:
        raise UserError("JAX logs no transfers; allowed: TF_CPP_MIN_LOG_LEVEL below 2, or unset")


class _HostCalls:
    """Counts every function that this thread calls, and arrays pulled to the host.

    On a CPU the guards do not see a device's memory read by the host, but a per-sample loop
    cannot help calling functions.
    """

    def __init__(self):
        self.calls = self.pulls = self.pulled_bytes = 0

    def __enter__(self) -> "_HostCalls":
        # Collections would call finalisers at times of their own.
        gc.collect()
        gc.disable()
        self._previous = sys.getprofile()
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._previous)
        gc.enable()

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        del argument
        if event not in ("call", "c_call"):
            return
        self.calls += 1
        if event == "call" and frame.f_code.co_qualname == "ArrayImpl._value":
            self.pulls += 1
            self.pulled_bytes += frame.f_locals["self"].nbytes


@contextlib.contextmanager
def _captured_stderr(lines: list[str]) -> Iterator[None]:
    """Appends what the process writes to its standard error, JAX's C++ included."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            lines += file.read().decode(errors="replace").splitlines()


if __name__ == "__main__":
    sys.exit(run_command(main))
