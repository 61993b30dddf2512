"""Traversal of many games in lockstep: outcome, external and robust sampling.

One loop body holds the phases of a cycle, so every lane is at the same kind of decision and
the network sees one full-width batch for each. Both seats run the same code: the traverser
is the seat whose sampling policy explores or branches, and a node's value follows from its
children's by the same rule for both (the opponent samples from its strategy, so the ratio there
is 1). A lane whose path ended goes back to its stack in the next cycle, at the phase of the
newest open decision; without branching there is no stack, and the lane takes the next traversal.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax.arrays import along_last, over_lanes
from lostcities_jax.games.game import Game, GameState
from lostcities_jax.lanes import (
    Decision,
    Lanes,
    any_active,
    deal_episodes,
    decision_uniforms,
    episode_keys,
    fill_lanes,
    look,
    move,
    refill,
)
from lostcities_jax.regret import Choice, choose_actions, num_uniforms
from lostcities_jax.traversal import stack as stacks
from lostcities_jax.traversal.plan import Plan
from lostcities_jax.traversal.rollouts import Cuts, no_cuts, note, play_out
from lostcities_jax.traversal.stack import Stack
from lostcities_jax.traversal.tape import Branch, Ends, Rows, Tape, append, blank_tape

# (params, packed info uint8[B, I], legal bool[B, A], head) -> strategy float32[B, A] and
# whether it fell back bool[B]
TraversalPolicy = Callable[..., tuple[jax.Array, jax.Array]]


class Seat(NamedTuple):
    """How one player acts in a batch.

    Attributes:
      params: what the policy function takes.
      epsilon: exploration of the sampling policy: 0 for the opponent. float32[].
      is_traverser: whether it branches. bool[].
    """

    params: Any
    epsilon: jax.Array
    is_traverser: jax.Array


class Paths(NamedTuple):
    """Where each lane's traversal is.

    Attributes:
      live: whether the lane is on a path that has not ended; else it waits for its stack, or
        for a traversal. bool[B].
      depth: decisions of the path. int32[B].
      decisions: decisions of each player in the traversal so far. int32[B, P].
      cuts: paths of the traversal that were cut so far. int32[B].
      stack: open decisions; None where no traversal branches.
    """

    live: jax.Array
    depth: jax.Array
    decisions: jax.Array
    cuts: jax.Array
    stack: Stack | None


class Summary(NamedTuple):
    """What happened to each traversal of the quota.

    Attributes:
      decisions: decisions of each player. int32[quota, P].
      timeout: a path ended by the turn limit. bool[quota].
      cut: a path ended by the depth or node limit. bool[quota].
      finished: bool[quota]; False anywhere means the tape was too short.
      fallbacks: decisions of each player at which regret matching fell back. int32[P].
      overflows: decisions that found no level of the stack; must be 0. int32[].
    """

    decisions: jax.Array
    timeout: jax.Array
    cut: jax.Array
    finished: jax.Array
    fallbacks: jax.Array
    overflows: jax.Array


class _Carry(NamedTuple):
    lanes: Lanes
    paths: Paths
    tape: Tape
    summary: Summary
    cuts: Cuts | None


def traverse(
    game: Game,
    policies: tuple[TraversalPolicy, TraversalPolicy],
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
      policies: the policy functions of player 0 and player 1; static.
      plan: static sizes; `count` may be at most its quota.
      seats: how player 0 and player 1 act.
      key: key of the iteration and traverser; every draw is folded from it, the
        traversal's own index and the decision's. Not consumed.
      first: index of the first traversal within the iteration. int32[].
      count: traversals to run. int32[].
      initial: first states instead of dealt ones, batched over the quota.

    Returns:
      the tape and what became of each traversal.
    """
    if initial is None:
        initial = deal_episodes(game, key, first + jnp.arange(plan.quota))
    capacity = plan.cycles(game)
    levels = plan.levels(game)

    def keep_going(carry: _Carry) -> jax.Array:
        return any_active(carry.lanes) & (carry.tape.length < capacity)

    def cycle(carry: _Carry) -> _Carry:
        lanes, before, tape, summary, cuts = carry
        keys = episode_keys(key, first + lanes.episode)
        state, paths = lanes.state, before
        waiting = lanes.active & ~before.live
        rows, fallbacks = [], []
        for k in range(len(game.phases)):
            state, paths, waiting, row, fell_back = _half_step(
                game, policies, plan, seats, keys, k, state, paths, waiting
            )
            rows.append(row)
            fallbacks.append(fell_back)
        has_returned = lanes.active & ~before.live & ~waiting
        path_ended = (before.live | has_returned) & ~paths.live
        ended = path_ended if paths.stack is None else path_ended & (paths.stack.size == 0)
        lanes = lanes._replace(state=state, active=lanes.active & ~ended)
        summary = _summarise(game, summary, lanes, paths, fallbacks, path_ended, ended)
        ends = Ends(lanes.episode, path_ended, jax.vmap(game.value)(state))
        if cuts is not None:
            is_cut = path_ended & ~jax.vmap(game.is_terminal)(state)
            cuts, places = note(cuts, is_cut, state, first + lanes.episode, paths.cuts)
            ends = ends._replace(cut=places)
            paths = paths._replace(cuts=paths.cuts + is_cut)
        refilled = refill(lanes, initial, count)
        started = refilled.active & ~lanes.active
        tape = append(tape, tuple(rows), ends)
        return _Carry(refilled, _restart(paths, started), tape, summary, cuts)

    lanes = fill_lanes(initial, count, plan.width)
    paths = Paths(
        live=lanes.active,
        depth=jnp.zeros((plan.width,), jnp.int32),
        decisions=jnp.zeros((plan.width, 2), jnp.int32),
        cuts=jnp.zeros((plan.width,), jnp.int32),
        stack=stacks.empty(game, lanes.state, levels) if levels else None,
    )
    tape = blank_tape(game, plan.width, capacity, plan.contents(game))
    cuts = no_cuts(initial, plan.cuts(game)) if plan.rollouts else None
    start = _Carry(lanes, paths, tape, _blank(plan.quota), cuts)
    end = jax.lax.while_loop(keep_going, cycle, start)
    tape, summary = end.tape, end.summary
    if end.paths.stack is not None:
        summary = summary._replace(overflows=end.paths.stack.overflows)
    if end.cuts is not None:
        tape = _with_rollouts(game, plan, tape, end.cuts, key)
    return tape, summary


def _with_rollouts(game: Game, plan: Plan, tape: Tape, cuts: Cuts, key: jax.Array) -> Tape:
    """The tape with cut paths valued by games played out from there."""
    assert tape.ends.cut is not None and plan.rollout_policy is not None
    means = play_out(game, plan.rollout_policy, plan.rollouts, plan.width, cuts, key)
    played_out = means[jnp.maximum(tape.ends.cut - 1, 0)]
    value = jnp.where(tape.ends.cut > 0, played_out, tape.ends.value)
    return tape._replace(ends=tape.ends._replace(value=value))


@jax.named_scope("policy")
def decide(
    policy: TraversalPolicy,
    branches: int,
    seat: Seat,
    info: jax.Array,
    legal: jax.Array,
    uniforms: jax.Array,
    head: int,
) -> tuple[jax.Array, Choice, jax.Array]:
    """What a seat does at decisions of one head: the policy call of every scheduler.

    Returns:
      strategy float32[B, A], the actions to follow, and whether regret matching fell back
      bool[B].
    """
    strategy, fell_back = policy(seat.params, info, legal, head)
    choice = choose_actions(branches, strategy, legal, seat.epsilon, seat.is_traverser, uniforms)
    return strategy, choice, fell_back


def _half_step(
    game: Game,
    policies: tuple[TraversalPolicy, TraversalPolicy],
    plan: Plan,
    seats: tuple[Seat, Seat],
    keys: jax.Array,
    k: int,
    state: GameState,
    paths: Paths,
    waiting: jax.Array,
) -> tuple[GameState, Paths, jax.Array, Rows, jax.Array]:
    """Phase `k` of a cycle in every lane.

    Returns:
      the states, the paths, the lanes that still wait for a phase to return at, the tape row,
      and how many lanes fell back.
    """
    phase = game.phases[k]
    uniforms = decision_uniforms(
        keys, paths.decisions.sum(-1), num_uniforms(plan.branches, phase.num_actions)
    )
    decision = look(game, state, k, paths.live, uniforms)
    strategy, choice, fell_back = decide(
        policies[phase.player],
        plan.branches,
        seats[phase.player],
        decision.info,
        decision.legal,
        uniforms,
        phase.head,
    )
    decides = decision.live
    row = Rows(
        info=decision.info,
        open_info=_observe_open(game, decision) if plan.has_critic else None,
        legal=decision.legal,
        strategy=strategy,
        action=choice.action,
        probability=choice.probability,
        rank=paths.decisions[:, phase.player],
        live=decides,
    )
    paths = _count(paths, decides, phase.player)
    action, moves, live = choice.action, decides, paths.live
    if paths.stack is not None:
        paths, row, state, action, is_due = _branch(k, paths, row, choice, state, waiting)
        waiting = waiting & ~is_due
        moves, live = decides | is_due, live | is_due
    may_rest = bool(plan.max_depth or plan.max_nodes or paths.stack is not None)
    state = move(game, state, k, action, moves, may_rest)
    live = live & ~jax.vmap(game.is_terminal)(state)
    if plan.max_depth:
        live = live & (paths.depth < plan.max_depth)
    if plan.max_nodes:
        live = live & (paths.decisions.sum(-1) < plan.max_nodes)
    fallbacks = (fell_back & decides).sum(dtype=jnp.int32)
    return state, paths._replace(live=live), waiting, row, fallbacks


def _branch(
    k: int, paths: Paths, row: Rows, choice: Choice, state: GameState, waiting: jax.Array
) -> tuple[Paths, Rows, GameState, jax.Array, jax.Array]:
    """Leaves other actions on the stack, and takes up those of the lanes that wait.

    Returns:
      paths, row, and the state, action and presence of the lanes that return.
    """
    stack = paths.stack
    assert stack is not None
    actions = along_last(np.arange(choice.explored.shape[-1]), 2)
    rest = choice.explored & (actions != choice.action[:, None])
    pushes = row.live & rest.any(-1)
    level = jnp.where(pushes, stack.size, jnp.maximum(stack.size - 1, 0)).astype(jnp.uint8)
    stack = stacks.push(stack, pushes, state, k, paths.depth, rest)
    stack, back = stacks.pop(stack, waiting, k)
    action = jnp.where(back.is_due, back.action, choice.action)
    branch = Branch(choice.explored, level, back.is_due)
    state = jax.tree.map(
        lambda old, new: jnp.where(over_lanes(back.is_due, old), old, new), back.state, state
    )
    paths = paths._replace(stack=stack, depth=jnp.where(back.is_due, back.depth, paths.depth))
    return paths, row._replace(action=action, branch=branch), state, action, back.is_due


def _count(paths: Paths, decides: jax.Array, player: int) -> Paths:
    own = along_last(np.arange(2) == player, 2)
    return paths._replace(
        depth=paths.depth + decides, decisions=paths.decisions + (own & decides[:, None])
    )


def _restart(paths: Paths, started: jax.Array) -> Paths:
    """Paths of lanes that began another traversal."""
    return paths._replace(
        live=paths.live | started,
        depth=jnp.where(started, 0, paths.depth),
        decisions=jnp.where(started[:, None], 0, paths.decisions),
        cuts=jnp.where(started, 0, paths.cuts),
    )


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
        overflows=jnp.int32(0),
    )


def _summarise(
    game: Game,
    summary: Summary,
    lanes: Lanes,
    paths: Paths,
    fallbacks: list[jax.Array],
    path_ended: jax.Array,
    ended: jax.Array,
) -> Summary:
    """Enters the paths and traversals that ended in a cycle."""
    quota = summary.finished.shape[0]
    # Lanes that did not end write behind the last entry, which drops the write.
    at_path = jnp.where(path_ended, lanes.episode, quota)
    at_end = jnp.where(ended, lanes.episode, quota)
    over = jax.vmap(game.is_terminal)(lanes.state)
    timeout = jax.vmap(game.is_timeout)(lanes.state)
    fell_back = [sum(fallbacks[k] for k in game.phases_of(player)) for player in (0, 1)]
    return summary._replace(
        decisions=summary.decisions.at[at_end].set(paths.decisions, mode="drop"),
        timeout=summary.timeout.at[at_path].max(timeout, mode="drop"),
        cut=summary.cut.at[at_path].max(~over, mode="drop"),
        finished=summary.finished.at[at_end].set(True, mode="drop"),
        fallbacks=summary.fallbacks + jnp.stack(fell_back),
    )
