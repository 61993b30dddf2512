"""Tabular CFR on the lockstep machine: it finds equilibria, and says what it cannot do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lostcities_jax.exact.best_response import expected_value, nash_conv
from lostcities_jax.exact.tree import build_tree
from lostcities_jax.games.kuhn import kuhn
from lostcities_jax.games.leduc import leduc
from lostcities_jax.solvers import tabular
from lostcities_jax.traversal.plan import Plan

pytestmark = pytest.mark.usefixtures("quick_compile")


@pytest.mark.parametrize("branches", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_robust_and_external_sampling_find_an_equilibrium_of_kuhn(branches):
    game = kuhn()
    tree = build_tree(game)
    plan = Plan(256, 512, branches=branches)
    run = tabular.make_iterations(game, tree, plan, 150)
    tables, counters = run(tabular.init(tree), jnp.int32(1), jax.random.key(0))
    assert int(counters[1]) == 0 and int(counters[0]) > 150 * 2 * 512
    table = tabular.average_strategy(tree, tables)[tree.histories.info]
    assert nash_conv(tree, table) < 0.05
    assert expected_value(tree, table) == pytest.approx(-1 / 18, abs=0.01)


def test_the_index_of_info_states_is_one_to_one():
    tree = build_tree(leduc())
    index = tabular.perfect_index(tree.infos.packed)
    found = np.asarray(index(jnp.asarray(tree.infos.packed)))
    np.testing.assert_array_equal(found, np.arange(len(found)))


def test_info_states_that_nobody_visited_are_played_uniformly():
    tree = build_tree(kuhn())
    table = tabular.average_strategy(tree, tabular.init(tree))
    np.testing.assert_array_equal(table, np.full((len(table), 2), 0.5))


def test_outcome_sampling_is_refused():
    game = kuhn()
    with pytest.raises(ValueError, match="allowed: external or robust"):
        tabular.make_iterations(game, build_tree(game), Plan(8, 8), 1)
