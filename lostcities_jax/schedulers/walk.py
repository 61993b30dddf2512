"""One traversal as a depth-first walk: a generator that suspends wherever it needs a network.

The same mathematics as `traversal.lockstep` and `traversal.tape`, written for one game at a
time. The way back up keeps its decisions on a list rather than on Python's own stack, which
long games would overflow.
"""

import dataclasses
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import numpy as np

from lostcities_jax.schedulers.answers import CRITIC_GROUP, Request
from lostcities_jax.schedulers.host_game import HostGame, Layout, Position
from lostcities_jax.traversal.plan import Plan
from lostcities_jax.traversal.samples import Decisions
from lostcities_jax.traversal.tape import Baseline, Branch, NodeValues, Rows


class Walk(NamedTuple):
    """A finished traversal.

    Attributes:
      decisions: its decisions in the order of their evaluation, actions padded to the widest
        phase. NumPy arrays over n.
      player: who decided. uint8[n].
      fallbacks: decisions of each player at which regret matching fell back. int32[P].
      timeout: a path ended by the turn limit.
      cut: a path ended by the depth or node limit.
    """

    decisions: Decisions
    player: np.ndarray
    fallbacks: np.ndarray
    timeout: bool
    cut: bool


@dataclasses.dataclass
class _Node:
    """A decision while its actions are followed; arrays float32[A] from its mover's view.

    Attributes:
      position: where it is made.
      sign: 1 where player 0 decides, else -1.
      depth: decisions of the path up to and with it.
      answer: the policy's answer, see `Layout`.
      explored: actions that are followed. bool[A].
      baseline: the critic's action values; zeros without one.
      of_node: mean of the baseline under the strategy.
      values: what came of each followed action.
      returns: the same with the critic's values mixed in.
      action: the action that is being followed.
      remaining: those to follow later, ascending.
      corrections, node_value: see `regret.node_value`; set when all have been followed.
    """

    position: Position
    sign: np.float32
    depth: int
    answer: np.ndarray
    explored: np.ndarray
    baseline: np.ndarray
    of_node: np.float32
    values: np.ndarray
    returns: np.ndarray
    action: int
    remaining: list[int]
    corrections: np.ndarray
    node_value: np.float32


def check_plan(plan: Plan) -> None:
    """Raises ValueError for what only the lockstep traversal does."""
    if plan.rollouts:
        raise ValueError(f"rollouts is {plan.rollouts}; allowed with this scheduler: 0")


def walk(
    game: HostGame, plan: Plan, trace: float, key_data: np.ndarray
) -> Generator[Request, np.ndarray, Walk]:
    """Walks a traversal to its end.

    Args:
      game: the game, compiled for the plan's branches and critic.
      plan: branches, limits, and whether there is a critic; the sizes do not matter here.
      trace: see `tape.sweep`.
      key_data: the traversal's key. uint32[2].

    Yields:
      requests; takes each one's answer, float32[W].
    """
    check_plan(plan)
    nodes: list[_Node] = []
    unfinished: list[_Node] = []
    timeout = cut = False
    depth = 0
    position = game.deal(key_data)
    while True:
        while not _is_at_end(plan, position, depth, len(nodes)):
            depth += 1
            node = yield from _decide(game, plan, position, depth)
            nodes.append(node)
            unfinished.append(node)
            position = game.step(position, node.action, key_data, len(nodes))
        timeout, cut = timeout or position.is_timeout, cut or not position.is_over
        value = later = position.value
        while unfinished:
            node = unfinished[-1]
            # A slice: rounding may once in a while sample an action behind the last one.
            node.values[node.action : node.action + 1] = node.sign * value
            node.returns[node.action : node.action + 1] = node.sign * later
            if node.remaining:
                break
            value, later = _close(unfinished.pop(), plan.has_critic, trace)
        if not unfinished:
            return _finished(game, plan, nodes, timeout, cut)
        node = unfinished[-1]
        node.action = node.remaining.pop(0)
        depth = node.depth
        position = game.step(node.position, node.action, key_data, len(nodes))


def _is_at_end(plan: Plan, position: Position, depth: int, decisions: int) -> bool:
    """Whether a path ends here, by the rules or by a limit."""
    too_deep = 0 < plan.max_depth <= depth
    return position.is_over or too_deep or 0 < plan.max_nodes <= decisions


def _decide(
    game: HostGame, plan: Plan, position: Position, depth: int
) -> Generator[Request, np.ndarray, _Node]:
    """Asks the mover's policy, and the critic if there is one."""
    layout, phase = game.layout, game.phases[position.phase]
    width = layout.num_actions
    answer = yield Request(phase.player, phase.head, position.seen[layout.policy_row])
    baseline, of_node = np.zeros(width, np.float32), np.float32(0.0)
    if plan.has_critic:
        values = yield Request(CRITIC_GROUP, phase.head, position.seen[layout.critic_row])
        baseline = values[:width]
        of_node = (answer[:width] * baseline).sum()
    explored = answer[width : 2 * width] > 0.0
    action = int(answer[2 * width])
    return _Node(
        position=position,
        sign=np.float32(1.0 if phase.player == 0 else -1.0),
        depth=depth,
        answer=answer,
        explored=explored,
        baseline=baseline,
        of_node=of_node,
        values=np.zeros(width, np.float32),
        returns=np.zeros(width, np.float32),
        action=action,
        remaining=[other for other in np.flatnonzero(explored).tolist() if other != action],
        corrections=baseline,
        node_value=of_node,
    )


def _close(node: _Node, has_critic: bool, trace: float) -> tuple[np.float32, np.float32]:
    """Values a node from its children; its value and return from player 0's view."""
    width = len(node.explored)
    strategy, explored = node.answer[:width], node.explored
    probability = np.where(explored, node.answer[2 * width + 1], np.float32(1.0))
    errors = (node.values - node.baseline) / probability
    node.corrections = np.where(explored, errors, np.float32(0.0))
    node.node_value = node.of_node + (strategy * node.corrections).sum()
    value = node.sign * node.node_value
    if not has_critic:
        return value, value
    weights = np.where(explored, strategy, np.float32(0.0))
    weights = weights / np.maximum(np.maximum(weights.sum(), probability), np.float32(1e-30))
    surprise = np.where(explored, node.returns - node.baseline, np.float32(0.0))
    later = node.of_node + np.float32(trace) * (weights * surprise).sum()
    return value, node.sign * later


def _finished(game: HostGame, plan: Plan, nodes: Sequence[_Node], timeout: bool, cut: bool) -> Walk:
    """The decisions of a traversal as arrays."""

    def stacked(name: str) -> Any:
        return np.stack([getattr(node, name) for node in nodes])

    phases = [game.phases[node.position.phase] for node in nodes]
    player = np.array([phase.player for phase in phases], np.uint8)
    answers = stacked("answer")
    values = NodeValues(
        corrections=stacked("corrections"),
        node_value=stacked("node_value"),
        child_returns=stacked("returns") if plan.has_critic else None,
    )
    baseline = Baseline(stacked("baseline"), stacked("of_node")) if plan.has_critic else None
    seen = np.stack([node.position.seen for node in nodes])
    rows = _rows(game.layout, plan.has_critic, seen, answers, player)
    fell_back = answers[:, -1] > 0.0
    fallbacks = np.array([(fell_back & (player == p)).sum() for p in (0, 1)], np.int32)
    return Walk(Decisions(rows, values, baseline), player, fallbacks, timeout, cut)


def _rows(layout: Layout, has_critic: bool, seen: Any, answers: Any, player: np.ndarray) -> Rows:
    """What a tape's rows would hold of the decisions."""
    width = layout.num_actions
    is_own = player[:, None] == np.arange(2, dtype=np.uint8)[None]
    before: Any = is_own.cumsum(0)[np.arange(len(player)), player] - 1
    unused: Any = np.zeros(len(player), np.uint8)
    return Rows(
        info=seen[:, layout.info],
        legal=seen[:, layout.legal] > 0,
        strategy=answers[:, :width],
        action=answers[:, 2 * width].astype(np.uint8),
        probability=answers[:, 2 * width + 1],
        rank=before.astype(np.int32),
        live=unused == 0,
        open_info=seen[:, layout.open_info] if has_critic else None,
        branch=Branch(answers[:, width : 2 * width] > 0.0, unused, unused > 0),
    )
