"""The explicit stack of a lane: decisions whose other actions are still to be followed.

A branching traversal goes on with the first explored action and leaves the decision here;
when its path ends, the lane returns to the newest such decision for the next action. Depth is
static; what does not fit is counted, and the host raises it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax.arrays import along_last, over_lanes
from lostcities_jax.games.game import Game, GameState


class Stack(NamedTuple):
    """Open decisions of B lanes on S levels; those below `size` are in use.

    Attributes:
      state: the game before the decision. Batched over [B, S].
      phase: the decision's phase. uint8[B, S].
      depth: decisions of the path up to and with it. int32[B, S].
      remaining: explored actions not followed yet. bool[B, S, A].
      size: int32[B].
      overflows: decisions that found no level. int32[].
    """

    state: GameState
    phase: jax.Array
    depth: jax.Array
    remaining: jax.Array
    size: jax.Array
    overflows: jax.Array


class Return(NamedTuple):
    """The next action of each lane's newest open decision.

    Attributes:
      is_due: whether the lane returns in this phase. bool[B].
      state: the game before the decision. Batched over B.
      action: int32[B].
      depth: int32[B].
    """

    is_due: jax.Array
    state: GameState
    action: jax.Array
    depth: jax.Array


def empty(game: Game, state: GameState, levels: int) -> Stack:
    """Stacks without a decision for the lanes of `state`."""
    (width,) = jax.tree.leaves(state)[0].shape[:1]

    def blank(dtype, *shape: int) -> jax.Array:
        return jnp.zeros((width, *shape), dtype)

    return Stack(
        state=jax.tree.map(lambda leaf: blank(leaf.dtype, levels, *leaf.shape[1:]), state),
        phase=blank(jnp.uint8, levels),
        depth=blank(jnp.int32, levels),
        remaining=blank(bool, levels, game.max_actions),
        size=blank(jnp.int32),
        overflows=jnp.int32(0),
    )


def push(
    stack: Stack, pushes: jax.Array, state: GameState, k: int, depth: jax.Array, rest: jax.Array
) -> Stack:
    """Leaves decisions of phase `k` with the actions `rest` bool[B, A] for later."""
    levels, actions = stack.remaining.shape[1:]
    at = (_levels(levels) == stack.size[:, None]) & pushes[:, None]
    rest = jnp.pad(rest, ((0, 0), (0, actions - rest.shape[-1])))
    fits = pushes & (stack.size < levels)
    return Stack(
        state=jax.tree.map(
            lambda old, new: jnp.where(over_lanes(at, old), new[:, None], old), stack.state, state
        ),
        phase=jnp.where(at, jnp.uint8(k), stack.phase),
        depth=jnp.where(at, depth[:, None], stack.depth),
        remaining=jnp.where(at[:, :, None], rest[:, None], stack.remaining),
        size=stack.size + fits,
        overflows=stack.overflows + (pushes & ~fits).sum(dtype=jnp.int32),
    )


def pop(stack: Stack, waiting: jax.Array, k: int) -> tuple[Stack, Return]:
    """The next action of the newest decision, where it is of phase `k` and the lane waits.

    Actions are taken in ascending order; after its last one the decision leaves the stack.
    """
    at = _levels(stack.phase.shape[1]) == stack.size[:, None] - 1
    is_due = waiting & (at & (stack.phase == k)).any(-1)
    remaining = (stack.remaining & at[:, :, None]).any(1)
    action = jnp.argmax(remaining, axis=-1).astype(jnp.int32)
    actions = along_last(np.arange(remaining.shape[-1]), 2)
    is_last = remaining.sum(-1) == 1
    taken = (at & is_due[:, None])[:, :, None] & (actions == action[:, None])[:, None]
    returned = Return(
        is_due=is_due,
        state=jax.tree.map(
            lambda leaf: jnp.where(over_lanes(at, leaf), leaf, 0).sum(1, dtype=leaf.dtype),
            stack.state,
        ),
        action=action,
        depth=jnp.where(at, stack.depth, 0).sum(1),
    )
    stack = stack._replace(remaining=stack.remaining & ~taken, size=stack.size - (is_due & is_last))
    return stack, returned


def _levels(count: int) -> jax.Array | np.ndarray:
    return along_last(np.arange(count), 2)
