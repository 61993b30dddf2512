"""Explicit broadcasting, so that strict rank promotion can stay on."""

import jax
import numpy as np


def along_last(vector: jax.Array | np.ndarray, ndim: int) -> jax.Array | np.ndarray:
    """A vector as the last axis of an array with `ndim` axes; [n] to [1, ..., 1, n]."""
    return vector.reshape((1,) * (ndim - 1) + vector.shape)


def over_lanes(mask: jax.Array, like: jax.Array) -> jax.Array:
    """A mask of lanes with as many axes as `like`; bool[B] to bool[B, 1, ..., 1]."""
    return mask.reshape(mask.shape + (1,) * (like.ndim - mask.ndim))
