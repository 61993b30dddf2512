"""`python -m benchmarks.precision`: what bfloat16 arithmetic in the traversals does to the targets.

The strategies of a network in both precisions at the same info states of random games, and the
regrets that the values of a critic give with each: a critic's own values stay in float32.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp

from benchmarks.fixtures import choosing_params, positions
from benchmarks.harness import (
    Measurement,
    Report,
    compile_ahead,
    device_meshes,
    looped,
    measure_rates,
    parse_flags,
)
from lostcities_jax.cli import Preset
from lostcities_jax.errors import run_command
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.networks import make_network
from lostcities_jax.rules import PRESETS
from lostcities_jax.settings import BatchWidth, Count, Positive, Seed, checked
from lostcities_jax.solvers.opponents import SeatParams, traversal_policy

NAME = "precision"


@checked
@dataclasses.dataclass(frozen=True)
class Flags:
    """Policy rows per second in float32 and bfloat16, and how strategies and regrets differ.

    Attributes:
      rules: rules of the game.
      network: mlp over flat features, or one network shared by all colours.
      hidden: units of a hidden layer.
      layers: hidden layers.
      width: info states.
      turns: policy calls of a run.
      repeats: timed runs.
      seconds: time after which there are no more runs.
      seed: seed of networks and games.
      store: append the records to benchmarks/results.
    """

    rules: Preset = "classic"
    network: Literal["mlp", "color_shared"] = "mlp"
    hidden: Count = 512
    layers: Count = 3
    width: BatchWidth = 1024
    turns: Count = 20
    repeats: Count = 3
    seconds: Positive = 10.0
    seed: Seed = 0
    store: bool = False


def main(argv: Sequence[str]) -> None:
    """Runs the command; raises UserError for whatever the user can mend."""
    flags = parse_flags(Flags, argv, NAME)
    device_meshes(())
    shape = f"{flags.network} {flags.hidden} x {flags.layers}"
    report = Report(NAME, f"precision of the traversals, {shape}", flags, argv)
    exact, row = _measure(flags, "float32")
    report.add(row)
    lowered, row = _measure(flags, "bfloat16")
    report.add(dataclasses.replace(row, figures=_differences(flags, exact, lowered)))
    report.finish()


def _measure(flags: Flags, precision: str) -> tuple[jax.Array, Measurement]:
    """The strategies of one precision at card decisions, float32[B, A], and their rate."""
    game = lost_cities(PRESETS[flags.rules])
    network = make_network(game, flags.network, flags.hidden, flags.layers, precision)
    policy, at = traversal_policy(network, "argmax"), positions(game, flags.width, flags.seed)[0]
    params = SeatParams(choosing_params(network, flags.seed), jnp.asarray(False))

    def strategies(params: SeatParams, info: jax.Array, legal: jax.Array) -> jax.Array:
        return policy(params, info, legal, game.phases[0].head)[0]

    compiled, compile_seconds = compile_ahead(
        looped(strategies, flags.turns), params, at.info, at.legal
    )
    rates = measure_rates(
        lambda _: compiled(params, at.info, at.legal),
        lambda _: float(flags.turns * flags.width),
        flags.repeats,
        flags.seconds,
    )
    row = Measurement(
        settings={"precision": precision},
        unit="rows/s",
        rates=rates,
        compile_seconds=compile_seconds,
    )
    return compiled(params, at.info, at.legal), row


def _differences(flags: Flags, exact: jax.Array, found: jax.Array) -> dict[str, float]:
    """How strategies differ from those of float32, and the regrets by a critic's values."""
    game = lost_cities(PRESETS[flags.rules])
    critic = make_network(game, flags.network, flags.hidden, flags.layers)
    at = positions(game, flags.width, flags.seed)[0]
    values = critic.apply(choosing_params(critic, flags.seed + 1), at.info, game.phases[0].head)
    values = jnp.where(at.legal, values, 0.0)
    # All regrets of a decision move by what the mean under the strategy moves.
    moved = ((found - exact) * values).sum(-1)
    regrets = jnp.where(at.legal, values - (exact * values).sum(-1, keepdims=True), 0.0)
    spread = jnp.sqrt((regrets**2).sum() / at.legal.sum())
    return {
        "mean difference of a probability": float(jnp.abs(found - exact).sum() / at.legal.sum()),
        "other favourite": float((found.argmax(-1) != exact.argmax(-1)).mean()),
        "regrets moved by, of their size": float(jnp.sqrt((moved**2).mean()) / spread),
        "regrets moved on average": float(moved.mean() / spread),
    }


if __name__ == "__main__":
    sys.exit(run_command(main))
