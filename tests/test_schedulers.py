"""Host schedulers: the same samples as the lockstep traversal, from another implementation."""

import dataclasses
import sys

import jax
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

from lostcities_jax.games.game import Phase
from lostcities_jax.games.leduc import leduc
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.networks import make_network
from lostcities_jax.regret import regret_matching
from lostcities_jax.rules import MINI, Rules
from lostcities_jax.schedulers import interleaved, recursive
from lostcities_jax.schedulers.answers import Answers, Players, make_critic_values
from lostcities_jax.schedulers.host_game import HostGame, Layout, Position
from lostcities_jax.schedulers.walk import walk
from lostcities_jax.traversal.plan import Plan

SMALL = Rules(colors=3, ranks=5, wagers=1, hand=4, penalty=-10, bonus_cards=4, bonus=10)
ALL = 64  # branches that follow every action

POKER_PLANS = {
    "outcome": (Plan(4, 30), (0, 1)),
    "two branches, depth limit": (Plan(4, 30, branches=2, max_depth=3), (0,)),
    "all branches, node limit": (Plan(4, 30, branches=ALL, max_nodes=7), (1,)),
}
# Two branches are two of the card actions, and all of the draws.
ONE_COLOR = dataclasses.replace(MINI, colors=1, ranks=7, max_turns=3)
CARD_GAMES = {
    "outcome": (SMALL, Plan(4, 9), table_policy, (4,)),
    "two branches": (ONE_COLOR, Plan(4, 9, branches=2), dyadic_policy, ()),
}


def scheduled(scheduler, game, players, plan, traverser, width=None, key=0, trace=1.0):
    plan = dataclasses.replace(plan, width=width or plan.width)
    answers = Answers(seats(traverser, 0.4))
    return scheduler.run(game, players, plan, answers, jax.random.key(key), trace)


def check_against_lockstep(
    game,
    plan,
    traverser,
    policy,
    widths,
    estimator="outcome",
    network=None,
    trace=1.0,
    room=4096,
):
    """A recursive run leaves the memories of the lockstep batch, bit for bit, and interleaved
    runs are the same as the recursive one."""
    players = table_players(game, policy, network)
    expected, summary = lockstep_memories(
        game,
        players,
        plan,
        seats(traverser, 0.4),
        jax.random.key(0),
        traverser,
        room,
        estimator,
        network,
        trace,
    )
    assert summary.finished.all() and summary.overflows == 0
    alone = scheduled(recursive, game, players, plan, traverser, 1, trace=trace)
    assert_same_trees(alone.summary, summary)
    memories = collected_memories(game, alone, traverser, room, estimator, plan.has_critic)
    assert_same_trees(memories, expected)
    assert len(alone.player) < room or room < 100
    for width in widths:
        found = scheduled(interleaved, game, players, plan, traverser, width, trace=trace)
        assert_same_trees(found._replace(calls=()), alone._replace(calls=()))
    return summary


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if case == "two branches, depth limit" else pytest.mark.slow)
        for case in POKER_PLANS
    ],
)
def test_poker_samples_are_those_of_the_lockstep_traversal(case):
    """In Leduc poker a player may have two turns in a row."""
    plan, traversers = POKER_PLANS[case]
    for traverser in traversers:
        summary = check_against_lockstep(leduc(), plan, traverser, dyadic_policy, (1, 5, 8))
        assert summary.cut.any() == ("limit" in case)


def test_full_memories_replace_what_they_replace_after_the_lockstep_traversal():
    check_against_lockstep(leduc(), Plan(4, 30), 0, dyadic_policy, (), room=20)


@pytest.mark.parametrize("case", ["outcome", pytest.param("two branches", marks=pytest.mark.slow)])
def test_card_game_samples_are_those_of_the_lockstep_traversal(case):
    rules, plan, policy, widths = CARD_GAMES[case]
    summary = check_against_lockstep(lost_cities(rules), plan, 1, policy, widths)
    assert summary.timeout.any() == (rules == ONE_COLOR)
    assert not summary.cut.any()


def test_samples_around_a_critic_are_those_of_the_lockstep_traversal():
    game = leduc()
    check_against_lockstep(
        game,
        Plan(4, 30, has_critic=True),
        1,
        dyadic_policy,
        (5,),
        "baseline",
        hashed_critic(game.head_sizes),
        trace=0.5,
    )


def random_network_params(network, key):
    """Parameters whose last layers are not zero."""
    params = network.init(jax.random.key(0))
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))
    noisy = [
        leaf + 0.3 * jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(structure, noisy)


@pytest.mark.usefixtures("quick_compile")
def test_a_network_and_a_critic_give_the_samples_of_the_lockstep_traversal_nearly():
    game = leduc()
    network = make_network(game, "mlp", 16, 2)
    params = [random_network_params(network, jax.random.key(seed)) for seed in range(3)]

    def policy(params, info, legal, head):
        return regret_matching(network.apply(params, info, head), legal, "argmax")

    plan = Plan(4, 30, branches=ALL, has_critic=True)
    acting = tuple(
        seat._replace(params=own) for seat, own in zip(seats(0, 0.4), params[:2], strict=True)
    )
    players = Players((policy, policy), make_critic_values(game, network, 3.0))
    expected, summary = lockstep_memories(
        game,
        players,
        plan,
        acting,
        jax.random.key(1),
        0,
        4096,
        "baseline",
        network,
        0.7,
        critic_params=params[2],
        value_scale=3.0,
    )
    answers = Answers(acting, params[2])
    found = interleaved.run(game, players, plan, answers, jax.random.key(1), 0.7)
    assert_same_trees(found.summary, summary)
    assert summary.fallbacks.any()
    memories = collected_memories(game, found, 0, 4096, "baseline", True)
    assert_same_trees(memories, expected, rtol=1e-4, atol=1e-4)


def test_interleaved_traversals_fill_their_calls():
    """Places are refilled at once, and most traversals are kept at one kind of decision."""
    game = leduc()
    players = table_players(game, dyadic_policy)
    found = scheduled(interleaved, game, players, Plan(1, 300), 0, width=32)
    assert found.calls.rows == len(found.player)
    assert found.calls.realised_batch > 16
    alone = scheduled(recursive, game, players, Plan(1, 20), 0)
    assert alone.calls == (len(alone.player), len(alone.player))


def test_a_walk_is_not_as_deep_as_the_interpreters_stack():
    """A game of more decisions than Python has frames: 1 point for every one of them."""
    length = 3 * sys.getrecursionlimit()
    layout = Layout(info_size=1, open_size=0, num_actions=2, num_uniforms=1)

    def position(turn):
        seen = np.zeros(layout.seen, np.uint8)
        return Position(turn, seen, 0, np.float32(turn), turn == length, False)

    game = HostGame(
        layout,
        (Phase(0, 0, 2),),
        deal=lambda key: position(0),
        step=lambda before, action, key, count: position(before.record + 1),
    )
    steps = walk(game, Plan(1, 1), 1.0, np.zeros(2, np.uint32))
    next(steps)
    with pytest.raises(StopIteration) as end:
        while True:
            steps.send(np.array([0.25, 0.75, 0.0, 1.0, 1.0, 0.75, 0.0], np.float32))
    found = end.value.value
    assert len(found.player) == length
    np.testing.assert_array_equal(found.decisions.values.node_value, length)
