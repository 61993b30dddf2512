"""A table policy and the samples of single traversals, for the traversal's tests."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax.arrays import along_last
from lostcities_jax.regret import advantage_targets
from lostcities_jax.traversal.lockstep import Seat
from lostcities_jax.traversal.tape import Baseline, sweep


def hashed_weights(info, num_actions):
    """Positive weights that look random but follow from the info state by integers alone."""
    mixing = jnp.arange(1, info.shape[-1] + 1, dtype=jnp.uint32) * jnp.uint32(2654435761)
    mixing = along_last(mixing, info.ndim)
    code = (info.astype(jnp.uint32) * mixing).sum(-1, dtype=jnp.uint32)
    actions = jnp.arange(1, num_actions + 1, dtype=jnp.uint32) * jnp.uint32(40503)
    mixed = (code[..., None] ^ along_last(actions, info.ndim)) * jnp.uint32(2246822519)
    return (mixed >> 28).astype(jnp.float32) + 1.0  # 1 .. 16, exact in float32


def table_policy(params, info, legal, head):
    """A fixed strategy; the sums of small integers are exact at any width."""
    del params, head
    weights = jnp.where(legal, hashed_weights(info, legal.shape[-1]), 0.0)
    total = jnp.maximum(weights.sum(-1, keepdims=True), 1.0)
    return weights / total, jnp.zeros(legal.shape[:-1], bool)


def uniform_policy(params, info, legal, head):
    """Equal probabilities: what zero networks play."""
    del params, info, head
    total = jnp.maximum(legal.sum(-1, keepdims=True), 1)
    return legal / total, jnp.zeros(legal.shape[:-1], bool)


def seats(traverser, epsilon):
    """The traverser explores or branches, the opponent does not."""
    return tuple(
        Seat(None, jnp.float32(epsilon if is_own else 0.0), jnp.asarray(is_own))
        for is_own in (traverser == 0, traverser == 1)
    )


def arbitrary_baselines(tape):
    """Action values that follow from the info states and have nothing to do with the game."""
    baselines = []
    for rows in tape.rows:
        guesses = hashed_weights(rows.info[..., ::-1], rows.legal.shape[-1]) - 8.0
        values = jnp.where(rows.legal, guesses, 0.0)
        baselines.append(Baseline(values, (rows.strategy * values).sum(-1)))
    return tuple(baselines)


def phase_arrays(game, tape, k, baselines=None, levels=0):
    """The live decisions of one phase on a tape, as NumPy arrays by name."""
    values = _sweep(game, levels, tape, baselines)[k]
    rows = tape.rows[k]
    targets = advantage_targets(values.corrections, values.node_value, rows.legal)
    if baselines is not None:
        targets = targets + baselines[k].action_values
    fields = {
        "traversal": tape.ends.traversal,
        "rank": rows.rank,
        "info": rows.info,
        "legal": rows.legal,
        "action": rows.action,
        "strategy": rows.strategy,
        "target": targets,
        "node_value": values.node_value,
    }
    live = np.asarray(rows.live)
    return {name: np.asarray(field)[live] for name, field in fields.items()}


def decisions(game, tape, player, levels=0):
    """All decisions of a player on a tape as arrays, ordered by traversal and rank."""
    parts = [phase_arrays(game, tape, k, levels=levels) for k in game.phases_of(player)]
    width = max(part["target"].shape[-1] for part in parts)
    joined = {}
    for name in parts[0]:
        arrays = [part[name] for part in parts]
        if name in ("legal", "strategy", "target"):
            arrays = [np.pad(a, ((0, 0), (0, width - a.shape[-1]))) for a in arrays]
        joined[name] = np.concatenate(arrays)
    order = np.lexsort((joined["rank"], joined["traversal"]))
    return {name: array[order] for name, array in joined.items()}


@functools.partial(jax.jit, static_argnums=(0, 1))
def _sweep(game, levels, tape, baselines):
    return sweep(game, tape, baselines, levels=levels)
