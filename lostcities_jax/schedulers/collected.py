"""What a host scheduler returns of a batch, and its way into the memories.

Traversals are put in the order of their indices, whoever walked them and whenever: what is
collected depends on the key alone. Memories take it with the ranks and draws that they would
take the same samples with from a tape, see `samples.add_samples`.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax.games.game import Game
from lostcities_jax.lanes import episode_keys
from lostcities_jax.memory import Block, Memory, Samples, add, clear
from lostcities_jax.schedulers.answers import Calls
from lostcities_jax.schedulers.walk import Walk
from lostcities_jax.traversal import samples
from lostcities_jax.traversal.lockstep import Summary
from lostcities_jax.traversal.samples import Decisions, Target

_BLOCK_ROWS = 1024  # decisions that a memory takes at a time

# An advantage memory, the strategy memory, and the critic's, which may be missing.
MemoryTriple = tuple[Memory, Memory, Memory | None]


class Collected(NamedTuple):
    """A batch of finished traversals; n decisions of all of them, NumPy arrays.

    Attributes:
      decisions: by traversal, and within one in the order of evaluation; actions padded to
        the widest phase.
      player: who decided. uint8[n].
      traversal: index of the traversal. int32[n].
      summary: what became of the traversals, as the lockstep traversal tells it.
      calls: how network calls were batched.
    """

    decisions: Decisions
    player: np.ndarray
    traversal: np.ndarray
    summary: Summary
    calls: Calls


def traversal_keys(key: jax.Array, quota: int) -> np.ndarray:
    """The data of each traversal's key, as the lockstep traversal folds it; uint32[quota, 2].

    `key` is not consumed.
    """
    return np.asarray(jax.random.key_data(episode_keys(key, jnp.arange(quota))))


def collect(walks: Sequence[Walk], calls: Calls) -> Collected:
    """Puts the walks of traversals 0, 1, ... together."""
    player = np.concatenate([walk.player for walk in walks])
    traversal = np.repeat(
        np.arange(len(walks), dtype=np.int32), [len(walk.player) for walk in walks]
    )

    def each(values: list, dtype: Any) -> Any:
        return np.array(values, dtype)

    summary = Summary(
        decisions=each([np.bincount(walk.player, minlength=2) for walk in walks], np.int32),
        timeout=each([walk.timeout for walk in walks], bool),
        cut=each([walk.cut for walk in walks], bool),
        finished=each([True] * len(walks), bool),
        fallbacks=each([walk.fallbacks for walk in walks], np.int32).sum(0, dtype=np.int32),
        overflows=each([], np.int32).sum(dtype=np.int32),
    )
    joined = jax.tree.map(lambda *parts: np.concatenate(parts), *(walk.decisions for walk in walks))
    return Collected(joined, player, traversal, summary, calls)


def ranks(collected: Collected, players: Sequence[int]) -> np.ndarray:
    """Each decision's place in the order of a memory, -1 for decisions of others; int32[n].

    Ranks run over traversals, within one over the players, then over their decisions.
    """
    order = np.lexsort((collected.player, collected.traversal))  # stable: keeps evaluation order
    is_wanted = np.isin(collected.player, players)
    places = np.cumsum(is_wanted[order]) - 1
    found = np.empty(len(order), np.int32)
    found[order] = places
    return np.where(is_wanted, found, -1).astype(np.int32)


def make_remember_collected(
    game: Game, advantage_target: Callable[[Decisions], Target]
) -> Callable[..., MemoryTriple]:
    """Builds `(traverser, memories, collected, iteration, key) -> memories`.

    The memories, which are donated, come out as `solvers.remembering` leaves them after the
    lockstep traversal of the same batch and with the same key.
    """
    targets = (
        advantage_target,
        functools.partial(samples.strategy, game),
        functools.partial(samples.critic_return, game),
    )
    program = jax.jit(functools.partial(_add_all, targets), donate_argnums=0)

    def remember(
        traverser: int,
        memories: MemoryTriple,
        collected: Collected,
        iteration: int,
        key: jax.Array,
    ) -> MemoryTriple:
        advantage, strategy, critic = memories
        critic = None if critic is None else clear(critic)
        places = np.stack(
            [ranks(collected, players) for players in ((traverser,), (1 - traverser,), (0, 1))],
            axis=-1,
        )
        count = len(places)
        blocks = jax.tree.map(functools.partial(_in_blocks, fill=0), collected.decisions)
        return program(
            (advantage, strategy, critic),
            blocks,
            _in_blocks(places, fill=-1),
            jnp.int32(-(-count // _BLOCK_ROWS)),
            (places >= 0).sum(0, dtype=np.int32),
            jnp.int32(iteration),
            key,
        )

    return remember


def _in_blocks(array: np.ndarray, fill: int) -> np.ndarray:
    """Rows in blocks of `_BLOCK_ROWS`; [n, ...] to [blocks, rows, ...].

    There is a power of two of blocks, so that few programs are compiled.
    """
    blocks = 1 << (-(-len(array) // _BLOCK_ROWS) - 1).bit_length()
    padded = np.full((blocks * _BLOCK_ROWS, *array.shape[1:]), fill, array.dtype)
    padded[: len(array)] = array
    return padded.reshape(blocks, _BLOCK_ROWS, *array.shape[1:])


def _add_all(
    targets: tuple[Callable[[Decisions], Target], ...],
    memories: MemoryTriple,
    decisions: Any,
    places: jax.Array,
    num_blocks: jax.Array,
    totals: jax.Array,
    iteration: jax.Array,
    key: jax.Array,
) -> MemoryTriple:
    """Adds blocks of decisions to each memory; `places` int32[blocks, rows, 3]."""
    added = []
    for index, (make_target, memory) in enumerate(zip(targets, memories, strict=True)):
        if memory is None:
            added.append(None)
            continue

        def block_at(block: jax.Array, make_target=make_target, index=index) -> Block:
            at = functools.partial(jax.lax.dynamic_index_in_dim, index=block, keepdims=False)
            made = make_target(jax.tree.map(at, decisions))
            place = at(places)[:, index]
            items = Samples(made.info, made.legal, made.target, jnp.zeros_like(place))
            return Block(items, jnp.maximum(place, 0), place >= 0)

        memory_key = jax.random.fold_in(key, index)
        none_before = jnp.int32(0)
        added.append(
            add(memory, block_at, num_blocks, totals[index], none_before, iteration, memory_key)
        )
    return added[0], added[1], added[2]
