"""Agents by name: a bot, the policy of a checkpoint or agent file, or the shipped agent."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from lostcities_jax import checkpoint
from lostcities_jax.bots import BOTS
from lostcities_jax.config import config_from_dict
from lostcities_jax.errors import UserError, nearest, shown
from lostcities_jax.evaluation import agent_file
from lostcities_jax.evaluation.agents import Agent, Mixture, bot_agent
from lostcities_jax.evaluation.strategies import policy_template, strategies
from lostcities_jax.games.catalogue import make_game
from lostcities_jax.games.game import Game
from lostcities_jax.networks import Network, make_network
from lostcities_jax.rules import CLASSIC, Rules

_SHIPPED = "shipped"  # the agent that comes with the package
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
    found = {name: load_metadata(name) for name in names if name not in BOTS}
    for name, metadata in found.items():
        if metadata.game != "lost_cities":
            raise UserError(
                f"checkpoint {shown(name)} plays {metadata.game}; allowed in a match: lost_cities"
            )
        own = metadata.rules
        if rules is not None and own != rules:
            raise UserError(
                f"checkpoint {shown(name)} is for other rules: {_difference(own, rules)}"
            )
        rules = own
    rules = rules or CLASSIC
    return rules, [
        bot_agent(rules, name)
        if name in BOTS
        else agent_of(name, found[name], _policy(name, found[name]), policy)
        for name in names
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
    is_loose = {path: path in BOTS or _path(path).suffix == agent_file.SUFFIX for path in field}
    runs = {path: _run_of(pathlib.Path(path)) for path in field if not is_loose[path]}
    root = os.path.commonpath([run.parent for run in runs.values()]) if runs else ""
    labels = {
        path: f"{run.relative_to(root).as_posix()}/{pathlib.Path(path).name}"
        for path, run in runs.items()
    }
    return rules, [agent._replace(name=labels.get(agent.name, agent.name)) for agent in agents]


def pinned(name: str) -> str:
    """The name of who is now called so, whoever comes later: a run's newest checkpoint.

    Raises:
      UserError: for no agent.
    """
    if name in BOTS:
        return name
    _check_exists(name)
    if _path(name).suffix == agent_file.SUFFIX:
        return name
    inside = checkpoint.resolve(name).relative_to(pathlib.Path(name).absolute())
    return str(pathlib.Path(name) / inside)


def load_game(name: str) -> Game:
    """The game of a checkpoint, from its metadata alone.

    Raises:
      UserError: for no checkpoint, or a damaged one.
    """
    metadata = load_metadata(name)
    return make_game(metadata.game, metadata.rules)


def load_policy(name: str, policy: str | None = None) -> Agent | Mixture:
    """One of the strategies of a checkpoint or agent file.

    Args:
      name: its path, or "shipped".
      policy: "average", "iterates" or "current"; None for the one it is meant to play.

    Raises:
      UserError: for no checkpoint, a damaged one, or one without the strategy asked for.
    """
    return agent_of(name, *load_checkpoint(name), policy)


def agent_of(
    name: str, metadata: checkpoint.Metadata, params: dict[str, Any], policy: str | None = None
) -> Agent | Mixture:
    """One of the strategies of a checkpoint that was read; otherwise as `load_policy`."""
    found = strategies(_network(metadata), params, metadata.weighting, metadata.fallback)
    wanted = policy or metadata.plays
    if wanted not in found:
        raise UserError(
            f"checkpoint {shown(name)} holds no {wanted} strategy; allowed: "
            f"{', '.join(found)}" + (_ITERATES_HINT if wanted == "iterates" else "")
        )
    return found[wanted]._replace(name=name)


def load_checkpoint(name: str) -> tuple[checkpoint.Metadata, dict[str, Any]]:
    """Metadata and policy of a checkpoint or agent file.

    Raises:
      UserError: for neither, or a damaged one.
    """
    metadata = load_metadata(name)
    return metadata, _policy(name, metadata)


def copy_agent(name: str, path: pathlib.Path) -> None:
    """Copies the strategies of an agent to a file: what it was made of may go, or change.

    Raises:
      UserError: for neither a checkpoint nor an agent file, a damaged one, or a copy that cannot
        be written.
    """
    metadata, policy = without_snapshots(*load_checkpoint(name))
    agent_file.write(path, policy, metadata, config="")


def check_copy(path: pathlib.Path, of: str) -> None:
    """Refuses to go on without the copy that a run has of an agent.

    Raises:
      UserError: for no such file; `of` says whose copy it is.
    """
    if not path.is_file():
        raise UserError(
            f"{path} is missing, the run's copy of {of}; allowed: that file, or another made of "
            f"it by python -m lostcities_jax.export"
        )


def without_snapshots(
    metadata: checkpoint.Metadata, policy: dict[str, Any]
) -> tuple[checkpoint.Metadata, dict[str, Any]]:
    """A checkpoint less its past strategies, which may take more room than all else."""
    kept = {part: tree for part, tree in policy.items() if not part.startswith("snapshot")}
    return dataclasses.replace(metadata, snapshot_slots=0), kept


def _policy(name: str, metadata: checkpoint.Metadata) -> dict[str, Any]:
    template = policy_template(
        _network(metadata),
        metadata.solver,
        metadata.advantage_networks,
        metadata.snapshot_slots,
    )
    path = _path(name)
    if path.suffix == agent_file.SUFFIX:
        return agent_file.read_policy(path, template)
    return checkpoint.restore_policy(path, template)


def _network(metadata: checkpoint.Metadata) -> Network:
    game = make_game(metadata.game, metadata.rules)
    settings = config_from_dict({"network": dict(metadata.network)}).network
    return make_network(game, **dataclasses.asdict(settings))


def load_metadata(name: str) -> checkpoint.Metadata:
    """Metadata of a checkpoint or agent file.

    Raises:
      UserError: for neither, or a damaged one.
    """
    _check_exists(name)
    path = _path(name)
    if path.suffix == agent_file.SUFFIX:
        return agent_file.read_metadata(path)
    return checkpoint.read_metadata(path)


def _path(name: str) -> pathlib.Path:
    """The file or folder of a name; the agent file in it for the folder of a revision.

    An agent file in another folder, as `export` leaves it in that of a run, stands for itself.
    """
    if name == _SHIPPED:
        return agent_file.SHIPPED
    path = pathlib.Path(name)
    inside = path / agent_file.IN_FOLDER
    return inside if inside.is_file() and (path / agent_file.RECORD).is_file() else path


def _checkpoints(name: str) -> list[str]:
    _check_exists(name)
    if _path(name).suffix == agent_file.SUFFIX:
        return [name]
    return [str(path) for path in checkpoint.resolve_all(name)]


def _run_of(path: pathlib.Path) -> pathlib.Path:
    """The run folder of a checkpoint, or whatever folder holds it."""
    return path.parents[1] if path.parent.name == checkpoint.FOLDER else path.parent


def _check_exists(name: str) -> None:
    try:
        is_there = _path(name).exists()
    except OSError as error:  # a name too long to be one, or a folder that is not to be read
        raise UserError(f"agent {shown(name)} cannot be read: {error.strerror}") from error
    if not is_there:
        names = [*BOTS, _SHIPPED]
        raise UserError(
            f"{shown(name)} is neither a bot nor a checkpoint; allowed: "
            f"{', '.join(names)}, or a path{nearest(name, names)}"
        )


def _difference(own: Rules, wanted: Rules) -> str:
    names = [name for name in vars(own) if getattr(own, name) != getattr(wanted, name)]
    return ", ".join(
        f"rules.{name} is {getattr(own, name)} there but {getattr(wanted, name)} here"
        for name in names
    )
