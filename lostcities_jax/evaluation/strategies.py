"""The strategies that a solver's policy holds, as agents."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lostcities_jax.evaluation.agents import (
    Agent,
    Mixture,
    average_agent,
    current_agent,
    iterates_agent,
)
from lostcities_jax.networks import Network
from lostcities_jax.snapshots import Snapshots
from lostcities_jax.snapshots import init as init_snapshots


def strategies(
    network: Network, policy: Mapping[str, Any], weighting: str, fallback: str
) -> dict[str, Agent | Mixture]:
    """The agents of a policy by name: "average", "iterates" or "current", as far as it has them.

    Args:
      network: the network of all parameters.
      policy: what a solver's `split` returns: of a policy gradient its one network, of Deep
        CFR the average strategy's, the advantage networks (one for both seats, or one for
        each), and the snapshots it kept.
      weighting: how the average weighs iterations.
      fallback: what regret matching does where no advantage is positive.
    """
    if "policy" in policy:
        return {"current": average_agent("policy", network, policy["policy"])}
    advantage = policy["advantage"]
    pair = (advantage[0], advantage[-1])
    found: dict[str, Agent | Mixture] = {
        "average": average_agent("average strategy", network, policy["strategy"]),
        "current": current_agent("current strategy", network, pair, fallback),
    }
    if "snapshots" in policy and policy["snapshot_iterations"].any():
        params = tuple(policy["snapshots"])
        kept = Snapshots(params, policy["snapshot_iterations"], jnp.int32(0))
        found["iterates"] = iterates_agent(
            "average of iterates", network, kept, weighting, fallback
        )
    return found


def policy_template(
    network: Network, solver: str, advantage_networks: int, snapshot_slots: int
) -> dict[str, Any]:
    """Tree and shapes of the policy that a checkpoint of these holds."""
    params = jax.eval_shape(network.init, jax.random.key(0))
    networks = (params,) * max(advantage_networks, 1)
    if solver == "policy_gradient":
        template: dict[str, Any] = {"policy": params}
    else:
        template = {"strategy": params, "advantage": list(networks)}
    if snapshot_slots:
        blank = jax.eval_shape(lambda trees: init_snapshots(trees, snapshot_slots), networks)
        template["snapshots"] = list(blank.params)
        template["snapshot_iterations"] = blank.iteration
    return template
