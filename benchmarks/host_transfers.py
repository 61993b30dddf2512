"""`python -m benchmarks.host_transfers`: an iteration does no host work per sample.

Runs the steps of a Deep CFR iteration at two sizes and counts what passes between host and
devices, and every function the host calls meanwhile. Exits with 1 if a count grows with the
size.
"""

import contextlib
import dataclasses
import gc
import math
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from benchmarks.harness import Measurement, Report, device_meshes, parse_flags
from lostcities_jax import memory
from lostcities_jax.cli import Preset
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
from lostcities_jax.solvers.deep_cfr import DeepCfr, DeepCfrState, make_deep_cfr

NAME = "host_transfers"
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
      traversals: traversals of each player in the small iteration.
      steps: learner steps of each player in the small iteration.
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
    report = Report(NAME, "one iteration, both players", flags, argv)
    grown = []
    for mesh in meshes:
        small, large = _measure(flags, mesh)
        for counted in (small, large):
            report.add(counted)
        grown += [
            f"{name} on {mesh.size} device(s)"
            for name in small.figures
            if name not in ("samples", "MB between devices")
            and small.figures[name] != large.figures[name]
        ]
        if large.rate > _SLACK * small.rate:
            grown.append(f"host calls on {mesh.size} device(s)")
    report.finish()
    report.note(f"grown with the samples: {', '.join(grown) or 'none of the counts'}")
    return 1 if grown else 0


def _measure(flags: Flags, mesh: Mesh) -> list[Measurement]:
    """Counts of an iteration at both sizes: the leanest of several after the first.

    Both sizes compile before either is counted, so that both find JAX's caches alike.
    """
    runs = []
    for factor in (1, flags.factor):
        solver = _solver(flags, mesh, factor)
        # Arrays that are not bound to their device from the start would be compiled for twice.
        state = jax.device_put(solver.init(), mesh.devices.flat[0])
        runs.append((factor, solver, jax.block_until_ready(_iterate(solver, state, 1))))
    return [_leanest(mesh, *run) for run in runs]


def _leanest(mesh: Mesh, factor: int, solver: DeepCfr, state: DeepCfrState) -> Measurement:
    measurements = []
    for iteration in range(2, _ITERATIONS + 1):
        before = _samples_seen(state)
        lines: list[str] = []
        with _captured_stderr(lines), jax.transfer_guard("log_explicit"), _HostCalls() as host:
            state = jax.block_until_ready(_iterate(solver, state, iteration))
        samples = _samples_seen(state) - before
        measurements.append(_measurement(mesh, factor, samples, lines, host))
    return min(measurements, key=lambda measured: measured.rate)


def _solver(flags: Flags, mesh: Mesh, factor: int) -> DeepCfr:
    config = Config(
        seed=flags.seed,
        iterations=_ITERATIONS,
        rules=PRESETS[flags.rules],
        network=NetworkConfig(hidden=16, layers=2),
        traversal=TraversalConfig(batch_width=flags.width, traversals=factor * flags.traversals),
        memory=MemoryConfig(advantage_capacity=50_000, strategy_capacity=50_000),
        critic=CriticConfig(steps=factor * flags.steps, capacity=50_000),
        learner=LearnerConfig(batch_size=64, advantage_steps=factor * flags.steps),
    )
    game = lost_cities(config.rules)
    network = make_network(game, **dataclasses.asdict(config.network))
    return make_deep_cfr(config, game, network, mesh)


def _measurement(
    mesh: Mesh, factor: int, samples: int, lines: Sequence[str], host: "_HostCalls"
) -> Measurement:
    counts, sizes = _transfers(lines)
    return Measurement(
        settings={"devices": mesh.size, "size": factor},
        unit="host calls",
        rates=[float(host.calls)],
        figures={
            "samples": samples,
            "to devices": counts["host-to-device"],
            # On a GPU the guards see each pull too; on a CPU only the calls do.
            "to the host": max(counts["device-to-host"], host.pulls),
            "bytes to the host": host.pulled_bytes,
            "between devices": counts["device-to-device"],
            "MB between devices": sizes["device-to-device"] / 1e6,
        },
    )


def _iterate(solver: DeepCfr, state: DeepCfrState, iteration: int) -> DeepCfrState:
    """The steps of training that touch samples, as the train command takes them."""
    for player in (0, 1):
        batch = solver.traverse(state, player, iteration)
        state = solver.remember(state, player, iteration, batch)
        state, _ = solver.fit_advantage(state, player, iteration)
        state, _ = solver.fit_critic(state, player, iteration)
    return state


def _samples_seen(state: DeepCfrState) -> int:
    memories: list[memory.Memory] = [*state.advantage_memories, state.strategy_memory]
    return sum(int(reservoir.seen[0]) for reservoir in memories)


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
