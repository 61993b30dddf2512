"""Losses against values worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lostcities_jax.losses import clipped_surrogate

LEGAL = jnp.array([[True, True, False]])
OLD = [0.5, 0.5, 0.0]


def surrogate(advantages, probability, clip=0.2, entropy=0.0):
    """The loss of one decision between two actions, the first played with `probability`."""
    logits = jnp.log(jnp.array([[probability, 1 - probability, 1.0]]))
    target = jnp.array([[[*advantages, 9.0], OLD]])
    return clipped_surrogate(clip, entropy)(logits, target, LEGAL)[0]


# Advantages 3 and -3 have root mean square 3 under the old policy, so they count as 1 and -1.
@pytest.mark.parametrize(
    ("probability", "expected"),
    [
        (0.5, 0.0),  # the old policy gains nothing over itself
        (0.55, -(0.55 - 0.45)),  # ratio 1.1 is within the clip of 0.2
        (0.7, -(0.6 - 0.4)),  # ratio 1.4 counts as 1.2, and 0.6 as 0.8
        (0.2, -(0.2 - 0.8)),  # a step the wrong way is never clipped
    ],
)
def test_the_clipped_objective_sums_the_paper_s_terms_over_the_actions(probability, expected):
    assert surrogate((3.0, -3.0), probability) == pytest.approx(expected, abs=1e-6)


def test_beyond_the_clip_the_gradient_is_zero():
    slope = jax.grad(lambda probability: surrogate((1.0, -1.0), probability))
    assert slope(0.7) == 0.0
    assert slope(0.55) == pytest.approx(-2.0, rel=1e-5)  # d/dp of -(p - (1 - p))


def test_the_entropy_pulls_towards_uniform_play():
    gain = surrogate((0.0, 0.0), 0.9, entropy=1.0)
    expected = 0.9 * np.log(0.9) + 0.1 * np.log(0.1)
    assert gain == pytest.approx(expected, rel=1e-5)


def test_the_halves_of_two_processes_give_the_gradient_of_the_whole():
    """Of the first half one decision in four has a choice and advantages are large; of the other
    all have one."""
    random = np.random.default_rng(0)
    logits, played, advantages = random.normal(size=(3, 8, 3)).astype(np.float32)
    old = jax.nn.softmax(played)
    target = np.stack([advantages * np.repeat([[9.0], [1.0]], 4, axis=0), old], axis=1)
    legal = np.ones((8, 3), bool)
    legal[:3, 1:] = False
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("process",))
    by_process = jax.sharding.PartitionSpec("process")
    whole = clipped_surrogate(0.2, 0.1)
    halves = jax.shard_map(
        clipped_surrogate(0.2, 0.1, "process"),
        mesh=mesh,
        in_specs=by_process,
        out_specs=by_process,
    )

    def gradient(loss):
        return jax.jit(jax.grad(lambda outputs: loss(outputs, target, legal).mean()))(logits)

    expected = gradient(whole)
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(gradient(halves), expected, rtol=1e-5, atol=1e-7)


def test_decisions_without_a_choice_change_nothing():
    logits = jnp.array([[0.3, 0.1, 0.0], [5.0, 1.0, 2.0]])
    target = jnp.array([[[1.0, -1.0, 0.0], OLD], [[7.0, 0.0, 0.0], [1.0, 0.0, 0.0]]])
    legal = jnp.array([[True, True, False], [True, False, False]])
    loss = clipped_surrogate(0.2, 0.01)
    both = loss(logits, target, legal).mean()
    alone = loss(logits[:1], target[:1], legal[:1]).mean()
    assert both == pytest.approx(float(alone), rel=1e-6)
