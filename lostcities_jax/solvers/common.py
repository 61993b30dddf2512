"""What an iteration of every solver has in common: its random keys and the keeping of snapshots."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lostcities_jax import snapshots
from lostcities_jax.settings import SnapshotConfig
from lostcities_jax.snapshots import Snapshots

# Streams of random numbers folded from the run's seed.
INIT, TRAVERSE, MEMORY, FIT, LEAGUE, SNAPSHOT = range(6)


def make_keys(seed: int) -> Callable[..., jax.Array]:
    """Builds `(stream, iteration, index=0) -> key`: a key of its own for every use in a run."""

    def key_of(stream: int, iteration: int, index: int = 0) -> jax.Array:
        key = jax.random.fold_in(jax.random.key(seed), stream)
        return jax.random.fold_in(jax.random.fold_in(key, iteration), index)

    return key_of


def new_snapshots(settings: SnapshotConfig, networks: tuple[Any, ...]) -> Snapshots | None:
    """Room for snapshots of networks like these; None where none are kept."""
    return snapshots.init(networks, settings.slots) if settings.every else None


def make_keep(settings: SnapshotConfig) -> Callable[..., Snapshots | None]:
    """Builds `(snapshots, networks, iteration, key) -> snapshots`, for the end of an iteration.

    The networks are offered in the iterations that are due. The snapshots are donated, and the
    key is consumed; None stays None.
    """

    @functools.partial(jax.jit, donate_argnums=0)
    def keep(kept: Snapshots, networks: Any, iteration: jax.Array, key: jax.Array) -> Snapshots:
        is_due = iteration % settings.every == 0
        offered = (kept, networks, iteration, key)
        return jax.lax.cond(is_due, snapshots.keep, lambda kept, *_: kept, *offered)

    def keep_due(
        kept: Snapshots | None, networks: tuple[Any, ...], iteration: int, key: jax.Array
    ) -> Snapshots | None:
        return None if kept is None else keep(kept, networks, jnp.int32(iteration), key)

    return keep_due
