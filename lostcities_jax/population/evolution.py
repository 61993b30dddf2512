"""Search by rounds: mutate what did best, measure all of a round side by side, and select.

What is searched, bots or settings of training, enters as functions. All lanes of a round meet the
same deals, so that their differences are their own; the next round has others, so that what
survives must do well again.
"""

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from lostcities_jax.errors import UserError

T = TypeVar("T")


class Score(NamedTuple):
    """How a lane did.

    Attributes:
      points: mean points ahead in a game; higher is better.
      error: their standard error.
      failure: why the lane is out, whatever its points; None for none.
    """

    points: float
    error: float
    failure: str | None = None


class Round(NamedTuple, Generic[T]):
    """The lanes of a round, their scores, and who survives it, best first.

    Attributes:
      lanes: what was measured.
      scores: one for each lane.
      survivors: places of the lanes that go on.
    """

    lanes: list[T]
    scores: list[Score]
    survivors: list[int]


def evolve(
    start: T,
    mutate: Callable[[T, np.random.Generator], T],
    measure: Callable[[Sequence[T], int], list[Score]],
    rounds: int,
    lanes: int,
    survivors: int,
    seed: int,
    told: Callable[[int, Round[T]], None] = lambda number, one: None,
) -> list[Round[T]]:
    """Searches by truncation selection: survivors go on as they are, beside mutations of them.

    Args:
      start: the first lane of the first round, whose other lanes are mutations of it.
      mutate: a changed copy.
      measure: `(lanes, round) -> scores`, rounds counted from 0.
      rounds: how many.
      lanes: of each round.
      survivors: lanes that go on to the next; fewer if others failed.
      seed: of the mutations.
      told: told of each round when it is over.

    Raises:
      UserError: if fewer lanes than survivors are asked for, or every lane of a round fails.
    """
    if not 1 <= survivors <= lanes:
        raise UserError(f"survivors is {survivors}; allowed: 1 to {lanes}, the number of lanes")
    random = np.random.default_rng(seed)
    parents, done = [start], []
    for number in range(rounds):
        missing = lanes - len(parents)
        children = [mutate(parents[place % len(parents)], random) for place in range(missing)]
        field = [*parents, *children]
        scores = measure(field, number)
        sound = [lane for lane, score in enumerate(scores) if score.failure is None]
        if not sound:
            raise UserError(f"all lanes of round {number} failed: {scores[0].failure}")
        best = sorted(sound, key=lambda lane: -scores[lane].points)[:survivors]
        done.append(Round(field, scores, best))
        parents = [field[lane] for lane in best]
        told(number, done[-1])
    return done


def failures_by_lane(rounds: Sequence[Round[T]]) -> dict[int, list[str]]:
    """Why lanes failed, each with its round, by the place of the lane."""
    causes: dict[int, list[str]] = {}
    for number, one in enumerate(rounds):
        for lane, score in enumerate(one.scores):
            if score.failure is not None:
                causes.setdefault(lane, []).append(f"round {number}: {score.failure}")
    return dict(sorted(causes.items()))
