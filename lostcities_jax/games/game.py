"""The protocol of a game that lockstep solvers can run: a fixed cycle of half-steps.

Lanes advance together because every game repeats the same phases in the same order. All
functions work on one game and are batched by `jax.vmap`. Chance acts in the deal alone: a
state fixes every card still to come, and an info state tells only what its player knows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from lostcities_jax.rules import Rules

GameState = Any


class Phase(NamedTuple):
    """One half-step of the cycle.

    Attributes:
      player: who decides.
      head: which of the network's outputs belongs to the decision.
      num_actions: actions of the decision, A.
    """

    player: int
    head: int
    num_actions: int


class Deals(NamedTuple):
    """Every first state of a game, with the probabilities of the deal.

    Attributes:
      states: first states, batched over the deals; NumPy.
      probability: float64[deals].
    """

    states: GameState
    probability: np.ndarray


def all_legal(packed: jax.Array, legal: jax.Array, head: int) -> jax.Array:
    """Leaves every legal action to choose among; bool[..., A]."""
    del packed, head
    return legal


class Game(NamedTuple):
    """A two-player zero-sum game as pure functions; `k` is a static phase index.

    Attributes:
      name: for messages.
      heads: names of the network's outputs, by the number in `Phase.head`.
      phases: the cycle.
      max_cycles: cycles after which every game has ended.
      info_size: bytes of a packed info state, I.
      deal: `key -> state`; consumes the key.
      legal: `(state, k) -> bool[A]`.
      step: `(state, k, action) -> state`; a finished game stays as it is.
      is_turn: `(state, k) -> bool[]`, whether it is the phase's turn to decide.
      observe: `(state, k) -> uint8[I]`, the mover's packed info state.
      observe_open: `(state, k) -> uint8[I]`, the same if nothing but chance were hidden.
      head_of: `uint8[..., I] -> uint8[...]`, the head that packed info states belong to.
      encode: `uint8[..., I] -> float32[..., D]`, features of packed info states.
      standing: `uint8[..., I] -> float32[...]`, the mover's payoff if the game ended now.
      is_terminal: `state -> bool[]`.
      is_timeout: `state -> bool[]`, ended by a limit on length.
      value: `state -> float32[]`, player 0's payoff as the game stands.
      in_step: whether every phase of every cycle has its turn until a dealt game is over, so
        that nobody needs to ask `is_turn`.
      all_deals: `() -> Deals`; None where there are too many to list.
      rules: the rule set of a game of Lost Cities; None for other games.
      considered: `(uint8[..., I], legal bool[..., A], head) -> bool[..., A]`, the legal actions
        that trained policies choose among; never none of them where any is legal.
    """

    name: str
    heads: tuple[str, ...]
    phases: tuple[Phase, ...]
    max_cycles: int
    info_size: int
    deal: Callable[[jax.Array], GameState]
    legal: Callable[[GameState, int], jax.Array]
    step: Callable[[GameState, int, jax.Array], GameState]
    is_turn: Callable[[GameState, int], jax.Array]
    observe: Callable[[GameState, int], jax.Array]
    observe_open: Callable[[GameState, int], jax.Array]
    head_of: Callable[[jax.Array], jax.Array]
    encode: Callable[[jax.Array], jax.Array]
    standing: Callable[[jax.Array], jax.Array]
    is_terminal: Callable[[GameState], jax.Array]
    is_timeout: Callable[[GameState], jax.Array]
    value: Callable[[GameState], jax.Array]
    in_step: bool = False
    all_deals: Callable[[], Deals] | None = None
    rules: Rules | None = None
    considered: Callable[[jax.Array, jax.Array, int], jax.Array] = all_legal

    @property
    def max_actions(self) -> int:
        """Actions of the widest phase."""
        return max(phase.num_actions for phase in self.phases)

    @property
    def head_sizes(self) -> tuple[int, ...]:
        """Actions of each head."""
        sizes = {phase.head: phase.num_actions for phase in self.phases}
        return tuple(sizes[head] for head in range(len(self.heads)))

    def phases_of(self, player: int) -> tuple[int, ...]:
        """Indices of a player's phases in the cycle."""
        return tuple(k for k, phase in enumerate(self.phases) if phase.player == player)
