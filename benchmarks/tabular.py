"""`python -m benchmarks.tabular`: the lockstep machine with a table in place of a network.

Monte Carlo CFR with external sampling on a small game: nodes per second, and how near an
equilibrium the average strategy has come by then.
"""

import dataclasses
import sys
import time
from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp

from benchmarks.harness import Measurement, Report, compile_ahead, parse_flags
from lostcities_jax.devices import select_devices
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.exact.best_response import expected_value, nash_conv
from lostcities_jax.exact.tree import build_tree
from lostcities_jax.games.catalogue import make_game
from lostcities_jax.rules import MINI
from lostcities_jax.settings import BatchWidth, Count, CountOrZero, Seed, checked
from lostcities_jax.solvers import tabular
from lostcities_jax.traversal.plan import Plan

NAME = "tabular"


@checked
@dataclasses.dataclass(frozen=True)
class Flags:
    """Nodes per second and NashConv of tabular MCCFR on one device.

    Attributes:
      game: the game; lost_cities is its MINI rule set.
      width: lanes.
      traversals: traversals of a player in an iteration.
      branches: legal actions of the traverser that are followed; many for all.
      tape_cycles: cycles of tape; 0 for an estimate that always suffices.
      iterations: iterations between two rows.
      rows: rows to measure.
      seed: seed of the deals and draws.
      store: append the records to benchmarks/results.
    """

    game: Literal["kuhn", "leduc", "lost_cities"] = "leduc"
    width: BatchWidth = 1024
    traversals: Count = 8192
    branches: Count = 64
    tape_cycles: CountOrZero = 400
    iterations: Count = 20
    rows: Count = 5
    seed: Seed = 0
    store: bool = False


def main(argv: Sequence[str]) -> None:
    """Runs the command; raises UserError for whatever the user can mend."""
    flags = parse_flags(Flags, argv, NAME)
    select_devices("auto")
    game = make_game(flags.game, MINI)
    tree = build_tree(game)
    plan = Plan(
        flags.width, flags.traversals, branches=flags.branches, tape_cycles=flags.tape_cycles
    )
    report = Report(NAME, f"tabular MCCFR, {game.name}", flags, argv)
    tables, key = tabular.init(tree), jax.random.key(flags.seed)
    run = tabular.make_iterations(game, tree, plan, flags.iterations)
    compiled, compile_seconds = compile_ahead(run, tables, jnp.int32(1), key)
    spent = 0.0
    for row in range(flags.rows):
        first = 1 + row * flags.iterations
        started = time.perf_counter()
        tables, counters = jax.block_until_ready(compiled(tables, jnp.int32(first), key))
        seconds = time.perf_counter() - started
        spent += seconds
        nodes, lost = (int(count) for count in counters)
        if lost:
            raise UserError(f"tape_cycles is {flags.tape_cycles}, too few; allowed: more, or 0")
        table = tabular.average_strategy(tree, tables)[tree.histories.info]
        report.add(
            Measurement(
                settings={"game": flags.game, "iterations": first + flags.iterations - 1},
                unit="nodes/s",
                rates=[nodes / seconds],
                compile_seconds=compile_seconds,
                figures={
                    "seconds": spent,
                    "traversals/s": 2 * flags.iterations * flags.traversals / seconds,
                    "NashConv": nash_conv(tree, table),
                    "value": expected_value(tree, table),
                },
            )
        )
    report.finish()


if __name__ == "__main__":
    sys.exit(run_command(main))
