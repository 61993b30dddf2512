"""The game for one agent as an environment of Gymnasium, against a bot or a checkpoint.

Importing this registers `lostcities_jax/LostCities-v1` for `gymnasium.make`.
"""

from typing import Any, ClassVar, Literal

import numpy as np

from lostcities_jax.adapters.extra import missing
from lostcities_jax.adapters.views import largest_difference
from lostcities_jax.errors import UserError, nearest, shown
from lostcities_jax.evaluation.agents import Agent, Mixture
from lostcities_jax.evaluation.decisions import action_probabilities
from lostcities_jax.evaluation.loading import load_agents
from lostcities_jax.rules import Rules

try:
    import gymnasium
    from gymnasium import spaces

    from lostcities_jax.adapters import host
except ImportError as error:
    raise missing(error, "gymnasium") from None

ENV_ID = "lostcities_jax/LostCities-v1"
_REWARDS = ("end", "dense")
_SEATS = (0, 1, None)


class LostCitiesEnv(gymnasium.Env):
    """One seat of a game; the opponent moves within `step` and `reset`, as it samples.

    Observations are a dict of `observation`, see `views.features`, and `action_mask`, which
    `info` holds too. Gymnasium wants every action of the space taken: an illegal one ends the
    game, costs as many points as no game can be lost by, and is named in `info["illegal"]`.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": host.RENDER_MODES, "render_fps": 1}

    def __init__(
        self,
        opponent: str = "balanced",
        rules: Rules | None = None,
        seat: Literal[0, 1] | None = None,
        reward: Literal["end", "dense"] = "end",
        policy: str | None = None,
        render_mode: str | None = None,
    ):
        """An environment against one opponent.

        Args:
          opponent: name of a bot, or path of a checkpoint.
          rules: the rule set; by default the checkpoint's, or CLASSIC.
          seat: 0 to move first, 1 to move second, None to draw one for each game.
          reward: "end" pays the difference in points when the game is over, "dense" pays what
            it changed by in each step; the sum is the same.
          policy: strategy of a checkpoint, see `loading.load_policy`.
          render_mode: "human", "ansi", "svg", or None; pictures show the agent's hand alone.

        Raises:
          UserError: for an opponent that is neither a bot nor a checkpoint, or one with other
            rules; for another seat, reward or render mode.
        """
        host.check_render_mode(render_mode)
        if seat not in _SEATS:
            raise UserError(f"seat is {shown(seat)}; allowed: 0, 1, None")
        if reward not in _REWARDS:
            near = nearest(str(reward), _REWARDS)
            raise UserError(f"reward is {shown(reward)}; allowed: {', '.join(_REWARDS)}{near}")
        self.rules, (self._opponent,) = load_agents([opponent], policy, rules)
        self.render_mode = render_mode
        self._seat, self._reward = seat, reward
        self.observation_space = host.observation_space(self.rules)
        self.action_space = spaces.Discrete(self.rules.num_actions)
        self._over = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Deals a game and lets the opponent move if it starts; a seed starts all chance anew."""
        super().reset(seed=seed)
        self._game = host.deal_game(self.rules, self.np_random)
        drawn = self.np_random.integers(2)
        self.seat = int(drawn) if self._seat is None else self._seat
        self._playing = self._draw_opponent(int(self.np_random.integers(2**31)))
        self._paid, self._over = 0, False
        self._let_opponent_move()
        return self._observed(), self._info()

    def step(self, action: int) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Takes an action, and lets the opponent move until the agent is to act again.

        Raises:
          UserError: for an action outside the action space, or when the game is over.
        """
        if self._over:
            raise UserError("the game is over; allowed: reset")
        if not self.action_space.contains(action):
            raise UserError(
                f"action is {shown(action)}; allowed: 0 to {self.rules.num_actions - 1}"
            )
        if action not in self._game.legal_actions():
            return self._forfeit(int(action))
        self._game.step(int(action))
        self._let_opponent_move()
        self._over = self._game.is_over
        truncated = self._game.timed_out
        reward = self._pay(host.lead(self._game, self.seat))
        if self.render_mode == "human":
            self.render()
        return self._observed(), reward, self._over and not truncated, truncated, self._info()

    def render(self) -> str | None:
        """The picture in the render mode, as the agent sees the table."""
        return host.render(self._game, self.render_mode, view=self.seat)

    def _draw_opponent(self, seed: int) -> Agent:
        """Who plays this game: of a mixture, one of its agents."""
        if isinstance(self._opponent, Mixture):
            return self._opponent.draw(1, seed)[0]
        return self._opponent

    def _let_opponent_move(self) -> None:
        while not self._game.is_over and self._game.player != self.seat:
            shares = action_probabilities(self._playing, self._game)
            self._game.step(int(self.np_random.choice(len(shares), p=shares)))

    def _pay(self, total: int) -> float:
        """The reward that brings the sum of all to `total`, now or at the end."""
        if not self._over and self._reward == "end":
            return 0.0
        due, self._paid = total - self._paid, total
        return float(due)

    def _forfeit(
        self, action: int
    ) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        legal = ", ".join(map(str, self._game.legal_actions()))
        self._over = True
        reward = self._pay(-largest_difference(self.rules))
        info = self._info() | {"illegal": f"action {action} is not legal; allowed: {legal}"}
        return self._observed(), reward, True, False, info

    def _observed(self) -> dict[str, np.ndarray]:
        return host.observation(self._game, self.seat)

    def _info(self) -> dict[str, Any]:
        return {"action_mask": host.action_mask(self._game, self.seat), "seat": self.seat}


gymnasium.register(ENV_ID, entry_point=f"{__name__}:{LostCitiesEnv.__name__}")
