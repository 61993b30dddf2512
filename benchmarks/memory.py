"""`python -m benchmarks.memory`: adding samples to a large reservoir on the device.

Shows what two million samples take, and how near adding them comes to plain copies. Exits
with 1 if the reservoir takes a gigabyte or more.
"""

import dataclasses
import sys
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from benchmarks.fixtures import random_samples
from benchmarks.harness import (
    Measurement,
    Report,
    compile_ahead,
    device_meshes,
    measure_rates,
    parse_flags,
    tree_bytes,
)
from benchmarks.limits import Limit, copy_limit
from lostcities_jax import memory
from lostcities_jax.cli import Preset
from lostcities_jax.errors import run_command
from lostcities_jax.games.game import Game
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.rules import PRESETS
from lostcities_jax.settings import Count, Positive, Seed, checked

NAME = "memory"
MOST_BYTES = 1e9
_POOL_BLOCKS = 32  # different blocks, more than a cache holds


@checked
@dataclasses.dataclass(frozen=True)
class Flags:
    """Samples per second added to a reservoir, and its size.

    Attributes:
      rules: rules of the game.
      capacity: samples the reservoir holds.
      block: samples of one step of an add: two for each lane of a traversal.
      blocks: steps of a run.
      repeats: timed runs of each part.
      seconds: time after which a part gets no more runs.
      seed: seed of samples and draws.
      store: append the records to benchmarks/results.
    """

    rules: Preset = "classic"
    capacity: Count = 2_000_000
    block: Count = 2048
    blocks: Count = 256
    repeats: Count = 5
    seconds: Positive = 20.0
    seed: Seed = 0
    store: bool = False


def main(argv: Sequence[str]) -> int:
    """Runs the command; raises UserError for whatever the user can mend."""
    flags = parse_flags(Flags, argv, NAME)
    game = lost_cities(PRESETS[flags.rules])
    limit = copy_limit(device_meshes(()))
    report = Report(NAME, f"adding to a reservoir of {flags.capacity:,} samples", flags, argv)
    limit.measure()
    # Empty at first, and so full that an item is stored with probability 1/4.
    for part, seen in (("filling", 0), ("full", 4 * flags.capacity)):
        report.add(_measure(game, flags, limit, part, seen))
        limit.measure()
    report.finish()
    size = memory.bytes_needed(flags.capacity, game.info_size, game.max_actions)
    fits = size < MOST_BYTES
    report.note(f"the reservoir takes {size / 1e9:.3f} GB: {'under' if fits else 'NOT under'} 1 GB")
    return 0 if fits else 1


def _measure(game: Game, flags: Flags, limit: Limit, part: str, seen: int) -> Measurement:
    blocks = min(flags.blocks, max(flags.capacity // flags.block, 1))
    pool = random_samples(game, _POOL_BLOCKS * flags.block, flags.seed)
    pool = jax.tree.map(lambda leaf: leaf.reshape(_POOL_BLOCKS, flags.block, *leaf.shape[1:]), pool)
    words = jnp.array([seen % 2**32, seen >> 32], jnp.uint32)

    def add(reservoir: memory.Memory, pool: memory.Samples, key: jax.Array) -> memory.Memory:
        def block_at(index: jax.Array) -> memory.Block:
            samples = jax.tree.map(lambda leaf: leaf[index % _POOL_BLOCKS], pool)
            rank = index * flags.block + jnp.arange(flags.block)
            return memory.Block(samples, rank, jnp.ones((flags.block,), bool))

        return memory.add(
            reservoir._replace(seen=words),
            block_at,
            jnp.int32(blocks),
            jnp.int32(blocks * flags.block),
            jnp.int32(0),
            jnp.int32(1),
            key,
        )

    key = jax.random.key(flags.seed)
    keys = [jax.random.fold_in(key, repeat) for repeat in range(flags.repeats + 1)]
    reservoir = memory.init(flags.capacity, game.info_size, game.max_actions)
    compiled, compile_seconds = compile_ahead(add, reservoir, pool, keys[0], donate_argnums=0)
    held = [reservoir]

    def run(repeat: int) -> memory.Memory:
        held[0] = compiled(held[0], pool, keys[repeat])
        return held[0]

    sample_bytes = tree_bytes(pool) / (_POOL_BLOCKS * flags.block)
    rates = measure_rates(run, lambda _: float(blocks * flags.block), flags.repeats, flags.seconds)
    return Measurement(
        settings={"part": part, "capacity": flags.capacity, "block": flags.block},
        unit="adds/s",
        rates=rates,
        compile_seconds=compile_seconds,
        per_item=2 * sample_bytes,
        limit=limit,
        figures={"bytes/sample": sample_bytes, "GB": tree_bytes(reservoir) / 1e9},
    )


if __name__ == "__main__":
    sys.exit(run_command(main))
