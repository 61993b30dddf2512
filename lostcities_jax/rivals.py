"""A frozen opponent to train against: what an exploiter is, a best response to one policy.

What it gains in the end is a lower bound of how far the policy can be exploited.
"""

import dataclasses
import functools
import pathlib
from typing import Any

import jax

from lostcities_jax.bots import BOTS
from lostcities_jax.errors import shown
from lostcities_jax.evaluation import agent_file
from lostcities_jax.evaluation.agents import Agent
from lostcities_jax.evaluation.loading import check_copy, copy_agent, load_agents, pinned
from lostcities_jax.rollout import Policy, most_probable
from lostcities_jax.settings import Config
from lostcities_jax.solvers.opponents import without_fallback
from lostcities_jax.solvers.seating import Rival

COPY = f"rival{agent_file.SUFFIX}"  # in a run's folder


def load_rival(config: Config, folder: pathlib.Path | None = None) -> Agent | None:
    """The opponent of `rival.agent`, as it plays; None without one.

    Args:
      config: the settings of a run.
      folder: the run's, where it goes on: it has a copy of the agent. None for the agent itself.

    Raises:
      UserError: for no such agent, a damaged or missing copy, or one for other rules.
    """
    settings = config.rival
    if not settings.agent:
        return None
    name = settings.agent
    if folder is not None and name not in BOTS:
        check_copy(folder / COPY, f"its rival {shown(name)}")
        name = str(folder / COPY)
    policy = None if settings.policy == "auto" else settings.policy
    _, (agent,) = load_agents([name], policy, config.rules)
    assert isinstance(agent, Agent)  # a mixture is no strategy that can be asked for here
    agent = agent._replace(name=settings.agent)
    if not (settings.greedy and agent.is_stochastic):
        return agent
    return agent._replace(policy=_greedy(agent.policy), is_stochastic=False)


def with_pinned_rival(config: Config) -> Config:
    """The config of a new run, which says which of a run's checkpoints its rival is.

    Raises:
      UserError: for a rival that is no agent.
    """
    if not config.rival.agent:
        return config
    rival = dataclasses.replace(config.rival, agent=pinned(config.rival.agent))
    return dataclasses.replace(config, rival=rival)


def keep_rival(config: Config, folder: pathlib.Path) -> None:
    """Copies the rival of a new run into its folder.

    Raises:
      UserError: for a rival that is no agent, or a copy that cannot be written.
    """
    name = config.rival.agent
    if name and name not in BOTS:
        copy_agent(name, folder / COPY)


def as_rival(agent: Agent) -> Rival:
    """The agent as a solver's opponent."""
    return Rival(without_fallback(agent.policy), agent.params)


@functools.cache
def _greedy(policy: Policy) -> Policy:
    def play(params: Any, info: jax.Array, legal: jax.Array, head: int) -> jax.Array:
        return most_probable(policy(params, info, legal, head))

    return play
