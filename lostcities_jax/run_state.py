"""A solver's state as a run's checkpoints keep it: written while the run goes on, and read back."""

import concurrent.futures
import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lostcities_jax import checkpoint
from lostcities_jax.devices import out_of_memory_named
from lostcities_jax.errors import UserError
from lostcities_jax.processes import gathered_by_first
from lostcities_jax.settings import Config
from lostcities_jax.solvers.catalogue import plays_itself
from lostcities_jax.solvers.solver import Solver
from lostcities_jax.tracking import METRICS_FILE, read_metrics

# What decides the size of a state.
MEMORY_SETTINGS = "memory.advantage_capacity, memory.strategy_capacity or critic.capacity"
_PROCESSES = "processes"  # of a checkpoint's training, what each of several processes holds


class Saver:
    """Writes the checkpoints of a run in a thread of its own; use as a context manager.

    The run waits for a copy of its state alone, which nothing later can change, and for an earlier
    checkpoint if that is still being written. Leaving the context waits for the last one. Several
    processes must all save alike: the first writes what all of them hold.
    """

    def __init__(
        self, config: Config, folder: pathlib.Path, solver: Solver, say: Callable[[str], None]
    ):
        """`say` is told of a checkpoint that could not be written, or an old one that could not be
        removed; the run goes on."""
        self._config, self._solver, self._say = config, solver, say
        self._directory = folder / checkpoint.FOLDER
        self._writer = concurrent.futures.ThreadPoolExecutor(1, "checkpoint")
        self._last: concurrent.futures.Future[UserError | None] | None = None

    def save(
        self, state: Any, iteration: int, fit: Callable[[Any], Any] = lambda state: state
    ) -> None:
        """Copies the state after an iteration and has it written.

        Args:
          state: the solver's state, to go on from.
          iteration: iterations finished.
          fit: makes the state to play with of it, and may donate it.
        """
        self._settled()
        with out_of_memory_named(MEMORY_SETTINGS):
            _, training = self._solver.split(state)
            if jax.process_count() > 1:
                training = {_PROCESSES: gathered_by_first(training)}
            else:
                training = jax.tree.map(_host_copy, training)
            policy, _ = self._solver.split(fit(state))
            policy = jax.tree.map(_host_copy, policy)
        if jax.process_index() == 0:
            self._last = self._writer.submit(self._write, iteration, policy, training)

    def finish(self) -> None:
        """Waits for the last checkpoint.

        Raises:
          UserError: if that one could not be written.
        """
        error = self._settled()
        if error is not None:
            raise error

    def __enter__(self) -> "Saver":
        return self

    def __exit__(self, *_) -> None:
        self._writer.shutdown(wait=True)

    def _settled(self) -> UserError | None:
        """What the save under way ends with."""
        return None if self._last is None else self._last.result()

    def _write(self, iteration: int, policy: Any, training: Any) -> UserError | None:
        metadata = metadata_of(self._config, policy)
        try:
            checkpoint.save(self._directory, iteration, policy, training, metadata)
        except UserError as error:
            self._say(f"{error}; earlier checkpoints are kept")
            return error
        try:
            checkpoint.prune(self._directory, self._config.checkpoint.keep)
        except UserError as error:
            self._say(str(error))
        return None


def resume(
    config: Config,
    folder: pathlib.Path,
    solver: Solver,
    new: Callable[[], Any],
    say: Callable[[str], None],
) -> tuple[Any, int]:
    """The state of a run's newest whole checkpoint and its iteration; without any, a new state.

    Newer ones that are damaged are renamed, so that the run can write them anew; `say` is told.

    Args:
      config: the run's.
      folder: the run's, or that of the first of several processes.
      solver: whose state it is.
      new: makes the state before the first iteration.
      say: takes a line for the log.

    Raises:
      UserError: where none is whole or all are gone, or the newest is of another game or network.
    """
    damaged: list[tuple[pathlib.Path, checkpoint.DamagedError]] = []
    directory = folder / checkpoint.FOLDER
    if checkpoint.latest(directory) is None:
        _check_new(config, folder)
        return new(), 0
    for path in reversed(checkpoint.resolve_all(directory)):
        try:
            state, iteration = restore(config, path, solver)
        except checkpoint.DamagedError as error:
            damaged.append((path, error))
            continue
        if jax.process_index() == 0:
            for broken, error in damaged:
                say(f"{error}; kept as {checkpoint.set_aside(broken).name}, an older one is taken")
        return state, iteration
    raise damaged[0][1]


def restore(config: Config, path: pathlib.Path, solver: Solver) -> tuple[Any, int]:
    """The state of one checkpoint and its iteration.

    Raises:
      UserError: for a checkpoint that is damaged or of another game or network.
    """
    metadata = checkpoint.read_metadata(path)
    checkpoint.check_compatible(metadata, config.rules, config.network)
    policy, training = solver.split(jax.eval_shape(solver.init))
    if metadata.format_version < checkpoint.STRATEGY_APART:
        training.pop("strategy", None)
    policy = checkpoint.restore_policy(path, policy)
    if jax.process_count() > 1:
        whole = checkpoint.restore_training(path, {_PROCESSES: [training] * jax.process_count()})
        training = whole[_PROCESSES][jax.process_index()]
    else:
        training = checkpoint.restore_training(path, training)
    return solver.join(policy, training), metadata.iteration


def _check_new(config: Config, folder: pathlib.Path) -> None:
    """Refuses a run without a checkpoint that must have had one, whose metrics would go."""
    done = len(read_metrics(folder)) if (folder / METRICS_FILE).exists() else 0
    if done > 2 * config.checkpoint.every:  # the second one is begun when the first is whole
        raise UserError(
            f"run {folder} has metrics of {done} iterations and no checkpoint; "
            f"allowed: a run with a checkpoint, or one ended before its first"
        )


def metadata_of(config: Config, policy: dict[str, Any]) -> checkpoint.Metadata:
    """What is said of a policy that these settings made."""
    return checkpoint.Metadata(
        game=config.game,
        rules=config.rules,
        network=dataclasses.asdict(config.network),
        fallback=config.traversal.fallback,
        weighting=config.learner.weighting,
        snapshot_slots=config.snapshots.slots if config.snapshots.every else 0,
        solver=config.solver,
        advantage_networks=len(policy.get("advantage", ())),
        plays="current" if plays_itself(config) else "average",
    )


def _host_copy(leaf: jax.Array) -> np.ndarray:
    """A copy: on a CPU `np.asarray` shares the array's memory, which a donation gives away."""
    return np.array(leaf)
