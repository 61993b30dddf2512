"""Compiled programs kept from one process to the next, in the user's own cache folder."""

import hashlib
import os
import pathlib
import platform
import stat

import jax

_MIN_COMPILE_SECONDS = 0.2  # what compiles faster is not worth a file


def use_compile_cache() -> pathlib.Path | None:
    """Has JAX keep what it compiles, unless the user's JAX settings say otherwise.

    The folder is the user's and nobody else's: programs are loaded and run as they are, so one
    that others may write is not used. Processors of different kinds have folders of their own, as
    a program may use instructions that only one of them has.

    Returns:
      the folder; None where JAX's own settings decide, or there is no private folder.
    """
    if jax.config.jax_compilation_cache_dir or not jax.config.jax_enable_compilation_cache:  # pyright: ignore
        return None
    folder = _cache_home() / "lostcities_jax" / f"programs-{_processor()}"
    if not _is_private(folder):
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _MIN_COMPILE_SECONDS)
    return folder


def _cache_home() -> pathlib.Path:
    """Where the user's programs keep what they can do without (XDG Base Directory)."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return pathlib.Path(home) if os.path.isabs(home) else pathlib.Path.home() / ".cache"


def _processor() -> str:
    """A short name of the processor's kind and instructions."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    telling = {line for line in lines if line.startswith(("flags", "Features", "model name"))}
    text = "\n".join([platform.machine(), platform.processor(), *sorted(telling)])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _is_private(folder: pathlib.Path) -> bool:
    """Makes the folder if need be; whether it is this user's, and no one else may write it."""
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        for path in (folder.parent, folder):
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                return False
            if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return False
    except (OSError, RuntimeError):  # a user without a home
        return False
    return os.access(folder, os.W_OK)
