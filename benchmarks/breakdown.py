"""`python -m benchmarks.breakdown`: where the time of a lockstep cycle goes.

Times each piece of a cycle alone at full width, inside a compiled loop, and sets the sum
against a cycle of the real traversal. The pieces fuse with each other there, so the sum is
a guide to what is worth optimising and no exact account.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp

from benchmarks.harness import (
    Measurement,
    Report,
    compile_ahead,
    device_meshes,
    iterated,
    looped,
    measure_rates,
    parse_flags,
)
from benchmarks.pieces import Piece, Shape, make_pieces, make_seats
from lostcities_jax.cli import Preset
from lostcities_jax.errors import run_command
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.rules import PRESETS
from lostcities_jax.settings import BatchWidth, Count, Positive, Seed, checked
from lostcities_jax.solvers.opponents import traversal_policy
from lostcities_jax.traversal.lockstep import Seat, traverse
from lostcities_jax.traversal.plan import Plan
from lostcities_jax.traversal.tape import Tape

NAME = "breakdown"


@checked
@dataclasses.dataclass(frozen=True)
class Flags:
    """Microseconds of each piece of a lockstep cycle at full width, on one device.

    Attributes:
      rules: rules of the game.
      network: mlp over flat features, or one network shared by all colours.
      hidden: units of a hidden layer.
      layers: hidden layers.
      width: lanes.
      turns: times a piece is done in one run.
      traversals_per_lane: traversals of the real batch for each lane.
      repeats: timed runs of each piece.
      seconds: time after which a piece gets no more runs.
      seed: seed of networks and games.
      store: append the records to benchmarks/results.
    """

    rules: Preset = "classic"
    network: Literal["mlp", "color_shared"] = "mlp"
    hidden: Count = 512
    layers: Count = 3
    width: BatchWidth = 512
    turns: Count = 100
    traversals_per_lane: Count = 4
    repeats: Count = 5
    seconds: Positive = 10.0
    seed: Seed = 0
    store: bool = False


def main(argv: Sequence[str]) -> None:
    """Runs the command; raises UserError for whatever the user can mend."""
    flags = parse_flags(Flags, argv, NAME)
    device_meshes(())
    network = f"{flags.network} {flags.hidden} x {flags.layers}"
    report = Report(NAME, f"a cycle of {flags.width} lanes, {network}", flags, argv)
    shape = Shape(
        rules=PRESETS[flags.rules],
        kind=flags.network,
        hidden=flags.hidden,
        layers=flags.layers,
        width=flags.width,
        quota=flags.width * flags.traversals_per_lane,
        seed=flags.seed,
    )
    whole, compile_seconds = _whole_cycle(shape, flags)
    parts: dict[str, list[list[float]]] = {}
    for piece in make_pieces(shape):
        parts.setdefault(piece.name, []).append(_piece_seconds(piece, flags))
    total = 0.0
    for name, phases in parts.items():
        seconds = [sum(times, 0.0) for times in zip(*phases, strict=False)]
        total += min(seconds)
        report.add(_row(name, seconds, whole))
    report.add(_row("sum of the pieces", [total], whole))
    report.add(_row("whole cycle", whole, whole, compile_seconds))
    report.finish()


def _row(
    name: str, seconds: list[float], whole: list[float], compile_seconds: float | None = None
) -> Measurement:
    # The best of the repeats on both sides: what other processes add belongs to no piece.
    best = min(seconds)
    return Measurement(
        settings={"piece": name},
        unit="cycles/s",
        rates=[1 / each for each in seconds],
        compile_seconds=compile_seconds,
        figures={"us/cycle": 1e6 * best, "share": best / min(whole)},
    )


def _piece_seconds(piece: Piece, flags: Flags) -> list[float]:
    """Seconds that a cycle spends on a piece, in each repeat."""
    repeated = (iterated if piece.carries else looped)(piece.function, flags.turns)
    donated = (0,) if piece.carries else ()
    compiled, _ = compile_ahead(repeated, *piece.args, donate_argnums=donated)
    held = [jax.tree.map(jnp.copy, piece.args[0])]  # a buffer can be donated only once

    def run(_: int) -> Any:
        result = compiled(held[0], *piece.args[1:])
        if piece.carries:
            held[0] = result
        return result

    rates = measure_rates(run, lambda _: float(flags.turns), flags.repeats, flags.seconds)
    return [piece.per_cycle / rate for rate in rates]


def _whole_cycle(shape: Shape, flags: Flags) -> tuple[list[float], float]:
    """Seconds of a cycle of the real traversal in each repeat, and of compiling it."""
    game = lost_cities(shape.rules)
    policy = traversal_policy(shape.network, "argmax")
    plan = Plan(shape.width, shape.quota)
    seats = make_seats(shape)
    key = jax.random.key(shape.seed)
    keys = [jax.random.fold_in(key, repeat) for repeat in range(flags.repeats + 1)]

    def run(seats: tuple[Seat, Seat], key: jax.Array) -> Tape:
        first, count = jnp.int32(0), jnp.int32(plan.quota)
        return traverse(game, (policy, policy), plan, seats, key, first, count)[0]

    compiled, compile_seconds = compile_ahead(run, seats, keys[0])
    rates = measure_rates(
        lambda repeat: compiled(seats, keys[repeat]),
        lambda tape: float(tape.length),
        flags.repeats,
        flags.seconds,
    )
    return [1 / rate for rate in rates], compile_seconds


if __name__ == "__main__":
    sys.exit(run_command(main))
