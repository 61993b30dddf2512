"""Agents by name: a bot, or the policy of a checkpoint."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence

from lostcities_jax import checkpoint
from lostcities_jax.bots import BOTS
from lostcities_jax.config import config_from_dict
from lostcities_jax.errors import UserError, nearest, shown
from lostcities_jax.evaluation.agents import Agent, Mixture, bot_agent
from lostcities_jax.evaluation.strategies import policy_template, strategies
from lostcities_jax.games.catalogue import make_game
from lostcities_jax.games.game import Game
from lostcities_jax.networks import make_network
from lostcities_jax.rules import CLASSIC, Rules

_ITERATES_HINT = ", or a checkpoint of a run with snapshots.every"


def load_agents(
    names: Sequence[str], policy: str | None, rules: Rules | None
) -> tuple[Rules, list[Agent | Mixture]]:
    """The rules that all checkpoints among `names` share, and the agents.

    Args:
      names: names of bots, or paths of checkpoints.
      policy: which strategy a checkpoint plays, see `load_policy`.
      rules: the rules asked for; None for the checkpoints' own, or CLASSIC without any.

    Raises:
      UserError: for a name that is neither, a damaged or foreign checkpoint, or checkpoints
        of other games or rules.
    """
    for name in names:
        if name not in BOTS:
            metadata = _metadata(name)
            if metadata.game != "lost_cities":
                raise UserError(
                    f"checkpoint {shown(name)} plays {metadata.game}; "
                    f"allowed in a match: lost_cities"
                )
            own = metadata.rules
            if rules is not None and own != rules:
                raise UserError(
                    f"checkpoint {shown(name)} is for other rules: {_difference(own, rules)}"
                )
            rules = own
    rules = rules or CLASSIC
    return rules, [
        bot_agent(rules, name) if name in BOTS else load_policy(name, policy) for name in names
    ]


def load_field(
    names: Sequence[str], policy: str | None, rules: Rules | None
) -> tuple[Rules, list[Agent | Mixture]]:
    """As `load_agents`, each agent once, with all the checkpoints of a run or its folder.

    They are called `<run>/<iteration>`, with as much of the path as tells runs apart.
    """
    paths = {name: [name] if name in BOTS else _checkpoints(name) for name in names}
    field = list(dict.fromkeys(path for name in names for path in paths[name]))
    rules, agents = load_agents(field, policy, rules)
    runs = {path: _run_of(pathlib.Path(path)) for path in field if path not in BOTS}
    root = os.path.commonpath([run.parent for run in runs.values()]) if runs else ""
    labels = {
        path: f"{run.relative_to(root).as_posix()}/{pathlib.Path(path).name}"
        for path, run in runs.items()
    }
    return rules, [agent._replace(name=labels.get(agent.name, agent.name)) for agent in agents]


def load_game(name: str) -> Game:
    """The game of a checkpoint, from its metadata alone.

    Raises:
      UserError: for no checkpoint, or a damaged one.
    """
    metadata = _metadata(name)
    return make_game(metadata.game, metadata.rules)


def load_policy(name: str, policy: str | None = None) -> Agent | Mixture:
    """One of the strategies of a checkpoint as an agent.

    Args:
      name: path of the checkpoint.
      policy: "average", "iterates" or "current"; None for the first of "average" and "current"
        that it holds.

    Raises:
      UserError: for no checkpoint, a damaged one, or one without the strategy asked for.
    """
    metadata = _metadata(name)
    game = make_game(metadata.game, metadata.rules)
    settings = config_from_dict({"network": dict(metadata.network)}).network
    network = make_network(game, **dataclasses.asdict(settings))
    template = policy_template(
        network, metadata.solver, metadata.advantage_networks, metadata.snapshot_slots
    )
    params = checkpoint.restore_policy(name, template)
    found = strategies(network, params, metadata.weighting, metadata.fallback)
    wanted = policy or next(iter(found))
    if wanted not in found:
        raise UserError(
            f"checkpoint {shown(name)} holds no {wanted} strategy; allowed: "
            f"{', '.join(found)}" + (_ITERATES_HINT if wanted == "iterates" else "")
        )
    return found[wanted]._replace(name=name)


def _metadata(name: str) -> checkpoint.Metadata:
    _check_exists(name)
    return checkpoint.read_metadata(name)


def _checkpoints(name: str) -> list[str]:
    _check_exists(name)
    return [str(path) for path in checkpoint.resolve_all(name)]


def _run_of(path: pathlib.Path) -> pathlib.Path:
    """The run folder of a checkpoint, or whatever folder holds it."""
    return path.parents[1] if path.parent.name == checkpoint.FOLDER else path.parent


def _check_exists(name: str) -> None:
    if not pathlib.Path(name).exists():
        raise UserError(
            f"{shown(name)} is neither a bot nor a checkpoint; allowed: "
            f"{', '.join(BOTS)}, or a path{nearest(name, BOTS)}"
        )


def _difference(own: Rules, wanted: Rules) -> str:
    names = [name for name in vars(own) if getattr(own, name) != getattr(wanted, name)]
    return ", ".join(
        f"rules.{name} is {getattr(own, name)} there but {getattr(wanted, name)} here"
        for name in names
    )
