"""Worker and inference processes: the samples of the recursive scheduler, and no hang."""

import dataclasses
import os
import signal
import threading
import time

import jax
import numpy as np
import pytest
from scheduler_helpers import (
    assert_same_trees,
    build_broken_players,
    build_table_players,
    dyadic_policy,
    table_players,
)
from traversal_helpers import seats

from lostcities_jax.games.leduc import leduc
from lostcities_jax.rules import CLASSIC
from lostcities_jax.schedulers import recursive
from lostcities_jax.schedulers.answers import Answers
from lostcities_jax.schedulers.blueprint import Blueprint, ServedSeat, ServiceSettings
from lostcities_jax.schedulers.service import InferenceService, SchedulerError
from lostcities_jax.traversal.plan import Plan

PLAN = Plan(1, 40, branches=2)
SEATS = (ServedSeat("advantage_0", 0.4, True), ServedSeat("strategy", 0.0, False))
WEIGHTS = {"advantage_0": np.zeros(3), "strategy": np.ones(3)}


def blueprint(plan=PLAN):
    return Blueprint("leduc", CLASSIC, plan, build_table_players, None)


def left_behind():
    return {name for name in os.listdir("/dev/shm") if name.startswith("psm_")}


@pytest.fixture(scope="module")
def expected():
    players = table_players(leduc(), dyadic_policy)
    return recursive.run(leduc(), players, PLAN, Answers(seats(0, 0.4)), jax.random.key(3))


def test_two_workers_collect_what_one_process_does(expected):
    before = left_behind()
    with InferenceService(blueprint(), ServiceSettings(workers=2)) as service:
        assert left_behind() != before
        assert service.push_weights(WEIGHTS) == 1
        for _ in range(2):
            found = service.run(SEATS, jax.random.key(3))
            assert_same_trees(found._replace(calls=()), expected._replace(calls=()))
            assert found.calls.rows == len(found.player)
            assert 1.0 <= found.calls.realised_batch <= 2.0
        assert service.push_weights(WEIGHTS) == 2
        with pytest.raises(ValueError, match="no weights were pushed for 'critic'"):
            service.run(SEATS, jax.random.key(3), critic="critic")
    assert left_behind() == before
    with pytest.raises(SchedulerError, match="the inference service is closed"):
        service.run(SEATS, jax.random.key(3))
    service.close()


def test_workers_with_many_traversals_fill_larger_batches_than_there_are_workers(expected):
    """Also with fewer slots than traversals in flight, whose requests wait for their turn.

    The long window waits for a worker that a busy machine holds up.
    """
    settings = ServiceSettings(workers=2, traversals=12, slots=17, max_batch=6, window_s=0.05)
    with InferenceService(blueprint(), settings) as service:
        service.push_weights(WEIGHTS)
        found = service.run(SEATS, jax.random.key(3))
    assert_same_trees(found._replace(calls=()), expected._replace(calls=()))
    assert found.calls.rows == len(found.player)
    assert 2.5 < found.calls.realised_batch <= 6.0


@pytest.mark.parametrize(
    "victim", [pytest.param("inference server", marks=pytest.mark.slow), "worker 1"]
)
def test_a_killed_process_ends_the_batch_with_one_line(victim):
    before = left_behind()
    endless = Plan(1, 100_000)
    with InferenceService(blueprint(endless), ServiceSettings(traversals=4)) as service:
        service.push_weights(WEIGHTS)
        processes = dict(service.processes)
        killed_at = []

        def kill():
            killed_at.append(time.monotonic())
            os.kill(processes[victim].pid, signal.SIGKILL)

        timer = threading.Timer(3.0, kill)
        timer.start()
        with pytest.raises(SchedulerError, match=f"{victim} ended with exit code -9"):
            service.run(SEATS, jax.random.key(3))
        timer.join()
        assert time.monotonic() - killed_at[0] < 10.0
    assert left_behind() == before


def test_an_error_in_a_process_is_told_in_one_line():
    before = left_behind()
    broken = dataclasses.replace(blueprint(), build=build_broken_players, settings="no such thing")
    with pytest.raises(SchedulerError, match="inference server: KeyError: 'no such thing'"):
        InferenceService(broken, ServiceSettings(workers=1))
    assert left_behind() == before


def test_settings_need_a_slot_for_every_worker():
    with pytest.raises(ValueError, match="slots is 1; allowed: at least the 2 workers"):
        ServiceSettings(workers=2, slots=1)


def test_rollouts_are_refused():
    with pytest.raises(ValueError, match="rollouts is 3; allowed with this scheduler: 0"):
        blueprint(Plan(1, 1, max_depth=1, rollouts=3))
