"""Exact figures of a policy in a small game: its value, and how far from an equilibrium it is."""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax.evaluation.agents import Agent, Mixture
from lostcities_jax.exact.best_response import expected_value, mix, nash_conv
from lostcities_jax.exact.tree import GameTree, policy_table


@dataclasses.dataclass(frozen=True)
class ExactResult:
    """What a strategy is worth, without sampling.

    Attributes:
      strategy: its name.
      nash_conv: what best responses of both players gain against it, summed.
      exploitability: half of that.
      value: player 0's payoff when both seats play it.
    """

    strategy: str
    nash_conv: float
    exploitability: float
    value: float

    def metrics(self, section: str) -> Mapping[str, float]:
        """Its figures under `<section>/exact/...`."""
        figures = dataclasses.asdict(self)
        return {f"{section}/exact/{name}": figures[name] for name in figures if name != "strategy"}


def exact_result(tree: GameTree, agent: Agent | Mixture) -> ExactResult:
    """The exact figures of an agent, sampled as it plays."""
    if isinstance(agent, Mixture):
        tables = [_table(tree, one) for one in agent.agents]
        table = mix(tree, tables, np.asarray(agent.weights, np.float64))
    else:
        table = _table(tree, agent)
    total = nash_conv(tree, table)
    return ExactResult(agent.name, total, total / 2, expected_value(tree, table))


def _table(tree: GameTree, agent: Agent) -> np.ndarray:
    play = jax.jit(agent.policy, static_argnums=3)

    def policy(player: int, head: int, info: np.ndarray, legal: np.ndarray) -> np.ndarray:
        return np.asarray(play(agent.params[player], info, jnp.asarray(legal), head))

    return policy_table(tree, policy)
