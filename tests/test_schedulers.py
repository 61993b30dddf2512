"""Host schedulers: the same samples as the lockstep traversal, from another implementation."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scheduler_helpers import (
    assert_same_trees,
    collected_memories,
    dyadic_policy,
    hashed_critic,
    lockstep_memories,
    table_players,
)
from traversal_helpers import seats, table_policy

from lostcities_jax.games.leduc import leduc
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.networks import make_network
from lostcities_jax.rules import MINI, Rules
from lostcities_jax.schedulers import interleaved, recursive
from lostcities_jax.schedulers.answers import Answers, make_critic_values
from lostcities_jax.traversal.lockstep import Plan

SMALL = Rules(colors=3, ranks=5, wagers=1, hand=4, penalty=-10, bonus_cards=4, bonus=10)
SHORT = dataclasses.replace(SMALL, max_turns=9)
ALL = 64  # branches that follow every action

CASES = {
    "outcome": (SMALL, Plan(4, 9)),
    "turn limit": (SHORT, Plan(4, 9)),
    "depth limit": (SMALL, Plan(4, 9, max_depth=7)),
    "node limit": (SMALL, Plan(4, 9, max_nodes=6)),
    "two branches": (MINI, Plan(4, 9, branches=2)),
    "two branches, depth limit": (SMALL, Plan(4, 5, branches=2, max_depth=7)),
    "two branches, node limit": (SHORT, Plan(4, 5, branches=2, max_nodes=40)),
    "all branches": (MINI, Plan(4, 9, branches=ALL)),
    "all branches, limits": (SMALL, Plan(4, 4, branches=ALL, max_depth=4, max_nodes=150)),
}


def scheduled(scheduler, game, players, plan, traverser, width=None, key=0, trace=1.0):
    plan = dataclasses.replace(plan, width=width or plan.width)
    answers = Answers(seats(traverser, 0.4))
    return scheduler.run(game, players, plan, answers, jax.random.key(key), trace)


def check_against_lockstep(game, plan, traverser, policy, estimator, network, trace, capacity):
    """Recursive and interleaved runs leave the memories of the lockstep batch, bit for bit."""
    players = table_players(game, policy, network)
    expected, summary = lockstep_memories(
        game, players, plan, seats(traverser, 0.4), jax.random.key(0), traverser, capacity,
        estimator, network, trace,
    )
    assert summary.finished.all() and summary.overflows == 0
    for scheduler, width in ((recursive, 1), (interleaved, 3), (interleaved, 64)):
        found = scheduled(scheduler, game, players, plan, traverser, width, trace=trace)
        assert_same_trees(found.summary, summary)
        memories = collected_memories(
            game, found, traverser, capacity, estimator, plan.has_critic
        )
        assert_same_trees(memories, tuple(expected))
    return found, summary


@pytest.mark.parametrize("traverser", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_samples_are_those_of_the_lockstep_traversal(case, traverser):
    rules, plan = CASES[case]
    policy = dyadic_policy if plan.branches else table_policy
    _, summary = check_against_lockstep(
        lost_cities(rules), plan, traverser, policy, "outcome", None, 1.0, 4096
    )
    assert summary.cut.all() == ("limit" in case and "turn" not in case)
