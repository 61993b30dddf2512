"""Many suspended traversals in one thread: their network calls are batched.

Each call takes the group and head that most traversals wait for, which keeps them together: a
traversal that waits longer only meets more company. A finished traversal's place is taken by the
next one at once.
"""

from collections.abc import Generator
from typing import NamedTuple

import jax
import numpy as np

from lostcities_jax.games.game import Game
from lostcities_jax.schedulers.answers import (
    Answers,
    Calls,
    Players,
    Request,
    make_answer,
)
from lostcities_jax.schedulers.collected import Collected, collect, traversal_keys
from lostcities_jax.schedulers.host_game import host_game
from lostcities_jax.schedulers.walk import Walk, walk
from lostcities_jax.traversal.plan import Plan

Kind = tuple[int, int]  # group and head


class Suspended(NamedTuple):
    """A traversal that waits for an answer.

    Attributes:
      index: of the traversal.
      steps: the walk.
      row: the row of its request. uint8[].
    """

    index: int
    steps: Generator[Request, np.ndarray, Walk]
    row: np.ndarray


def run(
    game: Game, players: Players, plan: Plan, answers: Answers, key: jax.Array, trace: float = 1.0
) -> Collected:
    """Runs the traversals of a batch, `plan.width` at a time; else as `recursive.run`."""
    compiled = host_game(game, plan.branches, plan.has_critic)
    answer = make_answer(game, players, plan.branches, plan.has_critic)
    keys = traversal_keys(key, plan.quota)
    walks: dict[int, Walk] = {}
    waiting: dict[Kind, list[Suspended]] = {}
    started = calls = rows = 0

    def wait(index: int, steps: Generator[Request, np.ndarray, Walk], request: Request) -> None:
        kind = (request.group, request.head)
        waiting.setdefault(kind, []).append(Suspended(index, steps, request.row))

    def start_next() -> None:
        nonlocal started
        if started < plan.quota:
            steps = walk(compiled, plan, trace, keys[started])
            wait(started, steps, next(steps))
            started += 1

    for _ in range(plan.width):
        start_next()
    while waiting:
        kind = max(waiting, key=lambda kind: len(waiting[kind]))
        asking = waiting.pop(kind)
        found = answer(answers, *kind, np.stack([suspended.row for suspended in asking]))
        calls, rows = calls + 1, rows + len(asking)
        for (index, steps, _), row in zip(asking, found, strict=True):
            try:
                wait(index, steps, steps.send(row))
            except StopIteration as end:
                walks[index] = end.value
                start_next()
    return collect([walks[index] for index in range(plan.quota)], Calls(calls, rows))
