"""The tape: what every decision of a batch of traversals leaves behind, and its sweep.

Going forward, each cycle appends one row per lane and phase. The way back up the tree is one
reverse scan, in which a node's value follows from its only sampled child's.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lostcities_jax.games.game import Game
from lostcities_jax.regret import sampled_value


class Rows(NamedTuple):
    """Decisions of one phase; T tape rows by B lanes, or one row of B lanes.

    Attributes:
      info: packed info states. uint8[T, B, I].
      legal: legal actions. bool[T, B, A].
      strategy: the mover's strategy. float32[T, B, A].
      action: the sampled action. uint8[T, B].
      strategy_of_action: its probability under the strategy. float32[T, B].
      probability: its probability under the sampling policy. float32[T, B].
      rank: how many decisions of the traversal the mover had before. int32[T, B].
      live: False where the lane had nothing to decide. bool[T, B].
      open_info: info states with the other hand open; None without a critic. uint8[T, B, I].
    """

    info: jax.Array
    legal: jax.Array
    strategy: jax.Array
    action: jax.Array
    strategy_of_action: jax.Array
    probability: jax.Array
    rank: jax.Array
    live: jax.Array
    open_info: jax.Array | None = None


class Ends(NamedTuple):
    """What each cycle left behind beside its decisions; T tape rows by B lanes.

    Attributes:
      traversal: index of the lane's traversal within the quota. int32[T, B].
      ended: whether the traversal ended in this cycle. bool[T, B].
      value: player 0's payoff as the game stood. float32[T, B].
    """

    traversal: jax.Array
    ended: jax.Array
    value: jax.Array


class Tape(NamedTuple):
    """All rows of a batch of traversals; only the first `length` cycles were written.

    Attributes:
      rows: one `Rows` for each phase of the cycle.
      ends: the cycles.
      length: cycles written. int32[].
    """

    rows: tuple[Rows, ...]
    ends: Ends
    length: jax.Array


def bytes_per_lane(game: Game, capacity: int, has_critic: bool = False) -> int:
    """Bytes of tape one lane needs."""
    tape = jax.eval_shape(lambda: blank_tape(game, 1, capacity, has_critic))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tape))


def blank_tape(game: Game, width: int, capacity: int, has_critic: bool = False) -> Tape:
    """A tape of `capacity` cycles for `width` lanes, with open info states for a critic."""

    def blank(dtype, *shape: int) -> jax.Array:
        return jnp.zeros((capacity, width, *shape), dtype)

    rows = tuple(
        Rows(
            info=blank(jnp.uint8, game.info_size),
            open_info=blank(jnp.uint8, game.info_size) if has_critic else None,
            legal=blank(bool, phase.num_actions),
            strategy=blank(jnp.float32, phase.num_actions),
            action=blank(jnp.uint8),
            strategy_of_action=blank(jnp.float32),
            probability=blank(jnp.float32),
            rank=blank(jnp.int32),
            live=blank(bool),
        )
        for phase in game.phases
    )
    ends = Ends(traversal=blank(jnp.int32), ended=blank(bool), value=blank(jnp.float32))
    return Tape(rows, ends, jnp.int32(0))


def append(tape: Tape, rows: tuple[Rows, ...], ends: Ends) -> Tape:
    """Writes one cycle behind the last; the caller checks the capacity."""

    def write(buffer: jax.Array, row: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_index_in_dim(buffer, row.astype(buffer.dtype), tape.length, 0)

    return Tape(
        jax.tree.map(write, tape.rows, rows),
        jax.tree.map(write, tape.ends, ends),
        tape.length + 1,
    )


class Baseline(NamedTuple):
    """What a critic says of the decisions of one phase, from the view of their mover.

    Attributes:
      action_values: estimated value of every action, 0 for illegal ones. float32[T, B, A].
      of_action: of the sampled action. float32[T, B].
      of_node: mean under the strategy. float32[T, B].
    """

    action_values: jax.Array
    of_action: jax.Array
    of_node: jax.Array


class NodeValues(NamedTuple):
    """Values at the decisions of one phase, from the view of its mover; float32[T, B].

    Attributes:
      correction: what sampling adds to the baseline of the sampled action.
      node_value: estimate of the node's value.
      child_return: what came of the action, the critic's target.
    """

    correction: jax.Array
    node_value: jax.Array
    child_return: jax.Array


def sweep(
    game: Game, tape: Tape, baselines: tuple[Baseline | None, ...] | None = None, trace: float = 1.0
) -> tuple[NodeValues, ...]:
    """Carries the values of ended traversals back to every decision.

    Args:
      game: the game; static.
      tape: the tape.
      baselines: the critic's values of each phase; none for plain outcome sampling.
      trace: share of a later return in `child_return`, against the critic's own value: the
        lambda of the lambda-return (Sutton and Barto 2018, section 12.1), which values the
        sampling policy, its exploration included.

    Returns:
      one entry a phase.
    """

    def step_back(carry: tuple[jax.Array, jax.Array], cycle: tuple) -> tuple[tuple, tuple]:
        rows, parts, ends = cycle
        value, later = (jnp.where(ends.ended, ends.value, part) for part in carry)
        values = []
        for k in reversed(range(len(game.phases))):
            sign = 1.0 if game.phases[k].player == 0 else -1.0
            row, (of_action, of_node) = rows[k], parts[k]
            correction, node_value = sampled_value(
                sign * value,
                row.strategy_of_action,
                jnp.where(row.live, row.probability, 1.0),
                of_action,
                of_node,
            )
            values.append(NodeValues(correction, node_value, sign * later))
            node_return = (1.0 - trace) * of_node + trace * sign * later
            value = jnp.where(row.live, sign * node_value, value)
            later = jnp.where(row.live, sign * node_return, later)
        return (value, later), tuple(reversed(values))

    nothing = jnp.zeros_like(tape.ends.value)
    baselines = baselines or (None,) * len(game.phases)
    parts = tuple(
        (nothing, nothing) if baseline is None else (baseline.of_action, baseline.of_node)
        for baseline in baselines
    )
    scalars = tuple(
        row._replace(info=None, open_info=None, legal=None, strategy=None, action=None, rank=None)
        for row in tape.rows
    )
    start = (nothing[0], nothing[0])
    return jax.lax.scan(step_back, start, (scalars, parts, tape.ends), reverse=True)[1]
