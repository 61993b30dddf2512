"""Exact values against known ones: trees, best responses, mixtures and tabular CFR."""

import functools

import numpy as np
import pytest

from lostcities_jax.errors import UserError
from lostcities_jax.exact.best_response import (
    best_response_value,
    expected_value,
    exploitability,
    mix,
    nash_conv,
    own_reach,
    reach_probabilities,
)
from lostcities_jax.exact.cfr import VARIANTS, run_cfr
from lostcities_jax.exact.tree import build_tree, policy_table, uniform_table
from lostcities_jax.games.catalogue import GAMES, make_game
from lostcities_jax.rules import CLASSIC, MINI

# Kuhn poker's lines of play before a decision, as the packed info states have them.
START, AFTER_PASS, AFTER_BET, AFTER_PASS_BET = 1, 2, 3, 5


@functools.cache
def tree_of(name):
    return build_tree(make_game(name, MINI))


def random_table(tree, seed):
    weights = np.random.default_rng(seed).random(tree.histories.legal.shape) ** 3
    weights = np.where(tree.histories.legal, weights, 0.0)
    return weights / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    ("name", "deals", "nodes", "decisions", "histories", "infos"),
    [
        ("kuhn", 6, 54, 24, 12, 12),
        ("leduc", 120, 10_200, 4320, 936, 936),
        ("lost_cities", 180, 30_564, 16_740, 5175, 3735),
    ],
)
def test_sizes_of_the_trees(name, deals, nodes, decisions, histories, infos):
    tree = tree_of(name)
    assert (tree.parent < 0).sum() == deals
    assert len(tree.parent) == nodes
    assert (tree.player >= 0).sum() == decisions
    assert len(tree.histories.legal) == histories
    assert len(tree.infos.legal) == infos


@pytest.mark.parametrize("name", GAMES)
def test_trees_are_in_order(name):
    tree = tree_of(name)
    for level in tree.levels:
        assert np.all(tree.parent[level] < level.start)
        assert len(set(tree.player[level].tolist()) - {-1}) <= 1
    for level in tree.histories.levels:
        assert np.all(tree.histories.parent[level] < level.start)
    decides = tree.player >= 0
    np.testing.assert_array_equal(
        tree.histories.player[tree.history[decides]], tree.player[decides]
    )
    children = np.bincount(tree.parent[tree.parent >= 0], minlength=len(tree.parent))
    np.testing.assert_array_equal(
        children[decides], tree.histories.legal.sum(-1)[tree.history[decides]]
    )
    assert np.all(children[~decides] == 0)
    np.testing.assert_array_equal(tree.infos.legal[tree.histories.info], tree.histories.legal)


@pytest.mark.parametrize("name", GAMES)
def test_reach_of_the_ends_sums_to_one(name):
    tree = tree_of(name)
    table = random_table(tree, 3)
    ends = tree.player < 0
    decision = np.where(ends, 0, tree.history)
    own = {p: reach_probabilities(tree, table, p)[ends] for p in (0, 1)}
    played = np.where(tree.parent < 0, 1.0, table[tree.history[tree.parent], tree.action])
    for player in (0, 1):
        # The player's own part, along the parents; with it, each end is reached once.
        mover = tree.player[tree.parent]
        part = np.where((tree.parent >= 0) & (mover == player), played, 1.0)
        for level in tree.levels:
            up = tree.parent[level]
            part[level] *= np.where(up < 0, 1.0, part[up])
        np.testing.assert_allclose((own[player] * part[ends]).sum(), 1.0, atol=1e-12)
        at = (tree.player == player).nonzero()[0]
        np.testing.assert_allclose(own_reach(tree, table)[decision[at]], part[at], atol=1e-12)


@pytest.mark.parametrize(
    ("name", "expected"), [("kuhn", 0.916667), ("leduc", 4.747222), ("lost_cities", 4.832465)]
)
def test_nash_conv_of_the_uniform_strategy(name, expected):
    tree = tree_of(name)
    assert nash_conv(tree, uniform_table(tree)) == pytest.approx(expected, abs=1e-6)
    assert exploitability(tree, uniform_table(tree)) == pytest.approx(expected / 2, abs=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1 / 3])
def test_equilibria_of_kuhn_poker_cannot_be_exploited(alpha):
    # The family of Kuhn 1950: player 0 bets a jack (0) with alpha, a king (2) with 3 alpha.
    bets = {
        (0, START): alpha, (1, START): 0.0, (2, START): 3 * alpha,
        (0, AFTER_PASS_BET): 0.0, (1, AFTER_PASS_BET): alpha + 1 / 3, (2, AFTER_PASS_BET): 1.0,
        (0, AFTER_PASS): 1 / 3, (1, AFTER_PASS): 0.0, (2, AFTER_PASS): 1.0,
        (0, AFTER_BET): 0.0, (1, AFTER_BET): 1 / 3, (2, AFTER_BET): 1.0,
    }  # fmt: skip

    def policy(player, head, info, legal):
        bet = np.array([bets[int(row[0]), int(row[2])] for row in info])
        return np.stack([1 - bet, bet], axis=-1)

    tree = tree_of("kuhn")
    table = policy_table(tree, policy)
    assert nash_conv(tree, table) == pytest.approx(0.0, abs=1e-9)
    assert expected_value(tree, table) == pytest.approx(-1 / 18, abs=1e-9)
    assert best_response_value(tree, table, 0) == pytest.approx(-1 / 18, abs=1e-9)


def test_a_policy_is_asked_once_for_each_info_state():
    tree, asked = tree_of("lost_cities"), []

    def policy(player, head, info, legal):
        asked.append((player, head, len(info)))
        assert legal.shape == (len(info), tree.head_sizes[head])
        assert len(np.unique(info, axis=0)) == len(info)
        return legal.astype(np.float32)

    np.testing.assert_allclose(policy_table(tree, policy), uniform_table(tree))
    assert sum(count for _, _, count in asked) == len(tree.infos.legal)
    assert [(player, head) for player, head, _ in asked] == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize("name", GAMES)
def test_a_mixture_of_one_table_is_the_table(name):
    tree = tree_of(name)
    table = random_table(tree, 0)
    np.testing.assert_allclose(mix(tree, [table], [3.0]), table, atol=1e-12)
    np.testing.assert_allclose(mix(tree, [table, table], [1.0, 2.0]), table, atol=1e-12)


@pytest.mark.parametrize("name", GAMES)
def test_a_mixture_plays_like_a_draw_of_one_table_a_game(name):
    tree = tree_of(name)
    tables, weights = [random_table(tree, seed) for seed in (1, 2)], np.array([0.3, 0.7])
    mixture = mix(tree, tables, 10 * weights)
    np.testing.assert_allclose(mixture.sum(-1), 1.0, atol=1e-12)
    against = random_table(tree, 3)
    for player in (0, 1):
        own = (tree.histories.player == player)[:, None]

        def value(table, own=own):
            return expected_value(tree, np.where(own, table, against))

        drawn = sum(w * value(t) for w, t in zip(weights, tables, strict=True))
        assert value(mixture) == pytest.approx(drawn, abs=1e-12)


def test_a_mixture_leaves_unreached_histories_to_the_plain_average():
    tree = tree_of("kuhn")
    never_passes = np.tile([0.0, 1.0], (12, 1))
    mixture = mix(tree, [never_passes, never_passes], [1, 1])
    np.testing.assert_array_equal(mixture, never_passes)


def test_cfr_on_kuhn_poker_finds_its_value():
    tree = tree_of("kuhn")
    for variant, bound in (("cfr", 0.05), ("cfr_plus", 1e-3), ("lcfr", 1e-3)):
        table = run_cfr(tree, variant, 500)
        np.testing.assert_allclose(table.sum(-1), 1.0)
        assert expected_value(tree, table) == pytest.approx(-1 / 18, abs=bound)
        assert nash_conv(tree, table) < bound


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_cfr_on_leduc_poker_falls(variant):
    tree = tree_of("leduc")
    early, late = (nash_conv(tree, run_cfr(tree, variant, n)) for n in (10, 200))
    assert late < early / 4
    assert late < {"cfr": 0.3, "cfr_plus": 0.02, "lcfr": 0.1}[variant]


def test_cfr_plus_on_leduc_poker_finds_its_value():
    table = run_cfr(tree_of("leduc"), "cfr_plus", 200)
    assert expected_value(tree_of("leduc"), table) == pytest.approx(-0.0856, abs=1e-3)


def test_cfr_plus_on_the_mini_game_falls_below_a_hundredth():
    tree = tree_of("lost_cities")
    table = run_cfr(tree, "cfr_plus", 60)
    assert nash_conv(tree, table) < 0.01 * nash_conv(tree, uniform_table(tree))


def test_what_cannot_be_done_is_said():
    with pytest.raises(UserError, match="exact values of Lost Cities"):
        build_tree(make_game("lost_cities", CLASSIC))
    with pytest.raises(UserError, match=r"'cfr\+'; allowed: cfr, cfr_plus, lcfr"):
        run_cfr(tree_of("kuhn"), "cfr+", 1)
