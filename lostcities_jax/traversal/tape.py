"""The tape: what every decision of a batch of traversals leaves behind, and its sweep.

Going forward, each cycle appends one row per lane and phase. The way back up the tree is one
loop in reverse, in which a node's value follows from its explored children's. A traversal that
branches returns to a node for its other actions, in a row of its own that says to which level of
the stack; going back, that row hands the child's value to the level, and the node collects them.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax.arrays import along_last
from lostcities_jax.games.game import Game
from lostcities_jax.regret import Choice, node_value, trace_weights


class Branch(NamedTuple):
    """The branching of the decisions of one phase, and returns to earlier ones of the phase.

    Attributes:
      explored: actions followed from the decision. bool[T, B, A].
      level: the stack's level of the decision's other actions, or of the decision that a lane
        returns to. uint8[T, B].
      returns: the row is no decision, but an earlier one's next action. bool[T, B].
    """

    explored: jax.Array
    level: jax.Array
    returns: jax.Array


class Rows(NamedTuple):
    """Decisions of one phase; T tape rows by B lanes, or one row of B lanes.

    Attributes:
      info: packed info states. uint8[T, B, I].
      legal: legal actions. bool[T, B, A].
      strategy: the mover's strategy. float32[T, B, A].
      action: the action it went on with. uint8[T, B].
      probability: with which each explored action was chosen to be. float32[T, B].
      rank: how many decisions of the traversal the mover had before. int32[T, B].
      live: False where the lane had nothing to decide. bool[T, B].
      open_info: info states with the other hand open; None without a critic. uint8[T, B, I].
      branch: how the traversal branched; None where it cannot.
    """

    info: jax.Array
    legal: jax.Array
    strategy: jax.Array
    action: jax.Array
    probability: jax.Array
    rank: jax.Array
    live: jax.Array
    open_info: jax.Array | None = None
    branch: Branch | None = None

    def explored(self) -> jax.Array:
        """The actions that the traversal followed from here, sooner or later; bool[T, B, A]."""
        if self.branch is not None:
            return self.branch.explored
        actions = np.arange(self.legal.shape[-1], dtype=np.uint8)
        return (along_last(actions, self.legal.ndim) == self.action[..., None]) & self.legal


class Ends(NamedTuple):
    """What each cycle left behind beside its decisions; T tape rows by B lanes.

    Attributes:
      traversal: index of the lane's traversal within the quota. int32[T, B].
      ended: whether a path of the traversal ended in this cycle. bool[T, B].
      value: player 0's payoff as the game stood. float32[T, B].
      cut: 1 + the place among the cuts of a path to be played out, 0 for others; None where
        none is. int32[T, B].
    """

    traversal: jax.Array
    ended: jax.Array
    value: jax.Array
    cut: jax.Array | None = None


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


class Contents(NamedTuple):
    """What a tape holds beside its decisions.

    Attributes:
      has_critic: open info states.
      has_branches: branching.
      has_cuts: places of cuts.
    """

    has_critic: bool = False
    has_branches: bool = False
    has_cuts: bool = False


PLAIN = Contents()


def bytes_per_lane(game: Game, capacity: int, contents: Contents = PLAIN) -> int:
    """Bytes of tape one lane needs."""
    tape = jax.eval_shape(lambda: blank_tape(game, 1, capacity, contents))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tape))


def value_bytes_per_lane(game: Game, capacity: int, has_critic: bool) -> int:
    """Bytes of what a sweep and a critic say of one lane's decisions: float32 throughout."""
    actions = sum(phase.num_actions for phase in game.phases)
    numbers = actions + len(game.phases)  # NodeValues
    if has_critic:
        numbers += 2 * actions + len(game.phases)  # its child returns, and Baseline
    return 4 * numbers * capacity


def blank_tape(game: Game, width: int, capacity: int, contents: Contents = PLAIN) -> Tape:
    """A tape of `capacity` cycles for `width` lanes."""

    def blank(dtype, *shape: int) -> jax.Array:
        return jnp.zeros((capacity, width, *shape), dtype)

    def branch(num_actions: int) -> Branch:
        return Branch(blank(bool, num_actions), blank(jnp.uint8), blank(bool))

    rows = tuple(
        Rows(
            info=blank(jnp.uint8, game.info_size),
            open_info=blank(jnp.uint8, game.info_size) if contents.has_critic else None,
            legal=blank(bool, phase.num_actions),
            strategy=blank(jnp.float32, phase.num_actions),
            action=blank(jnp.uint8),
            probability=blank(jnp.float32),
            rank=blank(jnp.int32),
            live=blank(bool),
            branch=branch(phase.num_actions) if contents.has_branches else None,
        )
        for phase in game.phases
    )
    ends = Ends(
        traversal=blank(jnp.int32),
        ended=blank(bool),
        value=blank(jnp.float32),
        cut=blank(jnp.int32) if contents.has_cuts else None,
    )
    return Tape(rows, ends, jnp.int32(0))


@jax.named_scope("tape")
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
      of_node: mean under the strategy. float32[T, B].
    """

    action_values: jax.Array
    of_node: jax.Array


class NodeValues(NamedTuple):
    """Values at the decisions of one phase, from the view of its mover.

    Attributes:
      corrections: what sampling adds to the baseline of each action. float32[T, B, A].
      node_value: estimate of the node's value. float32[T, B].
      child_returns: what came of each explored action, the critic's targets; None without
        a critic. float32[T, B, A].
    """

    corrections: jax.Array
    node_value: jax.Array
    child_returns: jax.Array | None


class Children(NamedTuple):
    """What came of the explored actions of the open nodes, on each of S levels of the stack.

    Attributes:
      value: their values, from player 0's view. float32[B, S, A].
      later: their returns, likewise. float32[B, S, A].
    """

    value: jax.Array
    later: jax.Array


@jax.named_scope("sweep")
def sweep(
    game: Game,
    tape: Tape,
    baselines: tuple[Baseline | None, ...] | None = None,
    trace: float = 1.0,
    levels: int = 0,
) -> tuple[NodeValues, ...]:
    """Carries the values of ended paths back to every decision.

    Args:
      game: the game; static.
      tape: the tape.
      baselines: the critic's values of each phase; none for plain sampling.
      trace: share of what later decisions brought in `child_returns`, against the critic's own
        value: the lambda of Retrace (Munos et al. 2016, section 3), which values the strategy
        whatever was explored.
      levels: levels of the stack, S; 0 where no traversal branches.

    Returns:
      one entry a phase.
    """
    critics = baselines or (None,) * len(game.phases)
    read = tuple(row._replace(info=None, open_info=None, rank=None) for row in tape.rows)

    def step_back(count: jax.Array, carry: tuple):
        index = tape.length - 1 - count
        at = functools.partial(jax.lax.dynamic_index_in_dim, index=index, keepdims=False)
        rows, parts, ends = jax.tree.map(at, (read, critics, tape.ends))
        (value, later, children), written = carry
        value, later = (jnp.where(ends.ended, ends.value, part) for part in (value, later))
        values = []
        for k in reversed(range(len(game.phases))):
            sign = 1.0 if game.phases[k].player == 0 else -1.0
            row, baseline = rows[k], parts[k]
            found, children = _children(row, value, later, children)
            explored = row.explored() & row.live[:, None]
            of_node = baseline.of_node if baseline else jnp.zeros_like(value)
            of_action = baseline.action_values if baseline else jnp.zeros_like(row.strategy)
            choice = Choice(row.action, explored, row.probability)
            child_returns = sign * found.later
            corrections, node = node_value(
                row.strategy, choice, sign * found.value, of_action, of_node
            )
            values.append(NodeValues(corrections, node, child_returns if baseline else None))
            value = jnp.where(row.live, sign * node, value)
            surprise = jnp.where(explored, child_returns - of_action, 0.0)
            weights = trace_weights(row.strategy, choice)
            node_return = of_node + trace * (weights * surprise).sum(-1)
            later = jnp.where(row.live, sign * node_return, later)
        written = jax.tree.map(
            lambda all_rows, one: jax.lax.dynamic_update_index_in_dim(all_rows, one, index, 0),
            written,
            tuple(reversed(values)),
        )
        return (value, later, children), written

    nothing = jnp.zeros_like(tape.ends.value[0])
    children = None
    if levels:
        blank = jnp.zeros((*nothing.shape, levels, game.max_actions), jnp.float32)
        children = Children(blank, blank)
    unwritten = tuple(
        NodeValues(
            corrections=jnp.zeros_like(rows.strategy),
            node_value=jnp.zeros_like(rows.probability),
            child_returns=jnp.zeros_like(rows.strategy) if critic else None,
        )
        for rows, critic in zip(tape.rows, critics, strict=True)
    )
    start = ((nothing, nothing, children), unwritten)
    return jax.lax.fori_loop(0, tape.length, step_back, start)[1]


def _children(
    row: Rows, value: jax.Array, later: jax.Array, children: Children | None
) -> tuple[Children, Children | None]:
    """What came of each action of a row, float32[B, A], and the levels after it.

    The row's own action leads to what the sweep carries; a returning row hands that to its level.
    """
    actions = along_last(np.arange(row.legal.shape[-1], dtype=np.uint8), 2)
    is_taken = actions == row.action[:, None]
    if children is None or row.branch is None:
        return Children(*(jnp.where(is_taken, x[:, None], 0.0) for x in (value, later))), children
    levels = along_last(np.arange(children.value.shape[1], dtype=np.uint8), 2)
    at_level = (levels == row.branch.level[:, None])[:, :, None]
    padding = children.value.shape[-1] - row.legal.shape[-1]
    handed = jnp.pad(is_taken, ((0, 0), (0, padding)))[:, None] & at_level
    handed = handed & row.branch.returns[:, None, None]
    found, after = [], []
    for carried, kept in zip((value, later), children, strict=True):
        kept = jnp.where(handed, carried[:, None, None], kept)
        own = jnp.where(at_level, kept, 0.0).sum(1)[:, : row.legal.shape[-1]]
        found.append(jnp.where(is_taken, carried[:, None], own))
        after.append(kept)
    return Children(*found), Children(*after)
