"""The protocol of a game that lockstep solvers can run: a fixed cycle of half-steps.

Lanes advance together because every game repeats the same phases in the same order. All
functions work on one game and are batched by `jax.vmap`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

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


class Game(NamedTuple):
    """A two-player zero-sum game as pure functions; `k` is a static phase index.

    Attributes:
      name: for messages.
      phases: the cycle.
      max_cycles: cycles after which every game has ended.
      info_size: bytes of a packed info state, I.
      deal: `key -> state`; consumes the key.
      legal: `(state, k) -> bool[A]`.
      step: `(state, k, action) -> state`; a finished game stays as it is.
      observe: `(state, k) -> uint8[I]`, the mover's packed info state.
      observe_open: `(state, k) -> uint8[I]`, the same if nothing but chance were hidden.
      head_of: `uint8[..., I] -> uint8[...]`, the head that packed info states belong to.
      standing: `uint8[..., I] -> float32[...]`, the mover's payoff if the game ended now.
      is_terminal: `state -> bool[]`.
      is_timeout: `state -> bool[]`, ended by a limit on length.
      value: `state -> float32[]`, player 0's payoff as the game stands.
    """

    name: str
    phases: tuple[Phase, ...]
    max_cycles: int
    info_size: int
    deal: Callable[[jax.Array], GameState]
    legal: Callable[[GameState, int], jax.Array]
    step: Callable[[GameState, int, jax.Array], GameState]
    observe: Callable[[GameState, int], jax.Array]
    observe_open: Callable[[GameState, int], jax.Array]
    head_of: Callable[[jax.Array], jax.Array]
    standing: Callable[[jax.Array], jax.Array]
    is_terminal: Callable[[GameState], jax.Array]
    is_timeout: Callable[[GameState], jax.Array]
    value: Callable[[GameState], jax.Array]

    @property
    def max_actions(self) -> int:
        """Actions of the widest phase."""
        return max(phase.num_actions for phase in self.phases)

    def phases_of(self, player: int) -> tuple[int, ...]:
        """Indices of a player's phases in the cycle."""
        return tuple(k for k, phase in enumerate(self.phases) if phase.player == player)
