"""Losses of one batch of samples, each summed over the actions of its sample that count.

A loss takes a network's outputs float32[B, A], the targets float32[B, A] or float32[B, K, A], and
the actions that count bool[B, A], and returns float32[B].
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

Loss = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]

_TINY = 1e-8


def squared_error(outputs: jax.Array, target: jax.Array, legal: jax.Array) -> jax.Array:
    """Squared error summed over legal actions (Brown et al. 2019, algorithm 1); float32[B]."""
    return jnp.where(legal, jnp.square(outputs - target), 0.0).sum(-1)


def cross_entropy(outputs: jax.Array, target: jax.Array, legal: jax.Array) -> jax.Array:
    """Cross entropy of the masked softmax with the target strategy; float32[B]."""
    return -jnp.where(legal, target * _log_softmax(outputs, legal), 0.0).sum(-1)


def clipped_surrogate(clip: float, entropy: jax.Array | float, axis: str | None = None) -> Loss:
    """The clipped objective of a policy gradient (Schulman et al. 2017, equation 7), negated.

    Taken over all actions that count and not for the played one alone: with the policy p, the one
    that played o, and advantages A, the sum of min(p A, clip(p, (1 - clip) o, (1 + clip) o) A),
    which is o times the paper's term for each action. Advantages are divided by their root mean
    square under o in the batch. The entropy of p times `entropy` is added, which keeps p near
    uniform: a magnet (Sokal et al. 2023, magnetic mirror descent). A decision with one such
    action weighs nothing, the others more in return.

    Args:
      clip: how far the ratio p / o is followed.
      entropy: weight of the entropy; may be traced.
      axis: mesh axis of processes whose samples, as many in each, are one batch.

    Returns:
      a loss whose targets are A and o, float32[B, 2, A].
    """

    def loss(outputs: jax.Array, target: jax.Array, legal: jax.Array) -> jax.Array:
        advantages, old = target[:, 0], target[:, 1]
        has_choice = legal.sum(-1) > 1
        mean_square = (old * jnp.square(advantages)).sum(-1)
        means = has_choice.mean(), (mean_square * has_choice).mean()
        if axis is not None:
            means = jax.lax.pmean(means, axis)
        share = jnp.maximum(means[0], _TINY)
        scale = jnp.sqrt(means[1] / share)
        advantages = advantages / jnp.maximum(scale, _TINY)
        log_policy = _log_softmax(outputs, legal)
        policy = jnp.where(legal, jnp.exp(log_policy), 0.0)
        kept_near = jnp.clip(policy, (1.0 - clip) * old, (1.0 + clip) * old)
        gains = jnp.minimum(policy * advantages, kept_near * advantages)
        surprise = -policy * jnp.where(legal, log_policy, 0.0)
        return -(gains + entropy * surprise).sum(-1) * has_choice / share

    return loss


def _log_softmax(outputs: jax.Array, legal: jax.Array) -> jax.Array:
    return jax.nn.log_softmax(jnp.where(legal, outputs, -1e30), axis=-1)
