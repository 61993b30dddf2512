"""A frozen opponent to train against: what an exploiter is, a best response to one policy.

What it gains in the end is a lower bound of how far the policy can be exploited.
"""

import dataclasses
import functools
from typing import Any

import jax

from lostcities_jax.evaluation.agents import Agent
from lostcities_jax.evaluation.loading import load_agents, pinned
from lostcities_jax.rollout import Policy, most_probable
from lostcities_jax.settings import Config
from lostcities_jax.solvers.opponents import without_fallback
from lostcities_jax.solvers.seating import Rival


def load_rival(config: Config) -> Agent | None:
    """The opponent of `rival.agent`, as it plays; None without one.

    Raises:
      UserError: for no such agent, or one for other rules.
    """
    settings = config.rival
    if not settings.agent:
        return None
    policy = None if settings.policy == "auto" else settings.policy
    _, (agent,) = load_agents([settings.agent], policy, config.rules)
    assert isinstance(agent, Agent)  # a mixture is no strategy that can be asked for here
    if not (settings.greedy and agent.is_stochastic):
        return agent
    return agent._replace(policy=_greedy(agent.policy), is_stochastic=False)


def with_pinned_rival(config: Config) -> Config:
    """The config of a new run, whose rival stays the same when the run is resumed.

    Raises:
      UserError: for a rival that is no agent.
    """
    if not config.rival.agent:
        return config
    rival = dataclasses.replace(config.rival, agent=pinned(config.rival.agent))
    return dataclasses.replace(config, rival=rival)


def as_rival(agent: Agent) -> Rival:
    """The agent as a solver's opponent."""
    return Rival(without_fallback(agent.policy), agent.params)


@functools.cache
def _greedy(policy: Policy) -> Policy:
    def play(params: Any, info: jax.Array, legal: jax.Array, head: int) -> jax.Array:
        return most_probable(policy(params, info, legal, head))

    return play
