"""What other processes need to know to take part in traversals: small, and spawn can send it."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from lostcities_jax.games.catalogue import make_game
from lostcities_jax.games.game import Game
from lostcities_jax.rules import Rules
from lostcities_jax.schedulers.answers import Players
from lostcities_jax.schedulers.host_game import Layout, make_layout
from lostcities_jax.schedulers.walk import check_plan
from lostcities_jax.traversal.plan import Plan

PATIENCE_S = 120.0  # longest wait for another process that lives but says nothing
POLL_S = 1.0  # after which a wait looks around


@dataclasses.dataclass(frozen=True)
class Blueprint:
    """From which every process builds the same game, and the server the players.

    Attributes:
      game: a name of `games.catalogue`.
      rules: its rules.
      plan: branches, limits, quota and whether there is a critic; its width does not matter.
      build: `(game, settings) -> Players`; a function of a module, which spawn can name.
      settings: what `build` needs beside the game; picklable.
      trace: see `tape.sweep`.

    Raises:
      ValueError: on construction, for a plan with rollouts.
    """

    game: str
    rules: Rules
    plan: Plan
    build: Callable[[Game, Any], Players]
    settings: Any
    trace: float = 1.0

    def __post_init__(self):
        check_plan(self.plan)

    def make_game(self) -> Game:
        """The game."""
        return make_game(self.game, self.rules)

    def layout(self, game: Game) -> Layout:
        """The layout of the rows that processes exchange."""
        return make_layout(game, self.plan.branches, self.plan.has_critic)


@dataclasses.dataclass(frozen=True)
class ServiceSettings:
    """Sizes of an inference service.

    Attributes:
      workers: processes that walk.
      traversals: suspended traversals of a worker; 1: it blocks on every call.
      slots: rows in shared memory, all workers together.
      max_batch: rows of a network call, at most.
      window_s: how long the first request of a batch waits for others.

    Raises:
      ValueError: on construction, for fewer slots than workers.
    """

    workers: int = 2
    traversals: int = 1
    slots: int = 256
    max_batch: int = 256
    window_s: float = 200e-6

    def __post_init__(self):
        if min(self.workers, self.traversals, self.max_batch) < 1:
            raise ValueError(f"{self}; allowed: at least one worker, traversal and row")
        if self.slots < self.workers:
            raise ValueError(f"slots is {self.slots}; allowed: at least the {self.workers} workers")

    @property
    def most_requests(self) -> int:
        """Requests that can be waiting at one time."""
        return self.workers * min(self.traversals, self.slots // self.workers)


class ServedSeat(NamedTuple):
    """How a player acts in a batch: `lockstep.Seat` with the name of pushed parameters."""

    network: str
    epsilon: float
    is_traverser: bool


def one_line(error: BaseException) -> str:
    """An exception as text for another process."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
