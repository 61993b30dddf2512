"""`python -m benchmarks.learner`: steps per second of fitting a network to a reservoir.

A step needs three times the arithmetic of a forward pass; the ratio to the machine's matrix
products shows what drawing, encoding, the optimiser and any needless arithmetic cost.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp

from benchmarks.fixtures import random_samples, row_flops
from benchmarks.harness import (
    Measurement,
    Report,
    compile_ahead,
    device_meshes,
    measure_rates,
    parse_flags,
)
from benchmarks.limits import Limit, matmul_flops, matmul_limit
from lostcities_jax.cli import Preset
from lostcities_jax.errors import run_command
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.learner import make_learner, make_optimizer
from lostcities_jax.losses import squared_error
from lostcities_jax.memory import Memory
from lostcities_jax.networks import make_network
from lostcities_jax.rules import PRESETS
from lostcities_jax.settings import Count, LearnerConfig, Positive, Seed, checked

NAME = "learner"


@checked
@dataclasses.dataclass(frozen=True)
class Flags:
    """Learner steps per second on one device.

    Attributes:
      rules: rules of the game.
      network: mlp over flat features, or one network shared by all colours.
      hidden: units of a hidden layer.
      layers: hidden layers.
      batch_size: samples of a step.
      capacity: samples in the reservoir, all of it filled.
      steps: steps of a run, one compiled scan.
      repeats: timed runs.
      seconds: time after which there are no more runs.
      seed: seed of samples and parameters.
      store: append the records to benchmarks/results.
    """

    rules: Preset = "classic"
    network: Literal["mlp", "color_shared"] = "mlp"
    hidden: Count = 512
    layers: Count = 3
    batch_size: Count = 1024
    capacity: Count = 200_000
    steps: Count = 30
    repeats: Count = 5
    seconds: Positive = 20.0
    seed: Seed = 0
    store: bool = False


def main(argv: Sequence[str]) -> None:
    """Runs the command; raises UserError for whatever the user can mend."""
    flags = parse_flags(Flags, argv, NAME)
    limit = matmul_limit(device_meshes(()))
    title = f"learner, {flags.network} {flags.hidden} x {flags.layers}, batch {flags.batch_size}"
    report = Report(NAME, title, flags, argv)
    limit.measure()
    report.add(_measure(flags, limit))
    limit.measure()
    report.finish()


def _measure(flags: Flags, limit: Limit) -> Measurement:
    rules, settings = PRESETS[flags.rules], LearnerConfig()
    game = lost_cities(rules)
    network = make_network(lost_cities(rules), flags.network, flags.hidden, flags.layers)
    optimizer = make_optimizer(settings)
    learner = make_learner(
        game,
        network,
        squared_error,
        optimizer,
        steps=flags.steps,
        batch_size=flags.batch_size,
        target_scale=settings.target_scale,
    )
    reservoir = Memory(
        random_samples(game, flags.capacity, flags.seed),
        jnp.array([flags.capacity, 0], jnp.uint32),
    )
    init_key, key = jax.random.split(jax.random.key(flags.seed))
    keys = [jax.random.fold_in(key, repeat) for repeat in range(flags.repeats + 1)]
    held = [learner.init(init_key)]
    weights = jnp.ones((2,), jnp.float32)
    needed = 3 * row_flops(game, network, held[0].params) * flags.batch_size
    spent = matmul_flops(learner.fit, held[0], reservoir, weights, keys[0]) / flags.steps
    compiled, compile_seconds = compile_ahead(
        learner.fit, held[0], reservoir, weights, keys[0], donate_argnums=0
    )

    def run(repeat: int) -> jax.Array:
        held[0], losses = compiled(held[0], reservoir, weights, keys[repeat])
        return losses

    rates = measure_rates(run, lambda _: float(flags.steps), flags.repeats, flags.seconds)
    return Measurement(
        settings={"batch": flags.batch_size},
        unit="steps/s",
        rates=rates,
        compile_seconds=compile_seconds,
        per_item=needed,
        limit=limit,
        figures={
            "samples/s": sorted(rates)[len(rates) // 2] * flags.batch_size,
            "GFLOP needed": needed / 1e9,
            "GFLOP traced": spent / 1e9,
        },
    )


if __name__ == "__main__":
    sys.exit(run_command(main))
