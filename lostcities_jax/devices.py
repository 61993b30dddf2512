"""Devices: which ones a run uses, and the mesh its lanes are spread over."""

import contextlib
import os
import re
from collections.abc import Iterator

import jax
import numpy as np
from jax.sharding import Mesh

from lostcities_jax.errors import UserError, shown

LANE_AXIS = "lane"


def select_devices(spec: str) -> Mesh:
    """The mesh of a `devices` setting; the first call starts JAX's backend.

    Args:
      spec: "auto" (all GPUs or TPUs, else one CPU device a core), "gpu", or "cpu:N".

    Raises:
      UserError: for any other text, or devices that this process does not have.
    """
    match = re.fullmatch(r"auto|gpu|cpu:([1-9]\d{0,3})", spec)
    if not match:
        raise UserError(f"devices is {shown(spec)}; allowed: auto, gpu or cpu:N")
    # On the CPU a device is a share of the cores; how many must be said before the start.
    cpus = int(match[1]) if match[1] else len(os.sched_getaffinity(0))
    if jax.config.jax_num_cpu_devices < cpus:  # pyright: ignore
        with contextlib.suppress(RuntimeError):  # too late once the backend has started
            jax.config.update("jax_num_cpu_devices", cpus)
    try:
        devices = jax.devices({"auto": None, "gpu": "gpu"}.get(spec, "cpu"))
    except RuntimeError as error:
        raise UserError(f"devices is {spec}, but JAX finds no such device here") from error
    wanted = len(devices) if not match[1] else int(match[1])
    if wanted > len(devices):
        raise UserError(f"devices is {spec}; allowed: at most cpu:{len(devices)} in this process")
    return Mesh(np.array(devices[:wanted]), (LANE_AXIS,))


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
    """Memory a device may use: its own, or the machine's for a CPU; None if unknown."""
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"]
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
