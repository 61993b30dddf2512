"""Processes that share a run, on one host or several, by `jax.distributed`.

Every process runs the same command on its own lanes and memories; the first writes the run folder
and its checkpoints, the others a log and metrics beside it. What they must agree on passes through
here; the networks' gradients do not.
"""

import dataclasses
import pathlib
import zlib
from typing import TypeVar

import jax
import numpy as np
from jax._src import distributed

from lostcities_jax.errors import UserError, shown

_T = TypeVar("_T")
_BLOCK = 2**26  # bytes


@dataclasses.dataclass(frozen=True)
class Meeting:
    """How the processes of a run find each other; where all are None, JAX finds out.

    Attributes:
      coordinator: address and port that the first process listens on.
      num_processes: how many there are.
      process_id: which of them this is, from 0.
    """

    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None


def join(meeting: Meeting) -> int:
    """Waits for the other processes; to be called before anything starts JAX's backend.

    Returns:
      which process this is.

    Raises:
      UserError: where they cannot be found.
    """
    try:
        jax.distributed.initialize(meeting.coordinator, meeting.num_processes, meeting.process_id)
    except (ValueError, RuntimeError) as error:
        raise UserError(
            f"the processes of this run were not found ({error}); allowed: --distributed under "
            f"Slurm, Kubernetes or MPI, or --coordinator, --num-processes and --process-id"
        ) from error
    # `jax.process_index` would start the backend before the settings say with how many devices.
    return distributed.global_state.process_id


def own_folder(path: pathlib.Path | None, process: int) -> pathlib.Path | None:
    """Where a process writes its log and metrics, in a run whose first process has `path`."""
    return path.with_name(f"{path.name}-process-{process}") if path and process else path


def gathered(tree: _T) -> list[_T]:
    """A tree of host arrays of every process, in their order; all must call it alike."""
    if jax.process_count() == 1:
        return [tree]
    from jax.experimental import multihost_utils

    stacked = multihost_utils.process_allgather(tree)
    return [
        jax.tree.map(lambda leaf, p=process: leaf[p], stacked)
        for process in range(jax.process_count())
    ]


def gathered_by_first(tree: _T) -> list[_T]:
    """As `gathered`, for what is large: process 0 alone gets it, the others nothing.

    On the way every process holds a block of each.
    """
    from jax.experimental import multihost_utils

    is_first = jax.process_index() == 0
    leaves, structure = jax.tree.flatten(tree)
    columns = []
    for leaf in map(np.asarray, leaves):
        own = np.ascontiguousarray(leaf).reshape(-1).view(np.uint8)
        whole = np.empty((jax.process_count() if is_first else 0, own.size), np.uint8)
        for start in range(0, own.size, _BLOCK):
            block = multihost_utils.process_allgather(own[start : start + _BLOCK])
            if is_first:
                whole[:, start : start + _BLOCK] = block
        columns.append([row.view(leaf.dtype).reshape(leaf.shape) for row in whole])
    return [jax.tree.unflatten(structure, parts) for parts in zip(*columns, strict=True)]


def check_agreement(name: str, text: str) -> None:
    """Refuses to go on with processes that differ in `text`; all must call it alike.

    Raises:
      UserError: in every process, naming the first that differs from process 0.
    """
    marks = [int(mark) for mark in gathered(np.uint32(zlib.crc32(text.encode())))]
    for process, mark in enumerate(marks):
        if mark != marks[0]:
            raise UserError(
                f"process {process} has another {name} than process 0; here it is "
                f"{shown(text)}; allowed: the same in every process"
            )
