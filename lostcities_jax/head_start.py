"""Where the policy of a new run begins: at random, or with what an agent has learned."""

import pathlib
from typing import Any

from lostcities_jax import checkpoint
from lostcities_jax.bots import BOTS
from lostcities_jax.config import with_values
from lostcities_jax.errors import UserError, shown
from lostcities_jax.evaluation import agent_file
from lostcities_jax.evaluation.loading import (
    check_copy,
    copy_agent,
    load_checkpoint,
    load_metadata,
    pinned,
)
from lostcities_jax.settings import Config
from lostcities_jax.solvers.solver import Solver

COPY = f"start{agent_file.SUFFIX}"  # in a run's folder


def with_pinned_start(config: Config) -> Config:
    """The config of a new run, which says which of a run's checkpoints it starts from.

    Raises:
      UserError: for a start that is no agent, or none with a network for this run.
    """
    name = config.gradient.start_from
    if not name:
        return config
    if name in BOTS:
        raise UserError(
            f"gradient.start_from is {shown(name)}, which has no network; allowed: a checkpoint, "
            f"an agent file or shipped"
        )
    try:
        name = pinned(name)
        metadata = load_metadata(name)
    except UserError as error:
        raise UserError(f"gradient.start_from: {error} (bots have no network)") from error
    _check(name, metadata, config)
    return with_values(config, {"gradient.start_from": name})


def keep_start(config: Config, folder: pathlib.Path) -> None:
    """Copies where a new run starts from into its folder, which may be needed once more.

    Raises:
      UserError: for a start that has gone meanwhile, is damaged, or cannot be copied.
    """
    if config.gradient.start_from:
        copy_agent(config.gradient.start_from, folder / COPY)


def new_state(config: Config, solver: Solver, folder: pathlib.Path) -> Any:
    """The state of a run before its first iteration.

    With `gradient.start_from`, its policy is that of an agent: the network of its average strategy,
    or of its own policy gradient. All else is new, the critic too.

    Args:
      config: the settings of the run.
      solver: whose state it is.
      folder: the run's, with its copy of the agent.

    Raises:
      UserError: for a copy that is missing or damaged, or none for this run.
    """
    if not config.gradient.start_from:
        return solver.init()
    path = folder / COPY
    check_copy(path, f"{shown(config.gradient.start_from)}, where it starts")
    metadata, start = load_checkpoint(str(path))
    _check(str(path), metadata, config)
    network = start["policy"] if "policy" in start else start["strategy"]
    # Nobody keeps the new state, whose memories `join` makes again.
    policy, training = solver.split(solver.init())
    return solver.join(policy | {"policy": network}, training)


def _check(name: str, metadata: checkpoint.Metadata, config: Config) -> None:
    if metadata.game != config.game:
        raise UserError(
            f"gradient.start_from is {shown(name)}, an agent for {metadata.game}; "
            f"allowed: one for {config.game}"
        )
    rules = config.rules if config.game == "lost_cities" else metadata.rules
    try:
        checkpoint.check_compatible(metadata, rules, config.network)
    except UserError as error:
        raise UserError(f"gradient.start_from is {shown(name)}: {error}") from error
