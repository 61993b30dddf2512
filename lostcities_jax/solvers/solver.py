"""What a training run asks of a solver, whatever it solves with."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax

from lostcities_jax.memory import Memory
from lostcities_jax.traversal.statistics import Statistics

# (name, title) -> a context that is open while a phase runs: its name in the metrics, and what
# people read
Phases = Callable[[str, str], AbstractContextManager[None]]


class Report(NamedTuple):
    """What an iteration tells of itself.

    Attributes:
      statistics: of each batch of traversals, on the host.
      losses: of each fit, the means of its first and its last tenth. float32[2] each.
    """

    statistics: list[Statistics]
    losses: dict[str, jax.Array]


class Solver(NamedTuple):
    """A solver of one configuration; iterations count from 1, states are pytrees.

    Attributes:
      init: `() -> state`.
      iterate: `(state, iteration, phases) -> (state, Report)`; donates the state.
      prepare: the same, fitting what only a policy that is measured or saved needs.
      prepares_always: whether an iteration needs what `prepare` fits.
      memories: `state -> memories by name`, for the metrics.
      split: `state -> (policy, training)`: the trees that a checkpoint keeps, first what there
        is to play with, then the rest, with `strategy`, what `prepare` fits, in both.
      join: the inverse; the strategy is that of `training`, if it has one, and memories that no
        checkpoint keeps are empty.
      close: ends what was started.
    """

    init: Callable[[], Any]
    iterate: Callable[[Any, int, Phases], tuple[Any, Report]]
    prepare: Callable[[Any, int, Phases], tuple[Any, Report]]
    prepares_always: bool
    memories: Callable[[Any], dict[str, Memory]]
    split: Callable[[Any], tuple[dict[str, Any], dict[str, Any]]]
    join: Callable[[dict[str, Any], dict[str, Any]], Any]
    close: Callable[[], None]
