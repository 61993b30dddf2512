"""Traversals that branch: exact values, the same samples at any width, and overflows that show."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_traversal import (
    COLORS,
    EXACT_DISCARD_REGRET,
    EXACT_PLAY_REGRETS,
    EXACT_VALUE,
    FACES,
    assert_same,
    deck_with_hand,
    repeat_deck,
    run,
)
from traversal_helpers import decisions, seats, table_policy, uniform_policy

from lostcities_jax.cards import all_cards, card_type
from lostcities_jax.exact.best_response import expected_value
from lostcities_jax.exact.tree import build_tree, policy_table, uniform_table
from lostcities_jax.games.kuhn import kuhn
from lostcities_jax.games.leduc import leduc
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.lanes import episode_keys
from lostcities_jax.reference import Game
from lostcities_jax.regret import sample_action, uniform_strategy
from lostcities_jax.rules import CLASSIC, MINI
from lostcities_jax.traversal.lockstep import traverse
from lostcities_jax.traversal.plan import Plan
from lostcities_jax.traversal.rollouts import play_on
from lostcities_jax.traversal.sharded import sharded_traverse


@pytest.mark.parametrize(
    ("make_game", "branches"),
    [pytest.param(lambda: lost_cities(MINI), 6, marks=pytest.mark.slow), (leduc, 2)],
)
def test_a_branching_traversal_yields_the_same_samples_at_any_width(make_game, branches):
    game = make_game()
    found = []
    for width in (1, 24):
        plan = Plan(width, 20, branches=branches)
        tape, summary = run(game, table_policy, plan, 1)
        assert np.asarray(summary.finished).all()
        found.append(decisions(game, tape, 1, plan.levels(game)))
    assert_same(found[0], found[1])
    assert len(found[0]["rank"]) == int(np.asarray(summary.decisions)[:, 1].sum())


@pytest.mark.slow
def test_a_branching_traversal_yields_the_same_samples_on_four_devices():
    game, plan = leduc(), Plan(8, 20, branches=2)
    one = decisions(game, run(game, table_policy, plan, 1)[0], 1, plan.levels(game))
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("lane",))
    tape, _ = sharded_traverse(game, (table_policy,) * 2, plan, mesh)(
        seats(1, 0.4), jax.random.key(0)
    )
    parts = []
    for index in range(4):
        shard = jax.tree.map(lambda leaf, i=index: leaf.addressable_shards[i].data, tape)
        shard = shard._replace(length=shard.length[0])
        parts.append(decisions(game, shard, 1, plan.levels(game)))
        parts[-1]["traversal"] += index * 5
    assert_same(one, {name: np.concatenate([part[name] for part in parts]) for name in one})


def play_uniformly(info, legal, head):
    del info, head
    return uniform_strategy(legal)


def test_rollouts_do_not_depend_on_the_width():
    game = kuhn()
    found = []
    for width in (3, 32):
        plan = Plan(width, 60, 2, max_depth=2, rollouts=2, rollout_policy=play_uniformly)
        tape, summary = run(game, table_policy, plan, 0)
        assert np.asarray(summary.finished).all() and np.asarray(summary.cut).any()
        found.append(decisions(game, tape, 0, plan.levels(game)))
    assert_same(found[0], found[1])


@pytest.mark.usefixtures("quick_compile")
def test_rollouts_side_by_side_are_those_of_each_alone_and_copy_no_payoffs():
    """A loop that ended for each alone would, in every turn, keep what has ended as it is."""
    game, copies = kuhn(), 2
    deals = jax.vmap(game.deal)(jax.random.split(jax.random.key(0), 2 * 7))
    starts = jax.tree.map(lambda leaf: leaf.reshape(2, 7, *leaf.shape[1:]), deals)
    counts = jnp.array([1, 7])  # the first is through long before the second
    keys = jax.random.split(jax.random.key(1), 2)

    def play(starts, count, key):
        def decide(decision):
            return sample_action(uniform_strategy(decision.legal), decision.uniform)

        return play_on(
            game, decide, 3, starts, count, lambda index: episode_keys(key, index), copies
        )

    together = jax.vmap(play)(starts, counts, keys)
    for index in range(2):
        alone = play(*jax.tree.map(lambda leaf, i=index: leaf[i], (starts, counts, keys)))
        np.testing.assert_array_equal(together[index], alone)
    program = jax.make_jaxpr(jax.vmap(play))(starts, counts, keys)
    loops = [one.params for one in program.eqns if one.primitive.name == "while"]
    # One condition for both: where each has its own, the loop is compiled with such copies.
    assert [loop["cond_jaxpr"].out_avals[0].shape for loop in loops] == [()]


@pytest.mark.usefixtures("quick_compile")
def test_external_sampling_of_one_decision_gives_the_exact_regrets():
    """Every action is followed once, so nothing is left to chance."""
    game = lost_cities(CLASSIC)
    hand = [
        card_type(CLASSIC, color, face and face - 1)
        for color, face in zip(COLORS, FACES, strict=True)
    ]
    initial = repeat_deck(deck_with_hand(CLASSIC, hand), CLASSIC, 1)
    plan = Plan(1, 1, branches=16, max_depth=1)
    tape, summary = run(game, uniform_policy, plan, 0, initial=initial)
    assert int(np.asarray(tape.ends.ended).sum()) == 16  # paths, from one root
    assert np.asarray(summary.finished).all() and np.asarray(summary.cut).all()
    found = decisions(game, tape, 0, plan.levels(game))
    printed = [0 if card % 10 == 0 else card % 10 + 1 for card in sorted(hand)]
    exact = [EXACT_PLAY_REGRETS[face] for face in printed] + [EXACT_DISCARD_REGRET] * 8
    np.testing.assert_array_equal(found["target"], [exact])
    assert found["node_value"] == EXACT_VALUE


def exact_regrets(game, policy):
    """Counterfactual regrets of each info state, given that chance and the other reach it."""
    tree = build_tree(game)
    table = policy_table(tree, lambda player, head, info, legal: policy(None, info, legal, head)[0])
    values = np.zeros(len(tree.value))
    values[:] = tree.value
    others = np.ones((2, len(tree.value)))  # reach of all but player 0, but player 1
    for level in tree.levels:
        nodes = np.arange(len(tree.value))[level]
        parent, inner = tree.parent[nodes], tree.parent[nodes] >= 0
        others[:, nodes] = tree.chance[nodes]
        for player in (0, 1):
            up, node = parent[inner], nodes[inner]
            step = table[tree.history[up], tree.action[node]]
            step = np.where(tree.player[up] == player, 1.0, step)
            others[player, node] = others[player, up] * step
    children = np.zeros((len(tree.value), table.shape[1]))
    for node in reversed(range(len(tree.value))):
        if tree.history[node] >= 0:
            values[node] = table[tree.history[node]] @ children[node]
        if tree.parent[node] >= 0:
            children[tree.parent[node], tree.action[node]] = values[node]
    regrets = {}
    for node in np.nonzero(tree.history >= 0)[0]:
        player = tree.player[node]
        info = tree.histories.info[tree.history[node]]
        key = (player, tree.infos.packed[info].tobytes())
        sign, weight = 1.0 - 2.0 * player, others[player, node]
        total, mass = regrets.get(key, (0.0, 0.0))
        regret = np.where(tree.infos.legal[info], sign * (children[node] - values[node]), 0.0)
        regrets[key] = (total + weight * regret, mass + weight)
    return {key: total / mass for key, (total, mass) in regrets.items()}


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize(
    ("make_game", "player", "branches"),
    [
        pytest.param(kuhn, 0, 0, marks=pytest.mark.slow),
        (kuhn, 1, 1),
        pytest.param(kuhn, 0, 2, marks=pytest.mark.slow),
        pytest.param(leduc, 1, 0, marks=pytest.mark.slow),
        pytest.param(leduc, 0, 2, marks=pytest.mark.slow),
        pytest.param(leduc, 1, 3, marks=pytest.mark.slow),
    ],
)
def test_targets_average_to_the_exact_counterfactual_regrets(make_game, player, branches):
    """Outcome, robust and external sampling of both seats, against values of the whole tree."""
    game, quota = make_game(), 40_000
    plan = Plan(1000, quota, branches=branches)
    tape, summary = run(game, table_policy, plan, player, epsilon=0.5)
    assert np.asarray(summary.finished).all() and int(summary.overflows) == 0
    found = decisions(game, tape, player, plan.levels(game))
    exact = exact_regrets(game, table_policy)
    infos, place = np.unique(found["info"], axis=0, return_inverse=True)
    checked = 0
    for number, info in enumerate(infos):
        targets = found["target"][place == number].astype(np.float64)
        if len(targets) < 400:
            continue
        error = targets.std(0, ddof=1) / np.sqrt(len(targets)) + 1e-5
        difference = targets.mean(0) - exact[(player, info.tobytes())]
        assert (np.abs(difference) < 5 * error).all(), (info, difference / error)
        checked += 1
    assert checked >= 6


@pytest.mark.usefixtures("quick_compile")
def test_external_sampling_visits_every_own_action_and_one_of_the_other_player():
    """In Kuhn, as player 0: a root, the answers to both of its actions, and one decision more
    after a pass that was bet."""
    game = kuhn()
    plan = Plan(50, 400, branches=2)
    tape, summary = run(game, uniform_policy, plan, 0)
    counts = np.asarray(summary.decisions)
    assert set(counts[:, 0]) == {1, 2} and (counts[:, 1] == 2).all()
    for rows in tape.rows:
        live = np.asarray(rows.live)
        explored = np.asarray(rows.branch.explored)[live].sum(-1)
        own = rows is tape.rows[0]
        assert (explored == (2 if own else 1)).all()


@pytest.mark.usefixtures("quick_compile")
def test_a_full_stack_and_a_full_tape_are_counted():
    game = leduc()
    _, summary = run(game, uniform_policy, Plan(16, 100, branches=3, stack_levels=1), 0)
    assert int(summary.overflows) > 0
    _, summary = run(game, uniform_policy, Plan(16, 100, branches=3, tape_cycles=20), 0)
    assert not np.asarray(summary.finished).all()


@pytest.mark.usefixtures("quick_compile")
def test_the_node_limit_cuts_the_paths_that_are_left():
    """Leduc has traversals of more than 6 decisions and of fewer."""
    game = leduc()
    tape, summary = run(game, uniform_policy, Plan(8, 60, branches=3, max_nodes=6), 0)
    assert np.asarray(summary.finished).all()
    counts, cut = np.asarray(summary.decisions).sum(-1), np.asarray(summary.cut)
    assert counts.max() == 6 and (counts[cut] == 6).all() and cut.sum() > 0
    assert int(np.asarray(tape.ends.ended).sum()) > 120


def value_from(rules, deck, path):
    """Expected score difference of uniform play after a path, by the reference engine."""
    position = Game(rules, deck)
    for action in path:
        position.step(action)
    if position.is_over:
        return float(position.scores()[0] - position.scores()[1])
    legal = position.legal_actions()
    return float(np.mean([value_from(rules, deck, (*path, action)) for action in legal]))


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("depth", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_rollouts_from_a_cut_average_to_its_value(depth):
    """Cut in any phase, against uniform play enumerated in plain Python."""
    rules, quota = MINI, 500
    game = lost_cities(rules)
    deck = [int(card) for card in np.random.default_rng(3).permutation(all_cards(rules))]
    plan = Plan(100, quota, max_depth=depth, rollouts=40, rollout_policy=play_uniformly)
    initial = repeat_deck(deck, rules, quota)
    tape, _ = run(game, uniform_policy, plan, 0, epsilon=0.5, initial=initial)
    taken = np.stack([np.asarray(rows.action) for rows in tape.rows], -1)
    ended = np.asarray(tape.ends.ended)
    paths, values = taken[ended][:, :depth], np.asarray(tape.ends.value)[ended]
    assert len(paths) == quota
    paths = paths + np.array([0, rules.num_card_actions, 0, rules.num_card_actions])[:depth]
    checked = 0
    for path in np.unique(paths, axis=0):
        found = values[(paths == path).all(-1)]
        if len(found) < 20:
            continue
        exact = value_from(rules, deck, tuple(int(action) for action in path))
        error = found.std(ddof=1) / np.sqrt(len(found)) + 1e-6
        assert abs(found.mean() - exact) < 5 * error, path
        checked += 1
    assert checked >= 2


@pytest.mark.usefixtures("quick_compile")
def test_a_table_plays_the_value_that_its_traversals_find():
    """Uniform play of Leduc: roots of external sampling against the exact expected value."""
    game = leduc()
    tree = build_tree(game)
    plan = Plan(1000, 20_000, branches=3)
    step = jax.jit(functools.partial(traverse, game, (uniform_policy,) * 2, plan))
    tape, _ = step(seats(0, 0.0), jax.random.key(2), jnp.int32(0), jnp.int32(plan.quota))
    found = decisions(game, tape, 0, plan.levels(game))
    roots = found["node_value"][found["rank"] == 0]
    error = roots.std(ddof=1) / np.sqrt(len(roots))
    assert abs(roots.mean() - expected_value(tree, uniform_table(tree))) < 5 * error
