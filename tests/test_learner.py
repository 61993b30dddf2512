"""Learners: sample weights by hand, and fits to known answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lostcities_jax import memory
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.learner import (
    all_heads,
    bootstrap,
    iteration_weights,
    make_learner,
    make_optimizer,
)
from lostcities_jax.losses import cross_entropy, squared_error
from lostcities_jax.networks import make_network
from lostcities_jax.regret import masked_softmax
from lostcities_jax.rules import CARD_PHASE, MINI
from lostcities_jax.settings import LearnerConfig

pytestmark = pytest.mark.usefixtures("quick_compile")


def weights(weighting, iteration, is_strategy=False):
    return iteration_weights(weighting, iteration, is_strategy, iteration + 2)


def test_linear_cfr_weighs_an_iteration_by_its_number():
    expected = [0, 0.25, 0.5, 0.75, 1, 0]
    np.testing.assert_allclose(weights("lcfr", 4), expected)
    np.testing.assert_allclose(weights("lcfr", 4, is_strategy=True), expected)


def test_no_weighting_weighs_all_iterations_alike():
    np.testing.assert_array_equal(weights("none", 3), [0, 1, 1, 1, 0])


def test_dcfr_discounts_regrets_by_every_later_iteration():
    """Iteration 1 of 3 is discounted after iterations 1 and 2 by k^1.5 / (k^1.5 + 1)."""
    one, two = 1 / 2, 2**1.5 / (2**1.5 + 1)
    np.testing.assert_allclose(weights("dcfr", 3), [0, one * two, two, 1, 0], rtol=1e-6)


def test_dcfr_weighs_strategies_by_the_square_of_the_iteration():
    expected = [0, 1 / 9, 4 / 9, 1, 0]
    np.testing.assert_allclose(weights("dcfr", 3, is_strategy=True), expected, rtol=1e-6)


def test_losses_count_legal_actions_only():
    outputs, target = jnp.array([[1.0, 5.0, 2.0]]), jnp.array([[0.0, 1.0, 9.0]])
    legal = jnp.array([[True, True, False]])
    np.testing.assert_allclose(squared_error(outputs, target, legal), [17.0])
    logits = jnp.log(jnp.array([[1.0, 3.0, 50.0]]))
    expected = -(0.5 * np.log(0.25) + 0.5 * np.log(0.75))
    halves = jnp.array([[0.5, 0.5, 0.0]])
    np.testing.assert_allclose(cross_entropy(logits, halves, legal), [expected], rtol=1e-6)


GAME = lost_cities(MINI)
NETWORK = make_network(lost_cities(MINI), "mlp", 32, 2)


def two_info_states():
    """Packed info states of two deals at their first decision."""
    states = [GAME.deal(jax.random.key(seed)) for seed in (0, 3)]
    infos = jnp.stack([GAME.observe(state, 0) for state in states])
    assert (np.asarray(infos[0]) != np.asarray(infos[1])).any()
    return infos


def filled_memory(target, iterations):
    """A memory whose slots alternate between two info states with the given targets."""
    slots = len(target)
    samples = memory.Samples(
        info=jnp.tile(two_info_states(), (slots // 2, 1)),
        legal=jnp.ones((slots, GAME.max_actions), bool),
        target=jnp.asarray(target, jnp.float32),
        iteration=jnp.asarray(iterations, jnp.int32),
    )
    return memory.Memory(samples, jnp.array([slots, 0], jnp.uint32))


def fit(loss, reservoir, sample_weights, target_scale):
    optimizer = make_optimizer(LearnerConfig(learning_rate=3e-3, max_grad_norm=10.0))
    learner = make_learner(GAME, NETWORK, loss, optimizer, 1500, 64, target_scale)
    state, losses = jax.jit(learner.fit)(
        learner.init(jax.random.key(0)), reservoir, jnp.asarray(sample_weights), jax.random.key(1)
    )
    assert losses[1] < losses[0]
    return NETWORK.apply(state.params, two_info_states(), CARD_PHASE)


def test_an_advantage_fit_finds_the_weighted_mean_of_the_targets():
    first = np.array([[10.0, -10, 0, 5], [1, 2, 3, 4]])
    second = np.array([[40.0, 20, 0, -5], [5, 2, 3, 0]])
    reservoir = filled_memory(np.concatenate([first, second]), [1, 1, 2, 2])
    outputs = fit(squared_error, reservoir, [0.0, 1.0, 3.0], 50.0)
    expected = (first + 3 * second) / 4 / 50.0
    np.testing.assert_allclose(outputs, expected, atol=0.04)


def test_a_strategy_fit_finds_the_weighted_mean_strategy():
    first = np.array([[1.0, 0, 0, 0], [0.25, 0.25, 0.25, 0.25]])
    second = np.array([[0.0, 1, 0, 0], [0, 0, 0.5, 0.5]])
    reservoir = filled_memory(np.concatenate([first, second]), [1, 1, 2, 2])
    logits = fit(cross_entropy, reservoir, [0.0, 1.0, 1.0], 1.0)
    policy = masked_softmax(logits, jnp.ones_like(logits, bool))
    np.testing.assert_allclose(policy, (first + second) / 2, atol=0.03)


@pytest.mark.parametrize("kind", [pytest.param("mlp", marks=pytest.mark.slow), "color_shared"])
def test_each_sample_of_a_mixed_batch_reads_the_head_of_its_phase(kind):
    network = make_network(lost_cities(MINI), kind, 8, 2)
    params = jax.tree.map(
        lambda leaf: jax.random.normal(jax.random.key(leaf.size), leaf.shape),
        network.init(jax.random.key(0)),
    )
    start = GAME.deal(jax.random.key(0))
    after_card = GAME.step(start, 0, jnp.int32(2))
    infos = jnp.stack([GAME.observe(start, 0), GAME.observe(after_card, 1)])
    outputs = all_heads(GAME, network, params, infos, jnp.ones((2, GAME.max_actions), bool))
    card = network.apply(params, infos[:1], 0)[0]
    draw = network.apply(params, infos[1:], 1)[0]
    np.testing.assert_allclose(outputs[0], card, rtol=1e-5)
    np.testing.assert_allclose(outputs[1], jnp.pad(draw, (0, 1)), rtol=1e-5)


def test_bootstrapped_regrets_average_the_newest_with_the_positive_part_of_the_networks_own():
    """A network that says 3, -5, 0, 1 in units of 10 points, and a batch that says otherwise."""
    own = np.array([3.0, -5.0, 0.0, 1.0])
    params = jax.tree.map(jnp.zeros_like, NETWORK.init(jax.random.key(0)))
    params["card_head"]["bias"] = jnp.asarray(own, jnp.float32)
    newest = np.array([[10.0, -10, 0, 5], [1, 2, 3, 4]])
    reservoir = filled_memory(np.tile(newest, (3, 1)), [1] * 6)
    mixed = bootstrap(GAME, NETWORK, params, reservoir, jnp.float32(0.25), 10.0, block_rows=4)
    expected = 0.75 * 10 * np.maximum(own, 0) + 0.25 * newest
    np.testing.assert_allclose(mixed.samples.target, np.tile(expected, (3, 1)), rtol=1e-5)
    np.testing.assert_array_equal(mixed.samples.info, reservoir.samples.info)


def test_the_learning_rate_falls_in_a_line_to_its_final_share():
    """Adam's first steps on a constant gradient of 1 each move by the rate itself."""
    settings = LearnerConfig(
        optimizer="adam", learning_rate=0.1, final_rate=0.5, max_grad_norm=10.0
    )
    optimizer = make_optimizer(settings, steps=10)
    state, moves = optimizer.init(jnp.zeros(())), []
    for _ in range(12):
        update, state = optimizer.update(jnp.ones(()), state, jnp.zeros(()))
        moves.append(-float(update))
    expected = [0.1 - 0.005 * min(step, 10) for step in range(12)]
    np.testing.assert_allclose(moves, expected, rtol=1e-3)


def test_muon_moves_hidden_matrices_alike_in_all_directions_and_the_rest_by_sign_at_first():
    """Singular values of a step are equal within what Newton-Schulz leaves (0.68 to 1.13), and
    its root mean square is three learning rates. Nadam's first step, with momentum 0.9, is the
    gradient's sign times 1 + 0.9 (1 - 0.9) / (1 - 0.9^2) rates."""
    rng = np.random.default_rng(0)
    params = {
        "Dense_0": {"kernel": jnp.zeros((24, 16)), "bias": jnp.zeros(16)},
        "card_head": {"kernel": jnp.zeros((16, 4))},
    }
    gradient = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32), params)
    settings = LearnerConfig(optimizer="muon", learning_rate=0.1, final_rate=1.0, max_grad_norm=1e3)
    optimizer = make_optimizer(settings)
    step, _ = optimizer.update(gradient, optimizer.init(params), params)
    values = np.linalg.svd(np.asarray(step["Dense_0"]["kernel"]), compute_uv=False)
    assert values.max() / values.min() < 1.13 / 0.68
    root_mean_square = np.sqrt(np.mean(np.square(step["Dense_0"]["kernel"])))
    assert root_mean_square == pytest.approx(0.3, rel=0.3)
    for layer, name in (("Dense_0", "bias"), ("card_head", "kernel")):
        expected = -0.1 * (0.09 / (1 - 0.9**2) + 1) * np.sign(gradient[layer][name])
        np.testing.assert_allclose(step[layer][name], expected, rtol=1e-4)
