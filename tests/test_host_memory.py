"""The memory that plans are held against is what a container leaves of the machine's."""

import os

import jax
import pytest

from lostcities_jax import host_memory
from lostcities_jax.devices import memory_limit_bytes

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
NO_LIMIT_OF_VERSION_1 = 2**63 - 4096


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/a/b", {"a/b/memory.max": 3000}, 3000),
        ("0::/a/b", {"a/memory.max": 2000, "a/b/memory.max": 3000}, 2000),  # the outer one holds
        ("0::/a/b", {"a/b/memory.max": "max"}, MACHINE),
        ("0::/", {"memory.max": 1000}, 1000),
        ("2:cpu,memory:/a\n1:cpuset:/b", {"memory/a/memory.limit_in_bytes": 3000}, 3000),
        # Docker of version 1: the own place is the one outside, and the top group is the own.
        ("4:memory:/docker/c\n0::/", {"memory/memory.limit_in_bytes": 2000}, 2000),
        ("4:memory:/", {"memory/memory.limit_in_bytes": NO_LIMIT_OF_VERSION_1}, MACHINE),
        ("4:cpu:/a", {"memory/a/memory.limit_in_bytes": 1}, MACHINE),
        (None, {}, MACHINE),
    ],
)
def test_a_container_s_limit_is_the_memory_of_a_cpu(own, files, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(host_memory, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(host_memory, "_OWN_GROUPS", tmp_path / "own")
    if own is not None:
        (tmp_path / "own").write_text(f"{own}\n")
    for name, limit in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{limit}\n")
    assert memory_limit_bytes(jax.devices()[0]) == expected
