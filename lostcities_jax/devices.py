"""Devices: which ones a run uses, and the mesh its lanes are spread over."""

import contextlib
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from lostcities_jax.errors import UserError, nearest, shown
from lostcities_jax.host_memory import host_memory_bytes

LANE_AXIS = "lane"
PROCESS_AXIS = "process"
SAME = "same"  # `traversal.devices` that are those of the run


class Machine(NamedTuple):
    """Where a run computes: this process's share, and who else takes part.

    Attributes:
      lanes: the mesh that lanes are spread over, of this process's devices alone.
      home: this process's device for memories and networks.
      peers: the homes of all processes, a mesh along PROCESS_AXIS; None for a process alone.
    """

    lanes: Mesh
    home: jax.Device  # pyright: ignore
    peers: Mesh | None = None

    @property
    def processes(self) -> int:
        """How many processes share the run."""
        return 1 if self.peers is None else self.peers.size

    @property
    def process(self) -> int:
        """Which of them this is."""
        return 0 if self.peers is None else self.home.process_index

    @property
    def aside(self) -> jax.Device:  # pyright: ignore
        """Another device like home, for what can be done beside it; home where there is none."""
        if self.peers is not None or self.lanes.size < 2:
            return self.home
        last = self.lanes.devices.flat[-1]
        return last if last.platform == self.home.platform else self.home


def one_process(lanes: Mesh) -> Machine:
    """A process that works alone, at home on the first device of its mesh."""
    return Machine(lanes, lanes.devices.flat[0])


# Not a machine of one's own, but a part of whatever program is being traced.
TRACED = Machine(Mesh(np.empty((), object), ()), None)


def select_machine(devices: str, traversal_devices: str) -> Machine:
    """The machine of the settings `devices` and `traversal.devices`; see `select_devices`."""
    walking = devices if traversal_devices == SAME else traversal_devices
    _ask_for_cpus(devices, walking)
    home, lanes = select_devices(devices).devices.flat[0], select_devices(walking)
    if jax.process_count() == 1:
        return Machine(lanes, home)
    homes = [jax.local_devices(p, home.platform)[0] for p in range(jax.process_count())]
    return Machine(lanes, home, Mesh(np.array(homes), (PROCESS_AXIS,)))


def select_devices(spec: str) -> Mesh:
    """The mesh of a `devices` setting, of this process; the first call starts JAX's backend.

    Args:
      spec: "auto" (all GPUs or TPUs, else one CPU device a core), "gpu", or "cpu:N".

    Raises:
      UserError: for any other text, or devices that this process does not have.
    """
    _ask_for_cpus(spec)
    try:
        devices = jax.local_devices(backend={"auto": None, "gpu": "gpu"}.get(spec, "cpu"))
    except RuntimeError as error:
        raise UserError(f"devices is {spec}, but JAX finds no such device here") from error
    wanted = _cpus_named(spec) or len(devices)
    if wanted > len(devices):
        raise UserError(f"devices is {spec}; allowed: at most cpu:{len(devices)} in this process")
    return Mesh(np.array(devices[:wanted]), (LANE_AXIS,))


def usable_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _ask_for_cpus(*specs: str) -> None:
    """Has the backend start with the CPU devices of all these settings, if it has not started."""
    # On the CPU a device is a share of the cores; how many must be said before the start.
    cpus = max(_cpus_named(spec) or usable_cores() for spec in specs)
    if jax.config.jax_num_cpu_devices < cpus:  # pyright: ignore
        with contextlib.suppress(RuntimeError):  # too late once the backend has started
            jax.config.update("jax_num_cpu_devices", cpus)


def _cpus_named(spec: str) -> int:
    """N of "cpu:N", else 0; raises UserError for what is no `devices` setting."""
    match = re.fullmatch(r"auto|gpu|cpu:([1-9]\d{0,3})", spec)
    if not match:
        near = nearest(spec, ("auto", "gpu", "cpu:1"))
        raise UserError(f"devices is {shown(spec)}; allowed: auto, gpu or cpu:N{near}")
    return int(match[1] or 0)


@contextlib.contextmanager
def out_of_memory_named(settings: str) -> Iterator[None]:
    """Says in one line which settings to lower where what runs inside has too little memory.

    Raises:
      UserError: instead of JAX's or NumPy's own error.
    """
    try:
        yield
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        text = str(error)
        if isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in text:
            raise
        raise UserError(
            f"out of memory ({shown(text.partition(chr(10))[0], 120)}); lower {settings}; "
            f"checkpoints are kept"
        ) from error


def memory_limit_bytes(device: jax.Device) -> int | None:  # pyright: ignore
    """Memory a device may use: its own, or this process's for a CPU; None if unknown."""
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"]
    return host_memory_bytes()
