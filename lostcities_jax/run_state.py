"""A solver's state as a run's checkpoint keeps it: the policy to play with, and all the rest."""

import dataclasses
import pathlib
from typing import Any

import jax

from lostcities_jax import checkpoint
from lostcities_jax.learner import LearnerState
from lostcities_jax.settings import Config
from lostcities_jax.solvers.deep_cfr import DeepCfr, DeepCfrState


def save(config: Config, folder: pathlib.Path, state: DeepCfrState, iteration: int) -> None:
    """Writes the checkpoint of an iteration into a run folder.

    Raises:
      UserError: for a folder that cannot be written.
    """
    policy, training = _split(state)
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
        ),
        config.checkpoint.keep,
    )


def restore(config: Config, folder: pathlib.Path, solver: DeepCfr) -> tuple[DeepCfrState, int]:
    """The state of a run's newest checkpoint and its iteration.

    Raises:
      UserError: for a checkpoint that is damaged or of another game or network.
    """
    path = checkpoint.resolve(folder)
    metadata = checkpoint.read_metadata(path)
    checkpoint.check_compatible(metadata, config.rules, config.network)
    policy, training = _split(jax.eval_shape(solver.init))
    policy = checkpoint.restore_policy(path, policy)
    training = checkpoint.restore_training(path, training)
    advantage = [
        LearnerState(params, optimizer)
        for params, optimizer in zip(
            policy["advantage"], training["advantage_optimizers"], strict=True
        )
    ]
    blank = solver.init()
    snapshots = blank.snapshots
    if snapshots is not None:
        snapshots = type(snapshots)(
            tuple(policy["snapshots"]), policy["snapshot_iterations"], training["snapshots_offered"]
        )
    state = DeepCfrState(
        advantage=(advantage[0], advantage[1]),
        strategy=LearnerState(policy["strategy"], training["strategy_optimizer"]),
        advantage_memories=tuple(training["advantage_memories"]),
        strategy_memory=training["strategy_memory"],
        critic=training["critic"],
        critic_memory=blank.critic_memory,
        snapshots=snapshots,
    )
    return state, metadata.iteration


def _split(state: DeepCfrState) -> tuple[dict[str, Any], dict[str, Any]]:
    """The policy's parameters, and the rest."""
    policy: dict[str, Any] = {
        "strategy": state.strategy.params,
        "advantage": [learner.params for learner in state.advantage],
    }
    training: dict[str, Any] = {
        "strategy_optimizer": state.strategy.optimizer,
        "advantage_optimizers": [learner.optimizer for learner in state.advantage],
        "critic": state.critic,
        "strategy_memory": state.strategy_memory,
        "advantage_memories": list(state.advantage_memories),
    }
    if state.snapshots is not None:
        policy["snapshots"] = list(state.snapshots.params)
        policy["snapshot_iterations"] = state.snapshots.iteration
        training["snapshots_offered"] = state.snapshots.offered
    return policy, training
