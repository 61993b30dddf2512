"""Rows in shared memory: where workers leave requests and the server leaves answers.

Every worker has slots of its own, so that no lock is needed, and a worker that dies can neither
hold one nor lose another's. Messages through pipes say which slots are ready.
"""

import dataclasses
from multiprocessing.shared_memory import SharedMemory

import numpy as np

from lostcities_jax.schedulers.host_game import Layout


@dataclasses.dataclass
class SlotTable:
    """A block of shared memory; `release` it in every process.

    Attributes:
      memory: the block.
      requests: rows of calls, see `Layout`. uint8[slots, R].
      answers: their answers. float32[slots, W].
    """

    memory: SharedMemory
    requests: np.ndarray | None
    answers: np.ndarray | None


def create_table(layout: Layout, slots: int) -> SlotTable:
    """A new block; whoever creates it unlinks it."""
    size = slots * (layout.answer_size * 4 + layout.row_size)
    return _table(SharedMemory(create=True, size=size), layout, slots)


def attach_table(name: str, layout: Layout, slots: int) -> SlotTable:
    """Another process's block."""
    return _table(SharedMemory(name), layout, slots)


def release(table: SlotTable, unlink: bool = False) -> None:
    """Lets go of the block, and removes it if `unlink`; a second call does nothing."""
    table.requests = table.answers = None  # views keep a block from closing
    table.memory.close()
    if unlink:
        try:
            table.memory.unlink()
        except FileNotFoundError:
            return


def slots_of(worker: int, num_workers: int, slots: int) -> range:
    """The slots that belong to a worker."""
    share = slots // num_workers
    return range(worker * share, (worker + 1) * share)


def _table(memory: SharedMemory, layout: Layout, slots: int) -> SlotTable:
    answers = np.ndarray((slots, layout.answer_size), np.float32, memory.buf)
    offset = answers.nbytes
    requests = np.ndarray((slots, layout.row_size), np.uint8, memory.buf, offset)
    return SlotTable(memory, requests, answers)
