"""Outcome-sampling traversal of many games in lockstep (Lanctot et al. 2009).

One loop body holds the phases of a cycle, so every lane is at the same kind of decision and
the network sees one full-width batch for each. Both seats run the same code: the traverser
is the seat whose sampling policy explores, and a node's value follows from its child's by
the same rule for both (the opponent samples from its strategy, so the ratio there is 1).
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lostcities_jax.games.game import Game, GameState
from lostcities_jax.lanes import (
    Decision,
    Lanes,
    deal_episodes,
    episode_keys,
    fill_lanes,
    play_cycle,
    refill,
)
from lostcities_jax.regret import explore, sample_action, select_action
from lostcities_jax.traversal.tape import Ends, Rows, Tape, append, blank_tape

# (params, packed info uint8[B, I], legal bool[B, A], head) -> strategy float32[B, A] and
# whether it fell back bool[B]
TraversalPolicy = Callable[..., tuple[jax.Array, jax.Array]]


@dataclasses.dataclass(frozen=True)
class Plan:
    """The static sizes of a traversal batch.

    Attributes:
      width: lanes, B.
      quota: traversals to start and finish.
      max_depth: decisions after which a traversal is cut at the score as it stands; 0: none.
      has_critic: whether the tape keeps open info states.
    """

    width: int
    quota: int
    max_depth: int = 0
    has_critic: bool = False

    def tape_cycles(self, game: Game) -> int:
        """Cycles that suffice for any traversals: greedy refill wastes at most one episode."""
        episode = game.max_cycles
        if self.max_depth:
            episode = min(episode, -(-self.max_depth // len(game.phases)))
        return episode * -(-self.quota // self.width)


class Seat(NamedTuple):
    """How one player acts in a batch.

    Attributes:
      params: what the policy function takes.
      epsilon: exploration of the sampling policy: 0 for the opponent. float32[].
    """

    params: Any
    epsilon: jax.Array


class Summary(NamedTuple):
    """What happened to each traversal of the quota.

    Attributes:
      decisions: decisions of each player. int32[quota, P].
      timeout: ended by the turn limit. bool[quota].
      cut: ended by the depth limit. bool[quota].
      finished: bool[quota]; False anywhere means the tape was too short.
      fallbacks: decisions of each player at which regret matching fell back. int32[P].
    """

    decisions: jax.Array
    timeout: jax.Array
    cut: jax.Array
    finished: jax.Array
    fallbacks: jax.Array


def traverse(
    game: Game,
    policy: TraversalPolicy,
    plan: Plan,
    seats: tuple[Seat, Seat],
    key: jax.Array,
    first: jax.Array,
    count: jax.Array,
    initial: GameState | None = None,
) -> tuple[Tape, Summary]:
    """Runs traversals `first` .. `first + count - 1` to their ends.

    Args:
      game: the game; static.
      policy: the policy function of both seats; static.
      plan: static sizes; `count` may be at most its quota.
      seats: how player 0 and player 1 act.
      key: key of the iteration and traverser; every draw is folded from it and the
        traversal's own index. Not consumed.
      first: index of the first traversal within the iteration. int32[].
      count: traversals to run. int32[].
      initial: first states instead of dealt ones, batched over the quota.

    Returns:
      the tape and what became of each traversal.
    """
    if initial is None:
        initial = deal_episodes(game, key, first + jnp.arange(plan.quota))
    capacity = plan.tape_cycles(game)

    def keep_going(carry: tuple[Lanes, Tape, Summary]) -> jax.Array:
        lanes, tape, _ = carry
        return lanes.active.any() & (tape.length < capacity)

    def cycle(carry: tuple[Lanes, Tape, Summary]) -> tuple[Lanes, Tape, Summary]:
        before, tape, summary = carry
        keys = episode_keys(key, first + before.episode)

        def decide(decision: Decision) -> tuple[jax.Array, tuple[Rows, jax.Array]]:
            return _decide(game, policy, plan, seats, before, decision)

        lanes, records = play_cycle(game, before, keys, decide, plan.max_depth)
        rows = tuple(row for row, _ in records)
        ended = before.active & ~lanes.active
        fallbacks = [fell_back for _, fell_back in records]
        summary = _summarise(game, summary, rows, fallbacks, ended, lanes)
        ends = Ends(before.episode, ended, jax.vmap(game.value)(lanes.state))
        return refill(lanes, initial, count), append(tape, rows, ends), summary

    lanes = fill_lanes(initial, count, plan.width)
    tape = blank_tape(game, plan.width, capacity, plan.has_critic)
    _, tape, summary = jax.lax.while_loop(keep_going, cycle, (lanes, tape, _blank(plan.quota)))
    return tape, summary


def _decide(
    game: Game,
    policy: TraversalPolicy,
    plan: Plan,
    seats: tuple[Seat, Seat],
    lanes: Lanes,
    decision: Decision,
) -> tuple[jax.Array, tuple[Rows, jax.Array]]:
    """Samples the actions of one phase; its tape row, and how many lanes fell back."""
    phase = game.phases[decision.phase]
    params, epsilon = seats[phase.player]
    strategy, fell_back = policy(params, decision.info, decision.legal, phase.head)
    sampling = explore(strategy, decision.legal, epsilon)
    action = sample_action(sampling, decision.uniform)
    own_phases = game.phases_of(phase.player)
    row = Rows(
        info=decision.info,
        open_info=_observe_open(game, decision) if plan.has_critic else None,
        legal=decision.legal,
        strategy=strategy,
        action=action,
        strategy_of_action=select_action(strategy, action),
        probability=select_action(sampling, action),
        rank=lanes.cycle * len(own_phases) + own_phases.index(decision.phase),
        live=decision.live,
    )
    return action, (row, (fell_back & decision.live).sum(dtype=jnp.int32))


def _observe_open(game: Game, decision: Decision) -> jax.Array:
    return jax.vmap(lambda state: game.observe_open(state, decision.phase))(decision.state)


def _blank(quota: int) -> Summary:
    flags = jnp.zeros((quota,), bool)
    return Summary(
        decisions=jnp.zeros((quota, 2), jnp.int32),
        timeout=flags,
        cut=flags,
        finished=flags,
        fallbacks=jnp.zeros((2,), jnp.int32),
    )


def _summarise(
    game: Game,
    summary: Summary,
    rows: tuple[Rows, ...],
    fallbacks: list[jax.Array],
    ended: jax.Array,
    lanes: Lanes,
) -> Summary:
    """Enters the traversals that ended in a cycle."""
    decided = jnp.stack(
        [
            sum(rows[k].live.astype(jnp.int32) for k in game.phases_of(player))
            + (lanes.cycle - 1) * len(game.phases_of(player))
            for player in (0, 1)
        ],
        axis=-1,
    )
    # Lanes that did not end write behind the last entry, which drops the write.
    at = jnp.where(ended, lanes.episode, summary.finished.shape[0])
    over = jax.vmap(game.is_terminal)(lanes.state)
    fell_back = [sum(fallbacks[k] for k in game.phases_of(player)) for player in (0, 1)]
    return Summary(
        decisions=summary.decisions.at[at].set(decided, mode="drop"),
        timeout=summary.timeout.at[at].set(jax.vmap(game.is_timeout)(lanes.state), mode="drop"),
        cut=summary.cut.at[at].set(~over, mode="drop"),
        finished=summary.finished.at[at].set(True, mode="drop"),
        fallbacks=summary.fallbacks + jnp.stack(fell_back),
    )
