"""The reservoirs: the law of algorithm R, whatever the batches, blocks and devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lostcities_jax import memory
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.rules import CLASSIC

INFO, ACTIONS = 3, 2


def items(ids):
    """Items that carry their number in every field."""
    ids = jnp.asarray(ids, jnp.int32)
    return memory.Samples(
        info=jnp.tile(ids[:, None].astype(jnp.uint8), (1, INFO)),
        legal=jnp.ones((len(ids), ACTIONS), bool),
        target=jnp.tile(ids[:, None].astype(jnp.float32), (1, ACTIONS)),
        iteration=jnp.zeros_like(ids),
    )


def add_batch(reservoir, start, count, key, block=4, first=0, order=None):
    """Adds items start .. start + count - 1 in blocks; `order` shuffles their places."""
    order = np.arange(count) if order is None else order
    padded = np.concatenate([order, np.zeros(-count % block, int)])
    valid = jnp.arange(len(padded)) < count

    def block_at(index):
        at = index * block + jnp.arange(block)
        rank = jnp.asarray(padded, jnp.int32)[at]
        return memory.Block(
            jax.tree.map(lambda leaf: leaf[rank], items(start + np.arange(count))),
            rank,
            valid[at],
        )

    return memory.add(
        reservoir,
        block_at,
        jnp.int32(len(padded) // block),
        jnp.int32(count),
        jnp.int32(first),
        jnp.int32(1),
        key,
    )


def contents(reservoir):
    return np.asarray(reservoir.samples.target)[: int(memory.size(reservoir)), 0]


def test_the_first_items_fill_the_slots_in_order():
    reservoir = add_batch(memory.init(10, INFO, ACTIONS), 1, 6, jax.random.key(0))
    np.testing.assert_array_equal(contents(reservoir), [1, 2, 3, 4, 5, 6])
    np.testing.assert_array_equal(reservoir.seen, [6, 0])
    np.testing.assert_array_equal(reservoir.samples.iteration[:6], np.ones(6))


@pytest.mark.parametrize("batches", [(24,), (3, 9, 12), (10, 14)])
def test_every_item_and_every_pair_of_items_is_kept_equally_often(batches):
    capacity, draws, total = 6, 6000, sum(batches)

    def fill(key):
        reservoir = memory.init(capacity, INFO, ACTIONS)
        start = 0
        for batch, count in enumerate(batches):
            reservoir = add_batch(reservoir, start, count, jax.random.fold_in(key, batch), block=5)
            start += count
        return reservoir.samples.target[:, 0]

    kept = np.asarray(jax.jit(jax.vmap(fill))(jax.random.split(jax.random.key(7), draws)))
    is_kept = (kept[:, :, None] == np.arange(total)).any(1).astype(float)
    assert (is_kept.sum(1) == capacity).all()
    single = capacity / total
    error = np.sqrt(single * (1 - single) / draws)
    assert np.abs(is_kept.mean(0) - single).max() < 4.5 * error
    pair = single * (capacity - 1) / (total - 1)
    pairs = (is_kept.T @ is_kept / draws)[np.triu_indices(total, 1)]
    assert np.abs(pairs - pair).max() < 5 * np.sqrt(pair * (1 - pair) / draws)


def test_a_batch_leaves_what_adding_its_items_one_by_one_leaves():
    """Algorithm R in plain Python, with the slots the reservoir drew for single items."""
    capacity, count, key = 7, 40, jax.random.key(3)
    whole = add_batch(memory.init(capacity, INFO, ACTIONS), 0, count, key, block=8)
    single = memory.init(capacity, INFO, ACTIONS)
    add_one = jax.jit(
        lambda reservoir, item: memory.add(
            reservoir,
            lambda _: memory.Block(items(item[None]), jnp.zeros(1, jnp.int32), jnp.ones(1, bool)),
            jnp.int32(1),
            jnp.int32(1),
            item,
            jnp.int32(1),
            key,
        )
    )
    for item in range(count):
        single = add_one(single, jnp.int32(item))
    np.testing.assert_array_equal(contents(whole), contents(single))


def test_the_contents_do_not_depend_on_blocks_or_the_order_within_a_batch():
    key, count = jax.random.key(5), 60
    plain = add_batch(memory.init(9, INFO, ACTIONS), 0, count, key, block=4)
    shuffled = np.random.default_rng(0).permutation(count)
    other = add_batch(memory.init(9, INFO, ACTIONS), 0, count, key, block=7, order=shuffled)
    np.testing.assert_array_equal(contents(plain), contents(other))


def test_an_iteration_added_in_two_parts_equals_the_whole():
    key = jax.random.key(6)
    whole = add_batch(memory.init(9, INFO, ACTIONS), 0, 50, key)
    parts = add_batch(memory.init(9, INFO, ACTIONS), 0, 20, key)
    parts = add_batch(parts, 20, 30, key, first=20)
    np.testing.assert_array_equal(contents(whole), contents(parts))
    np.testing.assert_array_equal(whole.seen, parts.seen)


def test_the_count_of_items_seen_goes_beyond_32_bits():
    reservoir = memory.init(4, INFO, ACTIONS)._replace(seen=jnp.array([2**32 - 3, 5], jnp.uint32))
    reservoir = add_batch(reservoir, 0, 8, jax.random.key(0))
    np.testing.assert_array_equal(reservoir.seen, [5, 6])
    assert int(memory.size(reservoir)) == 4
    assert (np.asarray(reservoir.samples.target) == 0).all()  # 8 among 2e10 are not kept


def test_batches_are_drawn_uniformly_from_the_filled_slots():
    reservoir = add_batch(memory.init(50, INFO, ACTIONS), 10, 8, jax.random.key(0))
    batch = memory.draw_batch(reservoir, jax.random.key(1), 16_000)
    counts = np.bincount(np.asarray(batch.target[:, 0], int), minlength=18)
    assert counts[:10].sum() == 0
    assert np.abs(counts[10:] - 2000).max() < 4.5 * np.sqrt(2000 * 7 / 8)


def test_a_memory_of_two_million_classic_samples_is_under_a_gigabyte():
    game = lost_cities(CLASSIC)
    assert memory.bytes_needed(2_000_000, game.info_size, game.max_actions) < 1e9
    small = memory.init(1000, game.info_size, game.max_actions)
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(small))
    assert memory.bytes_needed(1000, game.info_size, game.max_actions) == held


def test_adding_donates_the_memory():
    add = jax.jit(functools.partial(add_batch, start=0, count=4), donate_argnums=0)
    reservoir = memory.init(4, INFO, ACTIONS)
    add(reservoir, key=jax.random.key(0))
    assert reservoir.samples.info.is_deleted()
