"""`python -m benchmarks.schedulers`: nodes per second and realised batch of every scheduler.

The same traversals with the same networks under each way to share the machine. Host
schedulers get few traversals, since they are slow; every one that is started is finished.
"""

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from benchmarks.fixtures import (
    NetworkShape,
    choosing_params,
    game_flops,
    make_network_of,
    network_players,
)
from benchmarks.harness import Measurement, Report, device_meshes, measure_rates, parse_flags
from benchmarks.limits import Limit, matmul_limit
from lostcities_jax.cli import Preset
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.rules import PRESETS
from lostcities_jax.schedulers import interleaved, recursive
from lostcities_jax.schedulers.answers import Answers, Calls
from lostcities_jax.schedulers.blueprint import Blueprint, ServedSeat, ServiceSettings
from lostcities_jax.schedulers.collected import Collected
from lostcities_jax.schedulers.service import InferenceService
from lostcities_jax.settings import BatchWidth, Count, Positive, Seed, checked
from lostcities_jax.solvers.opponents import SeatParams
from lostcities_jax.traversal.lockstep import Seat
from lostcities_jax.traversal.plan import Plan
from lostcities_jax.traversal.sharded import sharded_traverse
from lostcities_jax.traversal.statistics import tape_statistics

NAME = "schedulers"

# What a run counted: nodes, network calls, and the rows of those calls that decided something.
Run = Callable[[int], tuple[int, Calls]]


@checked
@dataclasses.dataclass(frozen=True)
class Flags:
    """Nodes per second and realised batch of each scheduler, outcome sampling.

    Attributes:
      rules: rules of the game.
      networks: sizes of the flat network, as units x layers.
      lanes: batch width of lockstep.
      traversals: of a lockstep run.
      host_traversals: of a run of the others.
      suspended: traversals of an interleaved process.
      workers: worker processes of the server.
      epsilon: share of uniform exploration in the traverser's sampling policy.
      repeats: timed runs of each setting.
      seconds: time after which a setting gets no more runs.
      seed: seed of networks and games.
      store: append the records to benchmarks/results.
    """

    rules: Preset = "classic"
    networks: tuple[str, ...] = ("512x3", "1024x6")
    lanes: BatchWidth = 1024
    traversals: Count = 8192
    host_traversals: Count = 128
    suspended: Count = 64
    workers: Count = 2
    epsilon: Positive = 0.3
    repeats: Count = 2
    seconds: Positive = 30.0
    seed: Seed = 0
    store: bool = False


def main(argv: Sequence[str]) -> None:
    """Runs the command; raises UserError for whatever the user can mend."""
    flags = parse_flags(Flags, argv, NAME)
    shapes = [_shape(flags, text) for text in flags.networks]
    mesh = device_meshes(())[-1]
    limit = matmul_limit([mesh])
    report = Report(NAME, f"schedulers, {flags.rules} rules, {mesh.size} devices", flags, argv)
    rows: list[tuple[str, str, Measurement]] = []
    for text, shape in zip(flags.networks, shapes, strict=True):
        for name, ways in _ways(flags, shape, mesh).items():
            limit.measure()
            with ways as run:
                measurement = _measure(flags, text, name, run, shape, limit)
            report.add(measurement)
            rows.append((text, name, measurement))
    limit.measure()
    for text in flags.networks:
        rates = {name: row.rate for size, name, row in rows if size == text}
        best = max(rate for name, rate in rates.items() if name.startswith("interleaved"))
        report.note(
            f"{text}: lockstep is {rates['lockstep'] / best:.1f} x interleaved and "
            f"{rates['lockstep'] / rates['recursive']:.1f} x recursive"
        )
    report.finish()


def _shape(flags: Flags, text: str) -> NetworkShape:
    units, cross, layers = text.partition("x")
    if not (cross and units.isdecimal() and layers.isdecimal() and int(units) and int(layers)):
        raise UserError(f"networks is {text!r}; allowed: units x layers, such as 512x3")
    return NetworkShape("mlp", int(units), int(layers), flags.seed)


def _measure(
    flags: Flags, text: str, name: str, run: Run, shape: NetworkShape, limit: Limit
) -> Measurement:
    totals = [0, 0, 0]

    def nodes(result: tuple[int, Calls]) -> float:
        for index, value in enumerate((result[0], *result[1])):
            totals[index] += value
        return float(result[0])

    started = time.perf_counter()
    run(0)  # compiles, and starts what there is to start
    compile_seconds = time.perf_counter() - started
    rates = measure_rates(lambda repeat: run(repeat + 1), nodes, flags.repeats, flags.seconds)
    all_nodes, calls, rows = totals
    return Measurement(
        settings={"network": text, "scheduler": name},
        unit="nodes/s",
        rates=rates,
        compile_seconds=compile_seconds,
        realised_batch=all_nodes / calls,
        utilisation=all_nodes / rows,
        per_item=game_flops(PRESETS[flags.rules], shape),
        limit=limit,
    )


def _ways(
    flags: Flags, shape: NetworkShape, mesh: Mesh
) -> dict[str, contextlib.AbstractContextManager[Run]]:
    """The schedulers by name, each to be entered for its time."""
    interleaved_name = f"interleaved, {flags.suspended}"
    return {
        "lockstep": _lockstep(flags, shape, mesh),
        "recursive": _in_process(flags, shape, recursive.run, max(flags.host_traversals // 16, 1)),
        interleaved_name: _in_process(flags, shape, interleaved.run, flags.host_traversals),
        f"server, {flags.workers} blocking": _server(flags, shape, 1),
        f"server, {flags.workers} of {flags.suspended}": _server(flags, shape, flags.suspended),
    }


def _seats(flags: Flags, shape: NetworkShape) -> tuple[Seat, Seat]:
    network = make_network_of(lost_cities(PRESETS[flags.rules]), shape)
    traverser, opponent = (
        SeatParams(choosing_params(network, flags.seed + player), jnp.asarray(False))
        for player in (0, 1)
    )
    return (
        Seat(traverser, jnp.float32(flags.epsilon), jnp.asarray(True)),
        Seat(opponent, jnp.float32(0), jnp.asarray(False)),
    )


@contextlib.contextmanager
def _lockstep(flags: Flags, shape: NetworkShape, mesh: Mesh) -> Iterator[Run]:
    game, plan = lost_cities(PRESETS[flags.rules]), Plan(flags.lanes, flags.traversals)
    policies = network_players(game, shape).policies
    program = sharded_traverse(game, policies, plan, mesh)
    count = jax.jit(lambda tape, summary: tape_statistics(game, plan.quota, tape, summary))
    seats = jax.device_put(_seats(flags, shape), NamedSharding(mesh, PartitionSpec()))

    def run(repeat: int) -> tuple[int, Calls]:
        counted = jax.device_get(count(*program(seats, jax.random.key(flags.seed + repeat))))
        return int(counted.nodes), Calls(int(counted.half_steps), int(counted.rows))

    yield run


@contextlib.contextmanager
def _in_process(
    flags: Flags, shape: NetworkShape, scheduler: Callable[..., Collected], traversals: int
) -> Iterator[Run]:
    game, plan = lost_cities(PRESETS[flags.rules]), Plan(flags.suspended, traversals)
    players, answers = network_players(game, shape), Answers(_seats(flags, shape))

    def run(repeat: int) -> tuple[int, Calls]:
        key = jax.random.key(flags.seed + repeat)
        return _counted(scheduler(game, players, plan, answers, key))

    yield run


@contextlib.contextmanager
def _server(flags: Flags, shape: NetworkShape, suspended: int) -> Iterator[Run]:
    rules = PRESETS[flags.rules]
    traversals = flags.host_traversals // (4 if suspended == 1 else 1)
    plan = Plan(suspended, max(traversals, flags.workers))
    blueprint = Blueprint("lost_cities", rules, plan, network_players, shape)
    sizes = ServiceSettings(
        workers=flags.workers, traversals=suspended, slots=flags.workers * suspended
    )
    first, second = _seats(flags, shape)
    served = (ServedSeat("0", flags.epsilon, True), ServedSeat("1", 0.0, False))
    with InferenceService(blueprint, sizes) as service:
        service.push_weights({"0": first.params, "1": second.params})

        def run(repeat: int) -> tuple[int, Calls]:
            return _counted(service.run(served, jax.random.key(flags.seed + repeat)))

        yield run


def _counted(collected: Collected) -> tuple[int, Calls]:
    return len(collected.player), collected.calls


if __name__ == "__main__":
    sys.exit(run_command(main))
