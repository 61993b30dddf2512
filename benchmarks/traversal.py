"""`python -m benchmarks.traversal`: nodes per second of lockstep traversal.

Sweeps batch widths and devices with the policy that training runs, and relates each rate to
the matrix products that the machine could do in the time.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from pydantic import Field

from benchmarks.fixtures import choosing_params, row_flops
from benchmarks.harness import (
    Measurement,
    Report,
    compile_ahead,
    device_meshes,
    measure_rates,
    parse_flags,
)
from benchmarks.limits import Limit, matmul_limit
from lostcities_jax.cli import Preset
from lostcities_jax.devices import memory_limit_bytes
from lostcities_jax.errors import run_command
from lostcities_jax.games.game import Game
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.networks import make_network
from lostcities_jax.rules import PRESETS
from lostcities_jax.settings import BatchWidth, Count, CountOrZero, Devices, Positive, Seed, checked
from lostcities_jax.solvers.opponents import SeatParams, traversal_policy
from lostcities_jax.traversal.lockstep import Seat, Summary, TraversalPolicy
from lostcities_jax.traversal.plan import Plan
from lostcities_jax.traversal.sharded import device_plan, sharded_traverse
from lostcities_jax.traversal.statistics import Statistics, tape_statistics
from lostcities_jax.traversal.tape import Tape, bytes_per_lane

NAME = "traversal"
_MEMORY_SHARE = 0.5  # of a device's memory, that a tape may take


@checked
@dataclasses.dataclass(frozen=True)
class Flags:
    """Nodes per second of lockstep traversal over batch widths and devices.

    Attributes:
      rules: rules of the game.
      network: mlp over flat features, or one network shared by all colours.
      hidden: units of a hidden layer.
      layers: hidden layers.
      widths: batch widths to sweep, lanes of all devices together.
      devices: device settings to sweep; none for one CPU device and one per core, or all GPUs.
      traversals_per_lane: traversals of a batch for each lane; few let the drained end weigh more.
      max_cycles: cycles after which a batch is cut off, so that wide ones end soon and fit; 0 for
        all that it takes. What is cut off has no drained end.
      epsilon: share of uniform exploration in the traverser's sampling policy.
      repeats: timed runs of each setting.
      seconds: time after which a setting gets no more runs.
      seed: seed of networks and games.
      store: append the records to benchmarks/results.
    """

    rules: Preset = "classic"
    network: Literal["mlp", "color_shared"] = "mlp"
    hidden: Count = 512
    layers: Count = 3
    widths: Annotated[tuple[BatchWidth, ...], Field(min_length=1)] = (64, 128, 256, 512, 1024, 2048)
    devices: tuple[Devices, ...] = ()
    traversals_per_lane: Count = 16
    max_cycles: CountOrZero = 0
    epsilon: Annotated[float, Field(gt=0, le=1)] = 0.3
    repeats: Count = 3
    seconds: Positive = 20.0
    seed: Seed = 0
    store: bool = False


@dataclasses.dataclass(frozen=True)
class _Setup:
    """What all settings share."""

    flags: Flags
    game: Game
    policy: TraversalPolicy
    seats: tuple[Seat, Seat]
    limit: Limit
    flops_per_row: float


def main(argv: Sequence[str]) -> None:
    """Runs the command; raises UserError for whatever the user can mend."""
    flags = parse_flags(Flags, argv, NAME)
    meshes = device_meshes(flags.devices)
    shape = f"{flags.network} {flags.hidden} x {flags.layers}"
    report = Report(
        NAME, f"lockstep traversal, {shape}, {flags.rules} rules", flags, argv, mark_best=True
    )
    setup = _setup(flags, meshes)
    for width in flags.widths:
        setup.limit.measure()
        for mesh in meshes:
            refusal = _refusal(setup.game, _plan(flags, width), mesh)
            if refusal:
                report.note(f"width {width} on {mesh.size} device(s) skipped: {refusal}")
            else:
                report.add(_measure(setup, width, mesh))
                setup.limit.measure()
    report.note(f"{setup.flops_per_row / 1e6:.3f} MFLOP a row")
    report.finish()


def _setup(flags: Flags, meshes: Sequence[Mesh]) -> _Setup:
    rules = PRESETS[flags.rules]
    game = lost_cities(rules)
    network = make_network(lost_cities(rules), flags.network, flags.hidden, flags.layers)
    params = [choosing_params(network, flags.seed + player) for player in (0, 1)]
    traverser, opponent = (SeatParams(one, jnp.asarray(False)) for one in params)
    return _Setup(
        flags=flags,
        game=game,
        policy=traversal_policy(network, "argmax"),
        seats=(
            Seat(traverser, jnp.float32(flags.epsilon), jnp.asarray(True)),
            Seat(opponent, jnp.float32(0), jnp.asarray(False)),
        ),
        limit=matmul_limit(meshes),
        flops_per_row=row_flops(game, network, params[0]),
    )


def _plan(flags: Flags, width: int) -> Plan:
    return Plan(width, width * flags.traversals_per_lane, tape_cycles=flags.max_cycles)


def _refusal(game: Game, plan: Plan, mesh: Mesh) -> str:
    """Why a width is not measured; empty if it is."""
    share = device_plan(plan, mesh.size)
    device = mesh.devices.flat[0]
    memory = memory_limit_bytes(device)
    tapes = mesh.size if device.platform == "cpu" else 1
    needed = tapes * share.width * bytes_per_lane(game, share.cycles(game))
    if memory is not None and needed > _MEMORY_SHARE * memory:
        return f"its tape takes {needed / 1e9:.1f} GB, more than half of {memory / 1e9:.1f} GB"
    return ""


def _measure(setup: _Setup, width: int, mesh: Mesh) -> Measurement:
    flags, plan = setup.flags, _plan(setup.flags, width)
    run = sharded_traverse(setup.game, (setup.policy, setup.policy), plan, mesh)
    key = jax.random.key(flags.seed)
    keys = [jax.random.fold_in(key, repeat) for repeat in range(flags.repeats + 1)]
    replicated = NamedSharding(mesh, PartitionSpec())
    seats, keys = jax.device_put((setup.seats, keys), replicated)
    compiled, compile_seconds = compile_ahead(run, seats, keys[0])

    def counts(tape: Tape, summary: Summary) -> Statistics:
        counted = tape_statistics(setup.game, plan.quota, tape, summary)
        # From the tape, since a summary knows of nothing that was cut off.
        return counted._replace(nodes=sum(row.live.sum() for row in tape.rows))

    count = jax.jit(counts)
    batches: list[Statistics] = []

    def nodes(result: tuple[Tape, Summary]) -> float:
        batches.append(jax.device_get(count(*result)))
        return float(batches[-1].nodes)

    rates = measure_rates(
        lambda repeat: compiled(seats, keys[repeat]), nodes, flags.repeats, flags.seconds
    )
    totals: Any = jax.tree.map(lambda *parts: sum(int(part.sum()) for part in parts), *batches)
    utilisation = totals.nodes / totals.rows
    return Measurement(
        settings={"width": width, "devices": mesh.size},
        unit="nodes/s",
        rates=rates,
        compile_seconds=compile_seconds,
        realised_batch=totals.nodes / totals.half_steps,
        utilisation=utilisation,
        per_item=setup.flops_per_row,
        limit=setup.limit,
        figures={
            "rows/s": sorted(rates)[len(rates) // 2] / utilisation,
            "GFLOP/row": setup.flops_per_row / 1e9,
            "games": plan.quota * len(batches) - totals.unfinished,
            "unfinished": totals.unfinished,
        },
    )


if __name__ == "__main__":
    sys.exit(run_command(main))
