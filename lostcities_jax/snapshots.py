"""Snapshots: the advantage networks of past iterations, on the device.

They play as a league of opponents, and together as the average strategy itself, since a
strategy drawn among the iterates by weight and kept for a whole game plays their average
exactly (Steinberger 2019, Single Deep Counterfactual Regret Minimization, theorem 2).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Snapshots(NamedTuple):
    """Past networks in up to S slots; donate it to `keep`.

    Attributes:
      params: of player 0 and player 1, or of both; each leaf with a leading axis of S slots.
      iteration: iteration that each slot comes from, 0 for an empty one. int32[S].
      offered: snapshots ever offered. int32[].
    """

    params: tuple[Any, ...]
    iteration: jax.Array
    offered: jax.Array


def init(params: tuple[Any, ...], slots: int) -> Snapshots:
    """No snapshots yet, for networks like `params`."""
    blank = jax.tree.map(lambda leaf: jnp.zeros((slots, *leaf.shape), leaf.dtype), params)
    return Snapshots(blank, jnp.zeros((slots,), jnp.int32), jnp.int32(0))


def keep(
    snapshots: Snapshots, params: tuple[Any, ...], iteration: jax.Array, key: jax.Array
) -> Snapshots:
    """Offers a snapshot: to a free slot, or as a reservoir does (Vitter 1985, algorithm R).

    However many were offered, those kept are a uniform sample of them. Consumes `key`.
    """
    slots = snapshots.iteration.shape[0]
    drawn = jax.random.randint(key, (), 0, snapshots.offered + 1)
    slot = jnp.where(snapshots.offered < slots, snapshots.offered, drawn)
    # A slot behind the last one drops the write.
    return Snapshots(
        params=jax.tree.map(
            lambda old, new: old.at[slot].set(new, mode="drop"), snapshots.params, params
        ),
        iteration=snapshots.iteration.at[slot].set(iteration, mode="drop"),
        offered=snapshots.offered + 1,
    )


def take(snapshots: Snapshots, player: int, slot: jax.Array | int) -> Any:
    """One snapshot's parameters of a player."""
    return jax.tree.map(lambda leaf: leaf[slot], snapshots.params[player])
