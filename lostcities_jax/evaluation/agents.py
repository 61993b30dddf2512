"""Agents: a policy function with its parameters for either seat, playable in a match."""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np

from lostcities_jax.bots import BOTS, batched_bot_policy
from lostcities_jax.learner import iteration_weights
from lostcities_jax.networks import Network
from lostcities_jax.regret import masked_softmax, regret_matching
from lostcities_jax.rollout import Policy
from lostcities_jax.rules import Rules
from lostcities_jax.snapshots import Snapshots, take


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


class Mixture(NamedTuple):
    """Agents of which one is drawn for each game and plays all of it.

    Attributes:
      name: how tables call it.
      agents: of one policy function.
      weights: with which each is drawn. float[agents].
    """

    name: str
    agents: tuple[Agent, ...]
    weights: np.ndarray

    @property
    def is_stochastic(self) -> bool:
        """Whether greedy play differs from sampled play."""
        return True

    def draw(self, count: int, seed: int) -> list[Agent]:
        """The agents of `count` blocks of games."""
        shares = self.weights / self.weights.sum()
        drawn = np.random.default_rng(seed).choice(len(self.agents), count, p=shares)
        return [self.agents[index] for index in drawn]


def bot_agent(rules: Rules, name: str) -> Agent:
    """The rule-based player of a name in BOTS; it only plays as it samples."""
    return Agent(name, batched_bot_policy(rules), (BOTS[name], BOTS[name]), is_stochastic=False)


def average_agent(name: str, network: Network, params: Any) -> Agent:
    """The average strategy: softmax of the strategy network, the same in both seats."""
    return Agent(name, _average_policy(network), (params, params))


def current_agent(name: str, network: Network, params: tuple[Any, Any], fallback: str) -> Agent:
    """The last iteration's strategy: regret matching on each seat's advantage network."""
    return Agent(name, _current_policy(network, fallback), params)


def iterates_agent(
    name: str, network: Network, snapshots: Snapshots, weighting: str, fallback: str
) -> Mixture:
    """The exact average of the kept iterates' current strategies (Steinberger 2019)."""
    snapshots = jax.device_get(snapshots)
    slots = np.flatnonzero(snapshots.iteration)
    newest = int(snapshots.iteration.max())
    weights = iteration_weights(weighting, newest, True, newest + 1)
    agents = []
    last = len(snapshots.params) - 1  # one network may serve both seats
    for slot in slots.tolist():
        params = (take(snapshots, 0, slot), take(snapshots, last, slot))
        agents.append(current_agent(name, network, params, fallback))
    return Mixture(name, tuple(agents), weights[snapshots.iteration[slots]])


@functools.cache
def _average_policy(network: Network) -> Policy:
    def policy(params: Any, info: jax.Array, legal: jax.Array, head: int) -> jax.Array:
        legal = network.considered(info, legal, head)
        return masked_softmax(network.apply(params, info, head), legal)

    return policy


@functools.cache
def _current_policy(network: Network, fallback: str) -> Policy:
    def policy(params: Any, info: jax.Array, legal: jax.Array, head: int) -> jax.Array:
        legal = network.considered(info, legal, head)
        return regret_matching(network.apply(params, info, head), legal, fallback)[0]

    return policy
