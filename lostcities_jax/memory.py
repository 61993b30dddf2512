"""Reservoirs on the device: a uniform sample of every training sample ever added.

Algorithm R (Vitter 1985): the i-th item takes slot i while slots are free, later any slot
with probability M / i. Items are ordered by traversal and decision, not by lane, and each
draws from a key of its own place in that order: the contents do not depend on the width.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Samples(NamedTuple):
    """Training samples; the first axis is a batch or the memory's M slots.

    Attributes:
      info: packed info states. uint8[M, I].
      legal: legal actions that count, False behind those of the sample's phase. bool[M, A].
      target: advantages in points, strategy probabilities, or several such rows.
        float32[M, A] or float32[M, K, A].
      iteration: iteration that took the sample, from 1. int32[M].
    """

    info: jax.Array
    legal: jax.Array
    target: jax.Array
    iteration: jax.Array


class Memory(NamedTuple):
    """A reservoir; donate it to `add`.

    Attributes:
      samples: the slots; the first min(seen, M) are filled.
      seen: items ever offered, a 64-bit count as (low, high). uint32[2].
    """

    samples: Samples
    seen: jax.Array

    @property
    def capacity(self) -> int:
        """Slots, M."""
        return self.samples.iteration.shape[0]


class Block(NamedTuple):
    """Items of one step of `add`, in any order.

    Attributes:
      samples: what to store; `iteration` is filled in by `add`. Samples of K items.
      rank: each item's place among all items of this `add`. int32[K].
      valid: False for rows that are no item. bool[K].
    """

    samples: Samples
    rank: jax.Array
    valid: jax.Array


def bytes_needed(capacity: int, info_size: int, max_actions: int, rows: int = 1) -> int:
    """Bytes of a memory, its slots and its counter."""
    memory = jax.eval_shape(lambda: init(capacity, info_size, max_actions, rows))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(memory))


def init(capacity: int, info_size: int, max_actions: int, rows: int = 1) -> Memory:
    """An empty memory of `capacity` slots, whose targets have `rows` numbers an action."""
    target = (max_actions,) if rows == 1 else (rows, max_actions)
    samples = Samples(
        info=jnp.zeros((capacity, info_size), jnp.uint8),
        legal=jnp.zeros((capacity, max_actions), bool),
        target=jnp.zeros((capacity, *target), jnp.float32),
        iteration=jnp.zeros((capacity,), jnp.int32),
    )
    return Memory(samples, jnp.zeros((2,), jnp.uint32))


def clear(memory: Memory) -> Memory:
    """The memory without its items."""
    return memory._replace(seen=jnp.zeros_like(memory.seen))


def size(memory: Memory) -> jax.Array:
    """Filled slots; int32[]."""
    low, high = memory.seen
    filled = jnp.minimum(low, jnp.uint32(memory.capacity)).astype(jnp.int32)
    return jnp.where(high > 0, jnp.int32(memory.capacity), filled)


@jax.named_scope("memory")
def add(
    memory: Memory,
    block_at: Callable[[jax.Array], Block],
    num_blocks: jax.Array,
    total: jax.Array,
    first: jax.Array,
    iteration: jax.Array,
    key: jax.Array,
) -> Memory:
    """Offers items of an iteration to the reservoir, a block at a time.

    Args:
      memory: the reservoir.
      block_at: the block of an index below `num_blocks`, all of one size.
      num_blocks: int32[].
      total: valid items of all blocks; their ranks are 0 .. total - 1. int32[].
      first: items of the iteration offered by earlier calls with this key. int32[].
      iteration: iteration stored with the items. int32[].
      key: key of the iteration; an item draws from it and `first` + its rank alone.

    Returns:
      the memory. Of the items of this call that fall on one slot the highest rank stays,
      as if they had been added one by one.
    """
    capacity = memory.capacity
    owner = jnp.full((capacity,), -1, jnp.int32)

    def write(index: jax.Array, carry: tuple[Samples, jax.Array]):
        slots, owner = carry
        block = block_at(index)
        slot = _draw_slots(memory, block.rank, first, key)
        slot = jnp.where(block.valid, slot, capacity)
        owner = owner.at[slot].max(block.rank, mode="drop")
        stays = owner[jnp.minimum(slot, capacity - 1)] == block.rank
        slot = jnp.where(stays, slot, capacity)
        items = block.samples._replace(iteration=jnp.full_like(block.rank, iteration))
        slots = jax.tree.map(lambda old, new: old.at[slot].set(new, mode="drop"), slots, items)
        return slots, owner

    slots, _ = jax.lax.fori_loop(0, num_blocks, write, (memory.samples, owner))
    return Memory(slots, _count(memory.seen, total))


@jax.named_scope("draw")
def draw_batch(memory: Memory, key: jax.Array, batch_size: int) -> Samples:
    """Samples drawn with replacement from the filled slots. Consumes `key`."""
    filled = jnp.maximum(size(memory), 1)
    rows = jax.random.randint(key, (batch_size,), 0, filled)
    return jax.tree.map(lambda leaf: leaf[rows], memory.samples)


def _draw_slots(memory: Memory, rank: jax.Array, first: jax.Array, key: jax.Array) -> jax.Array:
    """The slot each item takes, M where the reservoir passes it by; int32[K].

    The i-th item is accepted with probability M / i, computed in float32: its relative
    error of 1e-7 is far below what any number of draws could show.
    """
    low, high = memory.seen
    seen = low.astype(jnp.float32) + high.astype(jnp.float32) * 2.0**32
    position = seen + rank.astype(jnp.float32) + 1.0
    filled = size(memory)
    is_free = rank < memory.capacity - filled

    def draw(item: jax.Array) -> tuple[jax.Array, jax.Array]:
        accept_key, slot_key = jax.random.split(jax.random.fold_in(key, item))
        slot = jax.random.randint(slot_key, (), 0, memory.capacity)
        return jax.random.uniform(accept_key), slot

    uniform, slot = jax.vmap(draw)(first + rank)
    is_accepted = uniform * position < memory.capacity
    return jnp.where(is_free, filled + rank, jnp.where(is_accepted, slot, memory.capacity))


def _count(seen: jax.Array, total: jax.Array) -> jax.Array:
    low = seen[0] + total.astype(jnp.uint32)
    return jnp.stack([low, seen[1] + (low < seen[0]).astype(jnp.uint32)])
