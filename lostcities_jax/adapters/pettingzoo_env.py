"""The game as an environment of PettingZoo, in which the agents act in turn (AEC).

As in PettingZoo's own games, `env` ends the game for an illegal action at the mover's cost, and
`raw_env` refuses it with an error.
"""

from typing import Any, ClassVar

import numpy as np

from lostcities_jax.adapters.extra import missing
from lostcities_jax.adapters.views import largest_difference
from lostcities_jax.errors import UserError, shown
from lostcities_jax.rules import CLASSIC, NUM_PLAYERS, Rules

try:
    from gymnasium import spaces
    from pettingzoo import AECEnv
    from pettingzoo.utils import wrappers

    from lostcities_jax.adapters import host
except ImportError as error:
    raise missing(error, "gymnasium", "pettingzoo") from None


def env(rules: Rules = CLASSIC, render_mode: str | None = None) -> AECEnv:
    """The environment in PettingZoo's usual wrappers: order, bounds, and illegal actions.

    Args:
      rules: the rule set.
      render_mode: "human", "ansi", "svg", or None.

    Raises:
      UserError: for another render mode.
    """
    wrapped = raw_env(rules, render_mode)
    wrapped = wrappers.TerminateIllegalWrapper(wrapped, illegal_reward=-largest_difference(rules))
    return wrappers.OrderEnforcingWrapper(wrappers.AssertOutOfBoundsWrapper(wrapped))


class raw_env(AECEnv):  # noqa: N801, PettingZoo's name for it
    """The environment without wrappers: two agents, `player_0` moving first.

    Rewards are 0 until the game ends, then the difference in points; a game that the turn limit
    ends is truncated and scores as it stands. Pictures show both hands.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": host.RENDER_MODES,
        "name": "lost_cities_v1",
        "is_parallelizable": False,
        "render_fps": 1,
    }

    def __init__(self, rules: Rules = CLASSIC, render_mode: str | None = None):
        """As `env`."""
        host.check_render_mode(render_mode)
        super().__init__()
        self.rules = rules
        self.render_mode = render_mode
        self.possible_agents = [f"player_{seat}" for seat in range(NUM_PLAYERS)]
        self.observation_spaces = {
            agent: host.observation_space(rules) for agent in self.possible_agents
        }
        self.action_spaces = {
            agent: spaces.Discrete(rules.num_actions) for agent in self.possible_agents
        }
        self._generator = np.random.default_rng()

    def observation_space(self, agent: str) -> spaces.Space:
        """Features and the mask of legal actions, see `views.features`."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space:
        """Card actions, then draw actions."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Deals a game; a seed starts the sequence of deals anew."""
        if seed is not None:
            self._generator = np.random.default_rng(seed)
        self._game = host.deal_game(self.rules, self._generator)
        self.agents = self.possible_agents[:]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self.agent_selection = self.agents[0]

    def observe(self, agent: str) -> dict[str, np.ndarray]:
        """What an agent knows; its mask is all 0 out of turn."""
        return host.observation(self._game, self.possible_agents.index(agent))

    def step(self, action: int | None) -> None:
        """Takes an action of the agent to act; None of an agent whose game is over.

        Raises:
          UserError: for an action that is not legal now.
        """
        if self.terminations[self.agent_selection] or self.truncations[self.agent_selection]:
            self._was_dead_step(action)
            return
        if action not in self._game.legal_actions():
            legal = ", ".join(map(str, self._game.legal_actions()))
            raise UserError(f"action {shown(action)} is not legal now; allowed: {legal}")
        self._cumulative_rewards[self.agent_selection] = 0.0
        self._game.step(int(action))
        if self._game.is_over:
            for seat, agent in enumerate(self.agents):
                self.rewards[agent] = float(host.lead(self._game, seat))
                self.terminations[agent] = not self._game.timed_out
                self.truncations[agent] = self._game.timed_out
        self.agent_selection = self.possible_agents[self._game.player]
        self._accumulate_rewards()
        if self.render_mode == "human":
            self.render()

    def render(self) -> str | None:
        """The picture in the render mode, with both hands."""
        return host.render(self._game, self.render_mode, view=None)

    def close(self) -> None:
        """Nothing is held open."""
