"""From a swept tape to the memories: which sample each decision leaves where.

Targets that a loss normalises over the actions count those that policies choose among, for it would
spread a policy over more than is played. Regrets and values count all, each by itself.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lostcities_jax.games.game import Game
from lostcities_jax.memory import Block, Memory, Samples, add
from lostcities_jax.regret import advantage_targets
from lostcities_jax.traversal.lockstep import Summary
from lostcities_jax.traversal.tape import Baseline, NodeValues, Rows, Tape


class Batch(NamedTuple):
    """A device's tape of finished traversals, with all that followed from it.

    Attributes:
      tape: the tape.
      values: its sweep, one entry a phase.
      baselines: what the sweep was given.
      summary: what became of the traversals.
    """

    tape: Tape
    values: tuple[NodeValues, ...]
    baselines: tuple[Baseline | None, ...]
    summary: Summary


class Decisions(NamedTuple):
    """One cycle's decisions of one phase, B lanes: what a sample is made of."""

    rows: Rows
    values: NodeValues
    baseline: Baseline | None


class Target(NamedTuple):
    """What a memory stores of decisions: info states, actions that count, and targets, which
    may have several rows an action: float32[B, A] or float32[B, K, A]."""

    info: jax.Array
    legal: jax.Array
    target: jax.Array


def sampled_advantage(decisions: Decisions) -> Target:
    """Regrets Q - v by importance weights, around the baseline if there is one: unbiased.

    Without a baseline these are the sampled counterfactual regrets of Lanctot et al. 2009
    (MCCFR; of outcome or external sampling), divided by the reach of the others, as the info
    state was reached by sampling it. With one they are those of the baseline-enhanced sampled
    values of Schmid et al. 2019 (VR-MCCFR), with a learned baseline over histories as in
    Steinberger et al. 2020 (DREAM). `regret.node_value` has the formula of both.
    """
    rows, values, baseline = decisions
    target = advantage_targets(values.corrections, values.node_value, rows.legal)
    if baseline is not None:
        target = target + baseline.action_values
    return Target(rows.info, rows.legal, target)


def critic_advantage(decisions: Decisions) -> Target:
    """Regrets q(h, a) - v(h) by the critic's values alone, without importance weights: as good
    as the critic, and of low variance (McAleer et al. 2023, ESCHER, its regret estimator)."""
    rows, _, baseline = decisions
    assert baseline is not None
    regrets = baseline.action_values - baseline.of_node[:, None]
    return Target(rows.info, rows.legal, jnp.where(rows.legal, regrets, 0.0))


def policy_advantage(game: Game, decisions: Decisions) -> Target:
    """Advantages of all actions beside the strategy that played, for a policy gradient.

    The action that was played has the lambda-return of `sweep` instead of the critic's value,
    in the way of a control variate: with G that return, q the critic's values, v their mean
    under the strategy p, and a the action, A(b) = q(b) - v + 1[b = a] (G - q(a)) / p(a). Its
    mean under p is G - q(a), so what is taken is on average what generalised advantage
    estimation (Schulman et al. 2016, equation 16) would take for the played action alone.
    """
    rows, values, baseline = decisions
    assert baseline is not None and values.child_returns is not None
    explored = rows.explored()
    probability = jnp.where(explored, rows.probability[:, None], 1.0)
    surprise = jnp.where(explored, values.child_returns - baseline.action_values, 0.0)
    advantages = baseline.action_values - baseline.of_node[:, None] + surprise / probability
    legal = _considered(game, rows)
    advantages = jnp.where(legal, advantages, 0.0)
    return Target(rows.info, legal, jnp.stack([advantages, rows.strategy], axis=-2))


def strategy(game: Game, decisions: Decisions) -> Target:
    """The mover's strategy."""
    rows = decisions.rows
    return Target(rows.info, _considered(game, rows), rows.strategy)


def critic_return(game: Game, decisions: Decisions) -> Target:
    """What was still to come of the explored actions; no other action counts."""
    rows, values, _ = decisions
    assert rows.open_info is not None and values.child_returns is not None
    explored = rows.explored()
    to_come = values.child_returns - game.standing(rows.open_info)[:, None]
    return Target(rows.open_info, explored, jnp.where(explored, to_come, 0.0))


def _considered(game: Game, rows: Rows) -> jax.Array:
    """The legal actions that policies choose among; rows of all heads may be mixed."""
    own_head, legal = game.head_of(rows.info), rows.legal
    for head in range(len(game.heads)):
        considered = game.considered(rows.info, rows.legal, head)
        legal = jnp.where((own_head == head)[:, None], considered, legal)
    return legal


def add_samples(
    game: Game,
    make_target: Callable[[Decisions], Target],
    players: tuple[int, ...],
    memory: Memory,
    batch: Batch,
    first: jax.Array,
    iteration: jax.Array,
    key: jax.Array,
) -> tuple[Memory, jax.Array]:
    """Adds the decisions of some players on a tape to a memory.

    Args:
      game: the game; static.
      make_target: one of the functions above; static.
      players: whose decisions; static.
      memory: the memory; donate it.
      batch: the swept tape.
      first: samples of the iteration that earlier tapes added. int32[].
      iteration: iteration stored with the samples. int32[].
      key: key of the iteration for this memory.

    Returns:
      the memory, and `first` for the next tape.
    """
    tape, values, baselines, summary = batch
    decisions = summary.decisions[:, jnp.array(players)]
    total = decisions.sum(dtype=jnp.int32)
    # Ranks run over traversals, within one over the players, then over their decisions.
    ends = jnp.cumsum(decisions.reshape(-1)).reshape(decisions.shape)
    starts = ends - decisions

    def block_at(index: jax.Array) -> Block:
        at = functools.partial(jax.lax.dynamic_index_in_dim, index=index, keepdims=False)
        traversal = at(tape.ends.traversal)
        blocks = []
        for column, player in enumerate(players):
            for k in game.phases_of(player):
                parts = jax.tree.map(at, (tape.rows[k], values[k], baselines[k]))
                block = _block(game, make_target, Decisions(*parts), k)
                blocks.append(block._replace(rank=block.rank + starts[traversal, column]))
        return jax.tree.map(lambda *parts: jnp.concatenate(parts), *blocks)

    memory = add(memory, block_at, tape.length, total, first, iteration, key)
    return memory, first + total


def _block(
    game: Game, make_target: Callable[[Decisions], Target], decisions: Decisions, k: int
) -> Block:
    """The samples of phase `k` in one cycle, actions padded to the widest phase."""
    missing = game.max_actions - game.phases[k].num_actions
    made = make_target(decisions)
    rows = decisions.rows

    def pad(array: jax.Array) -> jax.Array:
        return jnp.pad(array, ((0, 0),) * (array.ndim - 1) + ((0, missing),))

    samples = Samples(
        info=made.info,
        legal=pad(made.legal),
        target=pad(made.target),
        iteration=jnp.zeros_like(rows.rank),
    )
    return Block(samples, rows.rank, rows.live)
