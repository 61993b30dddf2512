"""Which devices a run gets."""

import os
import subprocess
import sys

from lostcities_jax.devices import select_devices, usable_cores
from lostcities_jax.tuning import places_to_try


def test_devices_that_walk_may_be_more_than_those_of_the_run():
    """In a process of its own, since the first devices decide how many a process can have."""
    program = (
        "from lostcities_jax.devices import select_machine;"
        "machine = select_machine('cpu:1', 'cpu:5');"
        "print(machine.lanes.size, machine.home.id)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.split() == ["5", "0"], run.stderr


def test_cores_are_counted_where_the_system_says_nothing_of_affinity(monkeypatch):
    """As on macOS."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert usable_cores() == 3
    assert select_devices("auto").size >= 1
    assert [devices for devices, _ in places_to_try()] == ["cpu:1", "cpu:2", "cpu:3"]
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1
