"""From a swept tape to the memories: advantages of the traverser, strategies of the other.

Average-strategy samples are taken where the opponent acts, since the traverser's own visits
follow its exploring policy rather than its strategy.
"""

import functools

import jax
import jax.numpy as jnp

from lostcities_jax.games.game import Game
from lostcities_jax.memory import Block, Memory, Samples, add
from lostcities_jax.regret import advantage_targets
from lostcities_jax.traversal.lockstep import Summary
from lostcities_jax.traversal.tape import NodeValues, Rows, Tape

ADVANTAGE = "advantage"
STRATEGY = "strategy"


def add_samples(
    game: Game,
    kind: str,
    player: int,
    memory: Memory,
    tape: Tape,
    values: tuple[NodeValues, ...],
    summary: Summary,
    first: jax.Array,
    iteration: jax.Array,
    key: jax.Array,
) -> tuple[Memory, jax.Array]:
    """Adds a player's decisions on a tape to a memory.

    Args:
      game: the game; static.
      kind: ADVANTAGE for targets Q - v, STRATEGY for the mover's strategy; static.
      player: whose decisions; static.
      memory: the memory; donate it.
      tape: the tape of finished traversals.
      values: its sweep.
      summary: what became of the traversals.
      first: samples of the iteration that earlier tapes added. int32[].
      iteration: iteration stored with the samples. int32[].
      key: key of the iteration for this memory.

    Returns:
      the memory, and `first` for the next tape.
    """
    phases = game.phases_of(player)
    decisions = summary.decisions[:, player]
    total = decisions.sum(dtype=jnp.int32)
    rank_of = jnp.cumsum(decisions) - decisions

    def block_at(index: jax.Array) -> Block:
        blocks = [_block(game, kind, tape, values, k, index, rank_of) for k in phases]
        return jax.tree.map(lambda *parts: jnp.concatenate(parts), *blocks)

    memory = add(memory, block_at, tape.length, total, first, iteration, key)
    return memory, first + total


def _block(
    game: Game,
    kind: str,
    tape: Tape,
    values: tuple[NodeValues, ...],
    k: int,
    index: jax.Array,
    rank_of: jax.Array,
) -> Block:
    """The decisions of phase `k` in one cycle of the tape."""
    at = functools.partial(jax.lax.dynamic_index_in_dim, index=index, keepdims=False)
    rows: Rows = jax.tree.map(at, tape.rows[k])
    if kind == ADVANTAGE:
        value: NodeValues = jax.tree.map(at, values[k])
        target = advantage_targets(
            rows.action.astype(jnp.int32), value.action_value, value.node_value, rows.legal
        )
    else:
        target = rows.strategy
    padding = ((0, 0), (0, game.max_actions - game.phases[k].num_actions))
    return Block(
        samples=Samples(
            info=rows.info,
            legal=jnp.pad(rows.legal, padding),
            target=jnp.pad(target, padding),
            iteration=jnp.zeros_like(rows.rank),
        ),
        rank=rank_of[at(tape.ends.traversal)] + rows.rank,
        valid=rows.live,
    )
