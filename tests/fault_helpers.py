"""Faults that a test can have happen."""

import contextlib
import resource

import jax


@contextlib.contextmanager
def no_file_longer_than(size):
    """Has the system refuse longer files, as a full disk or a quota does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    shortest = jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)  # programs are files too
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", shortest)
