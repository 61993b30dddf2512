"""From advantages to policies, and from sampled values to targets.

Functions here work on the last axis, the actions of one decision, with any leading lanes.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax.arrays import along_last

FALLBACKS = ("argmax", "uniform")


def uniform_strategy(legal: jax.Array) -> jax.Array:
    """Equal probability for every legal action; float32[..., A]."""
    return legal / jnp.maximum(legal.sum(-1, keepdims=True), 1).astype(jnp.float32)


def regret_matching(
    advantages: jax.Array, legal: jax.Array, fallback: str
) -> tuple[jax.Array, jax.Array]:
    """Probabilities proportional to positive advantages (Hart and Mas-Colell 2000).

    Args:
      advantages: estimated regrets, any scale. float32[..., A].
      legal: which actions count. bool[..., A].
      fallback: static; where no advantage is positive, "argmax" takes the best action
        (Brown et al. 2019, Deep CFR, section 5.1; ties share it), "uniform" all of them.

    Returns:
      strategy float32[..., A] and whether it fell back, bool[...].
    """
    positive = jnp.where(legal, jnp.maximum(advantages, 0.0), 0.0)
    total = positive.sum(-1, keepdims=True)
    fell_back = total <= 0.0
    if fallback == "argmax":
        masked = jnp.where(legal, advantages, -jnp.inf)
        candidates = legal & (masked == masked.max(-1, keepdims=True))
    else:
        candidates = legal
    matched = positive / jnp.where(fell_back, 1.0, total)
    strategy = jnp.where(fell_back, uniform_strategy(candidates), matched)
    return strategy, fell_back[..., 0] & legal.any(-1)


def masked_softmax(logits: jax.Array, legal: jax.Array) -> jax.Array:
    """Softmax over the legal actions; zeros when none is; float32[..., A]."""
    masked = jnp.where(legal, logits, -1e30)
    weights = jnp.where(legal, jnp.exp(masked - masked.max(-1, keepdims=True)), 0.0)
    return weights / jnp.maximum(weights.sum(-1, keepdims=True), 1e-30)


def explore(strategy: jax.Array, legal: jax.Array, epsilon: jax.Array) -> jax.Array:
    """Mixes a strategy with the uniform one: the sampling policy; float32[..., A]."""
    # A product and a sum may be rounded once at some widths (fused) and twice at others, and
    # samples would depend on the width by an ulp. Nothing is negative: maximum only parts them.
    greedy_part = jnp.maximum((1.0 - epsilon) * strategy, 0.0)
    uniform_part = jnp.maximum(epsilon * uniform_strategy(legal), 0.0)
    return greedy_part + uniform_part


def sample_action(probabilities: jax.Array, uniform: jax.Array) -> jax.Array:
    """Draws an action by inverting the cumulative distribution; int32[...].

    The additions run in one fixed order, so a lane draws the same action at any width.

    Args:
      probabilities: need not sum to one exactly. float32[..., A].
      uniform: one number in [0, 1) for each decision. float32[...].
    """
    columns = [probabilities[..., action] for action in range(probabilities.shape[-1])]
    cumulative = list(itertools.accumulate(columns))
    threshold = uniform * cumulative[-1]
    action = jnp.zeros(uniform.shape, jnp.int32)
    for edge in cumulative:
        action += threshold >= edge
    return action


def select_action(values: jax.Array, action: jax.Array) -> jax.Array:
    """The entry of each row at its action, without a gather; float32[...]."""
    actions = along_last(np.arange(values.shape[-1]), values.ndim)
    chosen = actions == action[..., None]
    return jnp.where(chosen, values, 0.0).sum(-1)


def sampled_value(
    child_value: jax.Array,
    strategy_of_action: jax.Array,
    probability: jax.Array,
    baseline_of_action: jax.Array,
    baseline_of_node: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Values at a node from its one sampled child of value v, corrected by a baseline b.

    With sampling policy q and strategy s, Q(a) = b(a) + 1[a sampled] (v - b(a)) / q(a) and
    the node's value is the mean of Q under s. Both are unbiased for any b that does not
    depend on the sample (Schmid et al. 2019, VR-MCCFR); b = 0 is plain outcome sampling
    (Lanctot et al. 2009), and a perfect b leaves no variance.

    Returns:
      the correction (v - b(a)) / q(a) of the sampled action, and the node's value; float32
      like the arguments.
    """
    correction = (child_value - baseline_of_action) / probability
    return correction, baseline_of_node + strategy_of_action * correction


def advantage_targets(
    action: jax.Array, correction: jax.Array, node_value: jax.Array, legal: jax.Array
) -> jax.Array:
    """Q - v for *every* legal action, without the baseline's b(a): an unsampled one has -v.

    Leaving unsampled actions at 0 instead would be biased by v - s(a) v(a).

    Returns:
      float32[..., A], 0 for illegal actions; add b(a) where there is a baseline.
    """
    sampled = jax.nn.one_hot(action, legal.shape[-1], dtype=jnp.float32)
    return jnp.where(legal, sampled * correction[..., None] - node_value[..., None], 0.0)
