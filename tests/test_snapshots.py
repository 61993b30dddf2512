"""Past strategies: which are kept, which play as opponents, and what their mixture is."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lostcities_jax import snapshots
from lostcities_jax.evaluation.agents import Agent, Mixture, iterates_agent
from lostcities_jax.evaluation.exactness import exact_result
from lostcities_jax.exact.best_response import expected_value
from lostcities_jax.exact.tree import build_tree
from lostcities_jax.games.kuhn import kuhn
from lostcities_jax.networks import make_network
from lostcities_jax.settings import LeagueConfig
from lostcities_jax.solvers.opponents import draw_from_league


def kept_after(offers, slots, key):
    """Iterations kept of 1 .. offers, each with a parameter equal to its iteration."""
    state = snapshots.init((jnp.zeros(()), jnp.zeros(())), slots)
    for iteration in range(1, offers + 1):
        params = (jnp.float32(iteration), -jnp.float32(iteration))
        step = jax.random.fold_in(key, iteration)
        state = snapshots.keep(state, params, jnp.int32(iteration), step)
    return state


def test_snapshots_fill_the_slots_in_order_and_stay_with_their_parameters():
    state = kept_after(3, 5, jax.random.key(0))
    np.testing.assert_array_equal(state.iteration, [1, 2, 3, 0, 0])
    np.testing.assert_array_equal(state.params[0], [1, 2, 3, 0, 0])
    np.testing.assert_array_equal(state.params[1], [-1, -2, -3, 0, 0])
    assert float(snapshots.take(state, 1, 2)) == -3


def test_of_more_snapshots_than_slots_a_uniform_sample_stays():
    runs, offers, slots = 2000, 8, 3
    kept = jax.jit(jax.vmap(lambda key: kept_after(offers, slots, key).iteration))(
        jax.random.split(jax.random.key(1), runs)
    )
    share = np.bincount(np.asarray(kept).ravel(), minlength=offers + 1)[1:] / runs
    expected = slots / offers
    error = np.sqrt(expected * (1 - expected) / runs)
    assert (np.abs(share - expected) < 4.5 * error).all()


@pytest.mark.parametrize(
    ("iterations", "expected"),
    [
        ([], [1.0]),  # nobody but the current strategy, which is 0 here
        ([7], [0.5, 0.5]),  # recent, older and anchor in one
        ([4, 9, 2, 6], [0.5, 0.075 + 0.05, 0.075, 0.15, 0.15]),  # 2 is the anchor
    ],
)
def test_the_league_draws_opponents_by_its_weights(iterations, expected):
    league = LeagueConfig(current=0.5, recent=0.3, older=0.15, anchor=0.05)
    state = snapshots.init((jnp.zeros(()), jnp.zeros(())), 6)
    for iteration in iterations:
        params = (jnp.float32(iteration), jnp.float32(iteration))
        state = snapshots.keep(state, params, jnp.int32(iteration), jax.random.key(0))
    draws = 20_000
    drawn = jax.jit(
        jax.vmap(functools.partial(draw_from_league, league, state, jnp.float32(0), 1))
    )(jax.random.split(jax.random.key(2), draws))
    values, counts = np.unique(np.asarray(drawn), return_counts=True)
    np.testing.assert_array_equal(values, [0, *sorted(iterations)])
    error = np.sqrt(np.array(expected) * (1 - np.array(expected)) / draws) + 1e-9
    assert (np.abs(counts / draws - expected) < 4.5 * error).all()


def constant_policy(params, info, legal, head):
    """Bets with the probability that its parameters say."""
    del info, head
    return jnp.broadcast_to(jnp.stack([1 - params, params]), legal.shape)


def test_a_mixture_is_worth_what_one_draw_for_each_game_is_worth():
    """Its value is the mean over both players' draws, which a mean of actions would miss."""
    tree = build_tree(kuhn())
    rates, weights = (0.1, 0.9), np.array([1.0, 3.0])
    agents = [Agent("x", constant_policy, (jnp.float32(r), jnp.float32(r))) for r in rates]

    def value_of(first, second):
        table = np.where((tree.histories.player == 0)[:, None], [1 - first, first], 0.0)
        table += np.where((tree.histories.player == 1)[:, None], [1 - second, second], 0.0)
        return expected_value(tree, table)

    shares = weights / weights.sum()
    expected = sum(
        shares[i] * shares[j] * value_of(rates[i], rates[j]) for i in (0, 1) for j in (0, 1)
    )
    result = exact_result(tree, Mixture("both", tuple(agents), weights))
    assert result.value == pytest.approx(expected, abs=1e-6)
    assert result.exploitability == pytest.approx(result.nash_conv / 2)


def test_the_iterates_are_weighed_by_their_iterations():
    game = kuhn()
    network = make_network(game, "mlp", 4, 1)
    params = network.init(jax.random.key(0))
    state = snapshots.init((params, params), 4)
    for iteration in (2, 3):
        state = snapshots.keep(state, (params, params), jnp.int32(iteration), jax.random.key(0))
    agent = iterates_agent("all", network, state, "lcfr", "uniform")
    assert len(agent.agents) == 2
    np.testing.assert_allclose(agent.weights, [2 / 3, 1.0])
    # An untrained network plays uniformly, and so does any mixture of two.
    assert exact_result(build_tree(game), agent).nash_conv == pytest.approx(0.916667, abs=1e-5)


def test_draws_of_a_mixture_follow_its_weights_and_the_seed():
    agents = tuple(Agent(str(i), constant_policy, (0, 0)) for i in range(2))
    mixture = Mixture("both", agents, np.array([1.0, 3.0]))
    names = [agent.name for agent in mixture.draw(4000, 5)]
    assert abs(names.count("1") / 4000 - 0.75) < 4.5 * np.sqrt(0.75 * 0.25 / 4000)
    assert names == [agent.name for agent in mixture.draw(4000, 5)]
