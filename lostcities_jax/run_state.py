"""A solver's state as a run's checkpoint keeps it: the policy to play with, and all the rest."""

import dataclasses
import pathlib
from typing import Any

import jax

from lostcities_jax import checkpoint
from lostcities_jax.settings import Config
from lostcities_jax.solvers.catalogue import plays_itself
from lostcities_jax.solvers.solver import Solver


def save(config: Config, folder: pathlib.Path, solver: Solver, state: Any, iteration: int) -> None:
    """Writes the checkpoint of an iteration into a run folder.

    Raises:
      UserError: for a folder that cannot be written.
    """
    policy, training = solver.split(state)
    checkpoint.save(
        folder / checkpoint.FOLDER,
        iteration,
        policy,
        training,
        checkpoint.Metadata(
            game=config.game,
            rules=config.rules,
            network=dataclasses.asdict(config.network),
            fallback=config.traversal.fallback,
            weighting=config.learner.weighting,
            snapshot_slots=config.snapshots.slots if config.snapshots.every else 0,
            solver=config.solver,
            advantage_networks=len(policy.get("advantage", ())),
            plays="current" if plays_itself(config) else "average",
        ),
        config.checkpoint.keep,
    )


def restore(config: Config, folder: pathlib.Path, solver: Solver) -> tuple[Any, int]:
    """The state of a run's newest checkpoint and its iteration.

    Raises:
      UserError: for a checkpoint that is damaged or of another game or network.
    """
    path = checkpoint.resolve(folder)
    metadata = checkpoint.read_metadata(path)
    checkpoint.check_compatible(metadata, config.rules, config.network)
    policy, training = solver.split(jax.eval_shape(solver.init))
    policy = checkpoint.restore_policy(path, policy)
    training = checkpoint.restore_training(path, training)
    return solver.join(policy, training), metadata.iteration
