"""What a batch of traversals did, as a few numbers for the metrics."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lostcities_jax.games.game import Game
from lostcities_jax.traversal.lockstep import Summary
from lostcities_jax.traversal.tape import Tape

DEPTH_BINS = 16


class Statistics(NamedTuple):
    """Sums over a batch; scalars int32[] unless noted.

    Attributes:
      nodes: decisions of both players.
      terminals: traversals whose paths all ended by the rules other than the turn limit.
      timeouts: traversals with a path ended by the turn limit.
      cutoffs: traversals with a path cut by the depth or node limit.
      unfinished: traversals left when the tape was full; must be 0.
      overflows: decisions that found no level of the stack; must be 0.
      fallbacks: decisions at which regret matching fell back.
      half_steps: network calls, all devices together.
      rows: rows of those calls, idle lanes included.
      depth_histogram: traversals by depth in DEPTH_BINS equal bins. int32[DEPTH_BINS].
    """

    nodes: jax.Array
    terminals: jax.Array
    timeouts: jax.Array
    cutoffs: jax.Array
    unfinished: jax.Array
    overflows: jax.Array
    fallbacks: jax.Array
    half_steps: jax.Array
    rows: jax.Array
    depth_histogram: jax.Array


def depth_bin_size(game: Game) -> int:
    """Decisions that one bin of the depth histogram spans."""
    return -(-game.max_cycles * len(game.phases) // DEPTH_BINS)


def tape_statistics(game: Game, quota: int, tape: Tape, summary: Summary) -> Statistics:
    """Statistics of a batch of `quota` traversals as `sharded_traverse` returns it."""
    half_steps = tape.length.sum() * len(game.phases)
    lanes_per_device = tape.ends.ended.shape[1] // tape.length.shape[0]
    return statistics(game, quota, summary, half_steps, half_steps * lanes_per_device)


def statistics(
    game: Game, quota: int, summary: Summary, half_steps: jax.Array, rows: jax.Array
) -> Statistics:
    """Statistics of `quota` traversals that took `half_steps` network calls of `rows` in all."""
    depth = summary.decisions.sum(-1)
    finished = summary.finished
    bins = jnp.minimum(depth // depth_bin_size(game), DEPTH_BINS - 1)

    def count(flags: jax.Array) -> jax.Array:
        return flags.sum(dtype=jnp.int32)

    return Statistics(
        nodes=depth.sum(dtype=jnp.int32),
        terminals=count(finished & ~summary.timeout & ~summary.cut),
        timeouts=count(summary.timeout),
        cutoffs=count(summary.cut),
        unfinished=quota - count(finished),
        overflows=summary.overflows.sum(),
        fallbacks=summary.fallbacks.sum(),
        half_steps=half_steps,
        rows=rows,
        depth_histogram=jnp.zeros((DEPTH_BINS,), jnp.int32).at[bins].add(finished),
    )
