"""One game on the host, a decision at a time: each step is one call of one small program.

Everything a walk reads of a position lies in one array of bytes, its *record*, together with
the state itself: one array in and one out make a step cheap to dispatch, and the rows that go
to a network are slices of it.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax.games.game import Game, GameState
from lostcities_jax.lanes import DEAL_STREAM, decision_uniforms
from lostcities_jax.regret import num_uniforms

_FLOAT_BYTES = 4


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the parts of a record lie: value, uniforms, info, legal, open info, flags, state.

    Attributes:
      info_size: bytes of a packed info state, I.
      open_size: the same of an open one; 0 without a critic.
      num_actions: actions of the widest phase, A.
      num_uniforms: random numbers of a decision, at most.
    """

    info_size: int
    open_size: int
    num_actions: int
    num_uniforms: int

    @functools.cached_property
    def _ends(self) -> list[int]:
        floats = _FLOAT_BYTES * self.num_uniforms
        sizes = [_FLOAT_BYTES, floats, self.info_size, self.num_actions, self.open_size, 3]
        return np.cumsum(sizes).tolist()

    @functools.cached_property
    def info(self) -> slice:
        """The mover's packed info state."""
        return slice(self._ends[1], self._ends[2])

    @functools.cached_property
    def legal(self) -> slice:
        """Legal actions, a byte each."""
        return slice(self._ends[2], self._ends[3])

    @functools.cached_property
    def open_info(self) -> slice:
        """The info state with the other hand open."""
        return slice(self._ends[3], self._ends[4])

    @functools.cached_property
    def policy_row(self) -> slice:
        """What a policy call takes: uniforms, info and legal."""
        return slice(self._ends[0], self._ends[3])

    @functools.cached_property
    def critic_row(self) -> slice:
        """What a critic call takes: legal and open info."""
        return slice(self._ends[2], self._ends[4])

    @functools.cached_property
    def seen(self) -> int:
        """Bytes before the state."""
        return self._ends[5]

    @functools.cached_property
    def row_size(self) -> int:
        """Bytes of the widest row of a call."""
        return max(part.stop - part.start for part in (self.policy_row, self.critic_row))

    @functools.cached_property
    def answer_size(self) -> int:
        """Numbers of an answer: strategy, explored, action, probability, fell back."""
        return 2 * self.num_actions + 3

    def read_policy_rows(self, rows: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Uniforms float32[B, U], info uint8[B, I] and legal bool[B, A] of policy rows."""
        floats = _FLOAT_BYTES * self.num_uniforms
        parts = rows[:, :floats].reshape(-1, self.num_uniforms, _FLOAT_BYTES)
        info_end = floats + self.info_size
        legal = rows[:, info_end : info_end + self.num_actions] > 0
        uniforms = jax.lax.bitcast_convert_type(parts, jnp.float32)
        return uniforms, rows[:, floats:info_end], legal

    def read_critic_rows(self, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Open info uint8[B, I] and legal bool[B, A] of critic rows."""
        end = self.num_actions + self.open_size
        return rows[:, self.num_actions : end], rows[:, : self.num_actions] > 0


class Position(NamedTuple):
    """A game at a decision, or at its end.

    Attributes:
      record: the record on the device, from which the game goes on. uint8[].
      seen: the same on the host, without the state. uint8[].
      phase: the phase whose mover `seen` is about.
      value: player 0's payoff as the game stands.
      is_over: whether the game has ended.
      is_timeout: whether a limit on length ended it.
    """

    record: jax.Array
    seen: np.ndarray
    phase: int
    value: np.float32
    is_over: bool
    is_timeout: bool


class HostGame(NamedTuple):
    """A game's programs.

    Attributes:
      layout: of its records.
      phases: `Game.phases`.
      deal: `key data uint32[2] -> Position`, the deal of the traversal with that key.
      step: `(position, action, key data, decisions before the next) -> Position`.
    """

    layout: Layout
    phases: tuple
    deal: Callable[[np.ndarray], Position]
    step: Callable[[Position, int, np.ndarray, int], Position]


def make_layout(game: Game, branches: int, has_critic: bool) -> Layout:
    """The layout that walks, workers and answers share."""
    return Layout(
        info_size=game.info_size,
        open_size=game.info_size if has_critic else 0,
        num_actions=game.max_actions,
        num_uniforms=max(num_uniforms(branches, phase.num_actions) for phase in game.phases),
    )


@functools.cache
def host_game(game: Game, branches: int, has_critic: bool) -> HostGame:
    """Compiles a game for the host; cached, so that every walk shares the programs."""
    layout = make_layout(game, branches, has_critic)
    example = jax.eval_shape(game.deal, jax.random.key(0))

    def view(state: GameState, k: int, key: jax.Array, decision: jax.Array) -> jax.Array:
        phase = game.phases[k]
        count = num_uniforms(branches, phase.num_actions)
        uniforms = decision_uniforms(key[None], decision[None], count)[0]
        is_turn = game.is_turn(state, k)
        parts = [
            game.value(state),
            jnp.pad(uniforms, (0, layout.num_uniforms - count)),
            game.observe(state, k),
            jnp.pad(game.legal(state, k), (0, layout.num_actions - phase.num_actions)),
            *([game.observe_open(state, k)] if has_critic else []),
            jnp.stack([game.is_terminal(state), game.is_timeout(state), is_turn]),
            *jax.tree.leaves(state),
        ]
        return jnp.concatenate([_to_bytes(part) for part in parts])

    def deal(numbers: jax.Array) -> jax.Array:
        key = jax.random.wrap_key_data(numbers)
        return view(game.deal(jax.random.fold_in(key, DEAL_STREAM)), 0, key, jnp.int32(0))

    def look(k: int, record: jax.Array, numbers: jax.Array) -> jax.Array:
        key, decision = jax.random.wrap_key_data(numbers[:-2]), numbers[-2].astype(jnp.int32)
        return view(_state_of(example, record[layout.seen :]), k, key, decision)

    def step(k: int, record: jax.Array, numbers: jax.Array) -> jax.Array:
        key, decision = jax.random.wrap_key_data(numbers[:-2]), numbers[-2].astype(jnp.int32)
        action = numbers[-1].astype(jnp.int32)
        state = game.step(_state_of(example, record[layout.seen :]), k, action)
        return view(state, (k + 1) % len(game.phases), key, decision)

    deal_program = jax.jit(deal)
    looks, steps = (
        [jax.jit(functools.partial(program, k)) for k in range(len(game.phases))]
        for program in (look, step)
    )

    def first(key_data: np.ndarray) -> Position:
        # Bound to the host's own device, where all that follows from it stays.
        host = jax.devices("cpu")[0]
        return _position(layout, deal_program(jax.device_put(key_data, host)), 0)[0]

    def following(position: Position, action: int, key_data: np.ndarray, count: int) -> Position:
        numbers = np.array([*key_data, count, action], np.uint32)
        k = (position.phase + 1) % len(game.phases)
        after, is_turn = _position(layout, steps[position.phase](position.record, numbers), k)
        while not (after.is_over or is_turn):
            k = (k + 1) % len(game.phases)
            after, is_turn = _position(layout, looks[k](after.record, numbers), k)
        return after

    return HostGame(layout, game.phases, first, following)


def _position(layout: Layout, record: jax.Array, k: int) -> tuple[Position, bool]:
    """A record read on the host, and whether phase `k` decides there."""
    seen = np.asarray(record)[: layout.seen]
    is_over, is_timeout, is_turn = seen[-3:].tolist()
    value = seen[:_FLOAT_BYTES].view(np.float32)[0]
    return Position(record, seen, k, value, bool(is_over), bool(is_timeout)), bool(is_turn)


def _to_bytes(part: jax.Array) -> jax.Array:
    if part.dtype == jnp.bool_:
        part = part.astype(jnp.uint8)
    return jax.lax.bitcast_convert_type(part, jnp.uint8).reshape(-1)


def _state_of(example: GameState, packed: jax.Array) -> GameState:
    """The state whose leaves were packed one behind the other."""
    leaves, structure = jax.tree.flatten(example)
    found, start = [], 0
    for leaf in leaves:
        size = math.prod(leaf.shape) * leaf.dtype.itemsize
        part = packed[start : start + size]
        if leaf.dtype.itemsize > 1:
            part = part.reshape(*leaf.shape, leaf.dtype.itemsize)
            part = jax.lax.bitcast_convert_type(part, leaf.dtype)
        found.append(part.reshape(leaf.shape).astype(leaf.dtype))
        start += size
    return jax.tree.unflatten(structure, found)
