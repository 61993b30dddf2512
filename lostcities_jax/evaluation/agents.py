"""Agents: a policy function with its parameters for either seat, playable in a match."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from lostcities_jax.bots import BOTS, batched_bot_policy
from lostcities_jax.networks import Network
from lostcities_jax.regret import masked_softmax, regret_matching
from lostcities_jax.rollout import Policy
from lostcities_jax.rules import Rules


class Agent(NamedTuple):
    """Somebody who plays.

    Attributes:
      name: how tables call it.
      policy: its policy function; agents with the same function share compiled programs.
      params: what the function takes in seat 0 and in seat 1.
      is_stochastic: whether greedy play differs from sampled play.
    """

    name: str
    policy: Policy
    params: tuple[Any, Any]
    is_stochastic: bool = True


def bot_agent(rules: Rules, name: str) -> Agent:
    """The rule-based player of a name in BOTS; it only plays as it samples."""
    return Agent(name, batched_bot_policy(rules), (BOTS[name], BOTS[name]), is_stochastic=False)


def average_agent(name: str, network: Network, params: Any) -> Agent:
    """The average strategy: softmax of the strategy network, the same in both seats."""
    return Agent(name, _average_policy(network.apply), (params, params))


def current_agent(name: str, network: Network, params: tuple[Any, Any], fallback: str) -> Agent:
    """The last iteration's strategy: regret matching on each seat's advantage network."""
    return Agent(name, _current_policy(network.apply, fallback), params)


@functools.cache
def _average_policy(apply: Callable) -> Policy:
    def policy(params: Any, info: jax.Array, legal: jax.Array, head: int) -> jax.Array:
        return masked_softmax(apply(params, info, head), legal)

    return policy


@functools.cache
def _current_policy(apply: Callable, fallback: str) -> Policy:
    def policy(params: Any, info: jax.Array, legal: jax.Array, head: int) -> jax.Array:
        return regret_matching(apply(params, info, head), legal, fallback)[0]

    return policy
