"""Regret matching, sampling and the estimator, against values worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lostcities_jax import regret

LEGAL = jnp.array([True, True, False, True])


def test_probabilities_are_proportional_to_positive_advantages_of_legal_actions():
    strategy, fell_back = regret.regret_matching(jnp.array([3.0, -1.0, 9.0, 1.0]), LEGAL, "argmax")
    np.testing.assert_allclose(strategy, [0.75, 0.0, 0.0, 0.25])
    assert not fell_back


def test_without_a_positive_advantage_argmax_takes_the_best_legal_action():
    strategy, fell_back = regret.regret_matching(
        jnp.array([-3.0, -1.0, 0.0, -2.0]), LEGAL, "argmax"
    )
    np.testing.assert_array_equal(strategy, [0, 1, 0, 0])
    assert fell_back


def test_ties_of_the_argmax_fallback_share_equally():
    strategy, _ = regret.regret_matching(jnp.zeros(4), LEGAL, "argmax")
    np.testing.assert_allclose(strategy, [1 / 3, 1 / 3, 0, 1 / 3])


def test_the_uniform_fallback_ignores_the_advantages():
    strategy, _ = regret.regret_matching(jnp.array([-3.0, -1.0, 9.0, -2.0]), LEGAL, "uniform")
    np.testing.assert_allclose(strategy, [1 / 3, 1 / 3, 0, 1 / 3])


@pytest.mark.parametrize("fallback", regret.FALLBACKS)
def test_a_lane_without_legal_actions_gets_zeros_and_counts_as_no_fallback(fallback):
    strategy, fell_back = regret.regret_matching(jnp.zeros(4), jnp.zeros(4, bool), fallback)
    np.testing.assert_array_equal(strategy, np.zeros(4))
    assert not fell_back
    np.testing.assert_array_equal(
        regret.masked_softmax(jnp.zeros(4), jnp.zeros(4, bool)), np.zeros(4)
    )


def test_masked_softmax_is_the_softmax_of_the_legal_logits():
    logits = jnp.log(jnp.array([1.0, 2.0, 100.0, 5.0]))
    expected = [1 / 8, 2 / 8, 0, 5 / 8]
    np.testing.assert_allclose(regret.masked_softmax(logits, LEGAL), expected, rtol=1e-6)


def test_exploration_mixes_in_the_uniform_strategy():
    mixed = regret.explore(jnp.array([1.0, 0, 0, 0]), LEGAL, jnp.float32(0.3))
    np.testing.assert_allclose(mixed, [0.8, 0.1, 0, 0.1], rtol=1e-6)


def test_sampling_inverts_the_cumulative_distribution():
    probabilities = jnp.array([0.25, 0.0, 0.5, 0.25])
    uniforms = jnp.array([0.0, 0.2499, 0.25, 0.7499, 0.75, 1 - 2**-24])
    rows = jnp.tile(probabilities[None], (6, 1))
    np.testing.assert_array_equal(regret.sample_action(rows, uniforms), [0, 0, 2, 2, 3, 3])


def test_sampling_never_takes_an_action_of_probability_zero():
    rng = np.random.default_rng(0)
    weights = rng.random((20_000, 7)).astype(np.float32) * (rng.random((20_000, 7)) < 0.4)
    weights[:, 3] += weights.sum(-1) == 0
    uniforms = np.where(rng.random(20_000) < 0.1, 1 - 2**-24, rng.random(20_000))
    actions = regret.sample_action(jnp.asarray(weights), jnp.asarray(uniforms, jnp.float32))
    assert (weights[np.arange(20_000), np.asarray(actions)] > 0).all()


def test_sampled_frequencies_match_the_probabilities():
    probabilities = np.array([0.1, 0.2, 0.0, 0.7], np.float32)
    draws = 40_000
    uniforms = jax.random.uniform(jax.random.key(1), (draws,))
    actions = regret.sample_action(jnp.tile(probabilities[None], (draws, 1)), uniforms)
    frequency = np.bincount(np.asarray(actions), minlength=4) / draws
    error = np.sqrt(probabilities * (1 - probabilities) / draws)
    assert (np.abs(frequency - probabilities) <= 4.5 * error).all()


@pytest.mark.parametrize("baseline", [[0.0, 0.0, 0.0], [4.0, 1.0, -7.0], [5.0, -3.0, 8.0]])
def test_sampled_values_are_unbiased_for_every_action_whatever_the_baseline(baseline):
    """Values 5, -3, 8 under strategy s and sampling policy q: expectations by enumeration."""
    child, baseline = np.array([5.0, -3.0, 8.0]), np.array(baseline)
    strategy, sampling = np.array([0.5, 0.5, 0.0]), np.array([0.2, 0.5, 0.3])
    choices = regret.Choice(
        jnp.arange(3), jnp.eye(3, dtype=bool), jnp.asarray(sampling, jnp.float32)
    )
    corrections, value = regret.node_value(
        *(jnp.tile(jnp.asarray(strategy, jnp.float32)[None], (3, 1)), choices),
        *(jnp.tile(jnp.asarray(a, jnp.float32)[None], (3, 1)) for a in (child, baseline)),
        jnp.full((3,), strategy @ baseline, jnp.float32),
    )
    targets = regret.advantage_targets(corrections, value, jnp.ones((3, 3), bool))
    targets = np.asarray(targets) + baseline
    exact = strategy @ child
    np.testing.assert_allclose(sampling @ np.asarray(value), exact, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sampling @ targets, child - exact, rtol=1e-5, atol=1e-5)
    if (baseline == child).all():  # then no sample says anything else
        np.testing.assert_allclose(targets, np.tile(child - exact, (3, 1)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("branches", [1, 2, 3, 9])
def test_branching_explores_so_many_legal_actions_each_as_often_as_it_says(branches):
    legal = jnp.array([True, False, True, True, False])
    rows, count = 20_000, regret.num_uniforms(branches, 5)
    uniforms = jax.random.uniform(jax.random.key(branches), (rows, count))
    strategy = regret.uniform_strategy(legal)
    choice = regret.choose_actions(
        branches,
        *(jnp.tile(row[None], (rows, 1)) for row in (strategy, legal)),
        jnp.float32(0.0),
        jnp.asarray(True),
        uniforms,
    )
    explored = np.asarray(choice.explored)
    expected = min(branches, 3)
    assert (explored.sum(-1) == expected).all() and not explored[:, ~np.asarray(legal)].any()
    np.testing.assert_allclose(choice.probability, expected / 3, rtol=1e-6)
    np.testing.assert_array_equal(choice.action, explored.argmax(-1))
    share = explored.mean(0)[np.asarray(legal)]
    error = np.sqrt(expected / 3 * (1 - expected / 3) / rows)
    assert (np.abs(share - expected / 3) <= 4.5 * error + 1e-9).all()


def test_the_other_player_does_not_branch():
    strategy, legal = jnp.array([[0.0, 1.0, 0.0]]), jnp.ones((1, 3), bool)
    choice = regret.choose_actions(
        3, strategy, legal, jnp.float32(0.0), jnp.asarray(False), jnp.array([[0.3]])
    )
    np.testing.assert_array_equal(choice.explored, [[False, True, False]])
    assert choice.action == 1 and choice.probability == 1.0


def test_what_came_of_an_action_counts_as_far_as_the_strategy_would_take_it():
    """All of it where it was explored no more often than that, nothing of what it never takes."""
    strategy = jnp.array([[0.2, 0.6, 0.2], [1.0, 0.0, 0.0], [0.2, 0.6, 0.2], [0.2, 0.6, 0.2]])
    explored = jnp.array([[0, 1, 0], [0, 1, 0], [1, 0, 0], [1, 1, 1]], bool)
    probability = jnp.array([0.5, 0.1, 0.4, 1.0])
    choice = regret.Choice(jnp.argmax(explored, -1), explored, probability)
    weights = regret.trace_weights(strategy, choice)
    expected = [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.5, 0.0, 0.0], [0.2, 0.6, 0.2]]
    np.testing.assert_allclose(weights, expected, rtol=1e-6)


def test_illegal_actions_have_no_target():
    legal = jnp.array([[True, False, True]])
    corrections = jnp.array([[4.0, 0.0, 0.0]])
    targets = regret.advantage_targets(corrections, jnp.array([1.0]), legal)
    np.testing.assert_array_equal(targets, [[3.0, 0.0, -1.0]])
