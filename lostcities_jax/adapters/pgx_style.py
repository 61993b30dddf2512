"""The game in the style of pgx (Koyamada et al. 2023): pure functions on one state object.

pgx itself is not needed. What its users rely on holds here: a step of a finished game changes
nothing and pays nothing, an illegal action ends the game at the mover's cost, and all actions
are marked legal once a game is over, so that no policy divides by zero.
"""

import dataclasses
import os
import re
from collections.abc import Callable

import flax.struct
import jax
import jax.numpy as jnp

from lostcities_jax import engine
from lostcities_jax.adapters.views import feature_bounds, features, largest_difference
from lostcities_jax.drawing import to_svg
from lostcities_jax.rules import CLASSIC, NUM_PLAYERS, Rules
from lostcities_jax.state import State as GameState
from lostcities_jax.state import deal

ENV_ID = "lost_cities"


class State(flax.struct.PyTreeNode):
    """One game with what pgx tells of it; `jax.vmap` adds leading lanes.

    Attributes:
      current_player: the player to move; player 0 moves first. int32[].
      observation: what the player to move knows, see `views.features`. float32[D].
      rewards: 0 until the game ends, then the difference in points. float32[P].
      terminated: whether the deck is used up, or an illegal action ended the game. bool[].
      truncated: whether the turn limit ended the game, which scores as it stands. bool[].
      legal_action_mask: card actions, then draw actions; all True when over. bool[A].
    """

    current_player: jax.Array
    observation: jax.Array
    rewards: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    legal_action_mask: jax.Array
    _step_count: jax.Array
    _game: GameState
    _rules: Rules = flax.struct.field(pytree_node=False)

    @property
    def env_id(self) -> str:
        """Name of the environment."""
        return ENV_ID

    def to_svg(self) -> str:
        """The picture of the state with both hands, on the host; lanes one below the other."""
        if not self.terminated.ndim:
            return to_svg(self._rules, self._game)
        host = jax.device_get(self)
        lanes = [jax.tree.map(lambda leaf, i=i: leaf[i], host) for i in range(len(host.terminated))]
        return _stacked([lane.to_svg() for lane in lanes])

    def save_svg(self, filename: str | os.PathLike[str]) -> None:
        """Writes the picture to a file."""
        with open(filename, "w", encoding="utf-8") as file:
            file.write(self.to_svg())

    def _repr_html_(self) -> str:
        return self.to_svg()


@dataclasses.dataclass(frozen=True)
class LostCities:
    """The environment; its methods are pure, and may be compiled and batched.

    Attributes:
      rules: the rule set.
    """

    rules: Rules = CLASSIC

    @property
    def id(self) -> str:
        """Name of the environment."""
        return ENV_ID

    @property
    def version(self) -> str:
        """Version of the behaviour, not of the code."""
        return "v1"

    @property
    def num_players(self) -> int:
        """Players, P."""
        return NUM_PLAYERS

    @property
    def num_actions(self) -> int:
        """Actions of both phases, A."""
        return self.rules.num_actions

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of an observation, (D,)."""
        return feature_bounds(self.rules)[0].shape

    def init(self, key: jax.Array) -> State:
        """A game before its first action. Consumes `key`."""
        game = deal(self.rules, key)
        return State(
            current_player=engine.current_player(game),
            observation=features(self.rules, game, 0),
            rewards=jnp.zeros((NUM_PLAYERS,), jnp.float32),
            terminated=jnp.bool_(False),
            truncated=jnp.bool_(False),
            legal_action_mask=engine.legal_mask(self.rules, game),
            _step_count=jnp.int32(0),
            _game=game,
            _rules=self.rules,
        )

    def step(self, state: State, action: jax.Array, key: jax.Array | None = None) -> State:
        """The state after an action of the player to move.

        A finished game stays as it is, with rewards of 0. An illegal action ends the game: it
        costs the mover, and brings the other player, as many points as no game can be lost by.

        Args:
          state: any state.
          action: an action of `legal_action_mask`. int32[].
          key: not used, since the deal holds all chance; pgx hands one over.
        """
        del key
        going = ~(state.terminated | state.truncated)
        legal = (state.legal_action_mask & (jnp.arange(self.num_actions) == action)).any()
        mover = state.current_player
        game = engine.step(self.rules, state._game, action)
        illegal = going & ~legal
        truncated = going & legal & engine.is_timeout(self.rules, game)
        ends = going & legal & engine.is_terminal(self.rules, game)
        points = engine.scores(self.rules, game)
        lead = jnp.where(mover == 0, points[0] - points[1], points[1] - points[0])
        payoff = jnp.where(ends, lead, 0)
        payoff = jnp.where(illegal, -largest_difference(self.rules), payoff).astype(jnp.float32)
        rewards = jnp.where(jnp.arange(NUM_PLAYERS) == mover, payoff, -payoff)
        terminated = state.terminated | illegal | (ends & ~truncated)
        truncated = state.truncated | truncated
        player = engine.current_player(game)
        return State(
            current_player=player,
            observation=features(self.rules, game, player),
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            legal_action_mask=engine.legal_mask(self.rules, game) | terminated | truncated,
            _step_count=state._step_count + going,
            _game=game,
            _rules=self.rules,
        )

    def observe(self, state: State, player: jax.Array | int | None = None) -> jax.Array:
        """What a player knows, that to move by default; float32[D]."""
        player = state.current_player if player is None else player
        return features(self.rules, state._game, player)


def auto_reset(
    step: Callable[..., State], init: Callable[[jax.Array], State]
) -> Callable[[State, jax.Array, jax.Array], State]:
    """A step that deals the next game where one has ended.

    The last rewards, `terminated` and `truncated` stay, for the state they came with is gone.

    Args:
      step: the environment's.
      init: the environment's.
    """

    def step_or_deal(state: State, action: jax.Array, key: jax.Array) -> State:
        over = state.terminated | state.truncated
        state = state.replace(
            terminated=jnp.bool_(False),
            truncated=jnp.bool_(False),
            rewards=jnp.where(over, 0.0, state.rewards),
        )
        after = step(state, action)
        fresh = init(key).replace(
            terminated=after.terminated, truncated=after.truncated, rewards=after.rewards
        )
        over = after.terminated | after.truncated
        return jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, after)

    return step_or_deal


def _stacked(images: list[str]) -> str:
    """SVG images one below the other."""
    parts, y, width = [], 0, 0
    for image in images:
        own_width, height = map(int, re.findall(r'viewBox="0 0 (\d+) (\d+)"', image)[0])
        parts.append(image.replace("<svg ", f'<svg y="{y}" ', 1))
        y, width = y + height, max(width, own_width)
    size = f'width="{width}" height="{y}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(parts)}</svg>'
