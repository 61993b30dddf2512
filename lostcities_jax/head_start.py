"""Where the policy of a new run begins: at random, or with what an agent has learned."""

from typing import Any

from lostcities_jax import checkpoint
from lostcities_jax.bots import BOTS
from lostcities_jax.config import with_values
from lostcities_jax.errors import UserError, shown
from lostcities_jax.evaluation.loading import load_checkpoint, load_metadata, pinned
from lostcities_jax.settings import Config
from lostcities_jax.solvers.solver import Solver


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
    name = pinned(name)
    _check(name, load_metadata(name), config)
    return with_values(config, {"gradient.start_from": name})


def new_state(config: Config, solver: Solver) -> Any:
    """The state of a run before its first iteration.

    With `gradient.start_from`, its policy is that of an agent: the network of its average strategy,
    or of its own policy gradient. All else is new, the critic too.

    Raises:
      UserError: for a start that has gone meanwhile, is damaged, or is none for this run.
    """
    name = config.gradient.start_from
    if not name:
        return solver.init()
    metadata, start = load_checkpoint(name)
    _check(name, metadata, config)
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
    try:
        checkpoint.check_compatible(metadata, config.rules, config.network)
    except UserError as error:
        raise UserError(f"gradient.start_from is {shown(name)}: {error}") from error
