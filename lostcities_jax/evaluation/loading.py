"""Agents by name: a bot, or the policy of a checkpoint."""

import dataclasses
import pathlib
from collections.abc import Sequence

import jax

from lostcities_jax import checkpoint
from lostcities_jax.bots import BOTS
from lostcities_jax.config import config_from_dict
from lostcities_jax.errors import UserError, nearest, shown
from lostcities_jax.evaluation.agents import Agent, average_agent, bot_agent, current_agent
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.networks import Network, make_network
from lostcities_jax.rules import CLASSIC, Rules


def load_agents(
    names: Sequence[str], policy: str, rules: Rules | None
) -> tuple[Rules, list[Agent]]:
    """The rules that all checkpoints among `names` share, and the agents.

    Args:
      names: names of bots, or paths of checkpoints.
      policy: "average" or "current": which strategy a checkpoint plays.
      rules: the rules asked for; None for the checkpoints' own, or CLASSIC without any.

    Raises:
      UserError: for a name that is neither, a damaged or foreign checkpoint, or checkpoints
        of other rules.
    """
    for name in names:
        if name not in BOTS:
            own = _metadata(name).rules
            if rules is not None and own != rules:
                raise UserError(
                    f"checkpoint {shown(name)} is for other rules: {_difference(own, rules)}"
                )
            rules = own
    rules = rules or CLASSIC
    return rules, [
        bot_agent(rules, name) if name in BOTS else _load(name, policy) for name in names
    ]


def policy_template(network: Network) -> dict:
    """Tree and shapes of the policy that a checkpoint holds."""
    params = jax.eval_shape(network.init, jax.random.key(0))
    return {"strategy": params, "advantage": [params, params]}


def _metadata(name: str) -> checkpoint.Metadata:
    if not pathlib.Path(name).exists():
        raise UserError(
            f"{shown(name)} is neither a bot nor a checkpoint; allowed: "
            f"{', '.join(BOTS)}, or a path{nearest(name, BOTS)}"
        )
    return checkpoint.read_metadata(name)


def _load(name: str, policy: str) -> Agent:
    metadata = _metadata(name)
    settings = config_from_dict({"network": dict(metadata.network)}).network
    network = make_network(lost_cities(metadata.rules), **dataclasses.asdict(settings))
    params = checkpoint.restore_policy(name, policy_template(network))
    if policy == "average":
        return average_agent(name, network, params["strategy"])
    advantage = (params["advantage"][0], params["advantage"][1])
    return current_agent(name, network, advantage, metadata.fallback)


def _difference(own: Rules, wanted: Rules) -> str:
    names = [name for name in vars(own) if getattr(own, name) != getattr(wanted, name)]
    return ", ".join(
        f"rules.{name} is {getattr(own, name)} there but {getattr(wanted, name)} here"
        for name in names
    )
