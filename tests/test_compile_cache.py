"""The folder of compiled programs: private, the user's choice first, and used."""

import json
import os
import subprocess
import sys

import pytest

from lostcities_jax.compile_cache import use_compile_cache

PROGRAM = """
import json, sys
import jax
from lostcities_jax.compile_cache import use_compile_cache
folder = use_compile_cache()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event))
jax.jit(lambda x: x * 2 + 1)(jax.numpy.arange(7.0)).block_until_ready()
print(json.dumps([folder and str(folder), sum("cache_hits" in event for event in hits)]))
"""


def run(cache_home, **environment):
    """The folder that a new process uses, and the programs it found there."""
    kept = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=kept | {"XDG_CACHE_HOME": str(cache_home), **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return json.loads(output)


def test_a_second_process_finds_the_first_ones_programs_in_a_private_folder(tmp_path):
    folder, first_hits = run(tmp_path / "cache")
    assert folder.startswith(str(tmp_path / "cache" / "lostcities_jax"))
    assert os.stat(folder).st_mode & 0o777 == 0o700
    assert first_hits == 0
    assert run(tmp_path / "cache")[1] >= 1


def test_a_folder_that_others_may_write_is_not_used(tmp_path):
    folder, _ = run(tmp_path)
    os.chmod(folder, 0o777)
    assert run(tmp_path)[0] is None


def test_the_user_s_own_settings_of_jax_come_first(tmp_path):
    assert run(tmp_path, JAX_COMPILATION_CACHE_DIR=str(tmp_path / "own"))[0] is None
    assert run(tmp_path, JAX_ENABLE_COMPILATION_CACHE="false") == [None, 0]


@pytest.mark.skipif("JAX_COMPILATION_CACHE_DIR" not in os.environ, reason="set by conftest")
def test_within_the_tests_nothing_is_written_to_the_user_s_folder():
    assert use_compile_cache() is None
