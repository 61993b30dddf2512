"""Tabular Monte Carlo CFR on the lockstep machine: a table in place of the networks.

The same traversals as Deep CFR, with regrets and strategy sums kept exactly for every info
state of a game small enough to list (Lanctot et al. 2009, external sampling). It shows what
the networks cost, and what they would converge to.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax.arrays import along_last
from lostcities_jax.exact.tree import GameTree
from lostcities_jax.games.game import Game
from lostcities_jax.regret import advantage_targets, regret_matching
from lostcities_jax.traversal.lockstep import Seat, Summary, traverse
from lostcities_jax.traversal.plan import Plan
from lostcities_jax.traversal.tape import NodeValues, Tape, sweep

_HASH_BITS_ABOVE = 11  # slots for each info state, as a power of two: then few tries suffice
_TRIES = 10_000


class Tables(NamedTuple):
    """What tabular CFR adds up, by info id, with a last row that nobody reads.

    Attributes:
      regrets: float32[infos + 1, A].
      strategy_sums: float32[infos + 1, A].
    """

    regrets: jax.Array
    strategy_sums: jax.Array


def init(tree: GameTree) -> Tables:
    """Tables of zeros: the uniform strategy."""
    shape = (len(tree.infos.player) + 1, tree.infos.legal.shape[1])
    return Tables(jnp.zeros(shape, jnp.float32), jnp.zeros(shape, jnp.float32))


def average_strategy(tree: GameTree, tables: Tables) -> np.ndarray:
    """The average strategy by info id, uniform where nobody has been; float64[infos, A]."""
    sums = np.asarray(tables.strategy_sums[:-1], np.float64)
    total = sums.sum(-1, keepdims=True)
    legal = tree.infos.legal
    uniform = legal / legal.sum(-1, keepdims=True)
    return np.where(total > 0, sums / np.where(total > 0, total, 1.0), uniform)


def make_iterations(
    game: Game, tree: GameTree, plan: Plan, count: int
) -> Callable[[Tables, jax.Array, jax.Array], tuple[Tables, jax.Array]]:
    """Builds `(tables, first iteration, key) -> (tables, counters)` of `count` iterations.

    Each iteration traverses once as each player; iteration t weighs t (linear CFR, Brown and
    Sandholm 2019). The tables are donated, the key is not consumed. The counters are the
    nodes, and the traversals without room on tape or stack, which must be 0; int32[2].

    Raises:
      ValueError: for a plan that samples one action by a policy that changes: then an info
        state is visited with a probability of its own in every iteration, and sums of what
        is found there are biased.
    """
    if plan.branches == 0:
        raise ValueError("tabular CFR samples outcomes; allowed: external or robust sampling")
    lookup = perfect_index(tree.infos.packed)

    def policy(
        regrets: jax.Array, info: jax.Array, legal: jax.Array, head: int
    ) -> tuple[jax.Array, jax.Array]:
        del head
        rows = regrets[lookup(info)][..., : legal.shape[-1]]
        return regret_matching(rows, legal, "uniform")

    def half_iteration(tables: Tables, traverser: int, iteration: jax.Array, key: jax.Array):
        first, second = (
            Seat(tables.regrets, jnp.float32(0.0), jnp.asarray(player == traverser))
            for player in (0, 1)
        )
        tape, summary = traverse(
            game,
            (policy, policy),
            plan,
            (first, second),
            jax.random.fold_in(jax.random.fold_in(key, iteration), traverser),
            jnp.int32(0),
            jnp.int32(plan.quota),
        )
        values = sweep(game, tape, levels=plan.levels(game))
        weight = iteration.astype(jnp.float32)
        return _add(game, lookup, tables, tape, values, traverser, weight), _counters(summary)

    def iterations(tables: Tables, first: jax.Array, key: jax.Array) -> tuple[Tables, jax.Array]:
        def one(index: jax.Array, carry: tuple[Tables, jax.Array]):
            tables, counters = carry
            for traverser in (0, 1):
                tables, counted = half_iteration(tables, traverser, first + index, key)
                counters = counters + counted
            return tables, counters

        return jax.lax.fori_loop(0, count, one, (tables, jnp.zeros((2,), jnp.int32)))

    return jax.jit(iterations, donate_argnums=0)


def _add(
    game: Game,
    lookup: Callable[[jax.Array], jax.Array],
    tables: Tables,
    tape: Tape,
    values: tuple[NodeValues, ...],
    traverser: int,
    weight: jax.Array,
) -> Tables:
    """Adds the decisions of a tape: regrets of the traverser, strategies of the other player."""

    def add_cycle(index: jax.Array, tables: Tables) -> Tables:
        regrets, sums = tables
        for k, phase in enumerate(game.phases):
            rows, found = jax.tree.map(lambda leaf: leaf[index], (tape.rows[k], values[k]))
            unread = regrets.shape[0] - 1
            at = jnp.where(rows.live, lookup(rows.info), unread)
            padding = ((0, 0), (0, regrets.shape[1] - phase.num_actions))
            if phase.player == traverser:
                target = advantage_targets(found.corrections, found.node_value, rows.legal)
                regrets = regrets.at[at].add(weight * jnp.pad(target, padding))
            else:
                sums = sums.at[at].add(weight * jnp.pad(rows.strategy, padding))
        return Tables(regrets, sums)

    return jax.lax.fori_loop(0, tape.length, add_cycle, tables)


def _counters(summary: Summary) -> jax.Array:
    lost = (~summary.finished).sum(dtype=jnp.int32) + summary.overflows
    return jnp.stack([summary.decisions.sum(dtype=jnp.int32), lost])


def perfect_index(packed: np.ndarray) -> Callable[[jax.Array], jax.Array]:
    """A function from packed info states uint8[..., I] to their rows in `packed`, int32[...].

    One multiplication, a shift and a look-up: multipliers are tried until no two of the
    states meet. Other states get some row.
    """
    bits = max(int(np.ceil(np.log2(len(packed)))) + _HASH_BITS_ABOVE, 8)
    source = np.random.default_rng(0)
    for _ in range(_TRIES):
        multipliers = source.integers(1, 2**32, packed.shape[1], dtype=np.uint32) | np.uint32(1)
        slots = (packed * multipliers).sum(-1, dtype=np.uint32) >> np.uint32(32 - bits)
        if len(np.unique(slots)) == len(packed):
            break
    else:
        raise AssertionError(f"no perfect hash of {len(packed)} info states")
    table = np.zeros(2**bits, np.int32)
    table[slots] = np.arange(len(packed))

    def index(info: jax.Array) -> jax.Array:
        mixed = info.astype(jnp.uint32) * along_last(multipliers, info.ndim)
        return jnp.asarray(table)[mixed.sum(-1, dtype=jnp.uint32) >> np.uint32(32 - bits)]

    return index
