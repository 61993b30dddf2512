"""From advantages to policies, and from sampled values to targets.

Functions here work on the last axis, the actions of one decision, with any leading lanes.
"""

import itertools
from typing import NamedTuple

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


class Choice(NamedTuple):
    """Which actions of a decision a traversal follows.

    Attributes:
      action: the one it follows first. int32[...].
      explored: all that it follows. bool[..., A].
      probability: with which each explored action was chosen to be. float32[...].
    """

    action: jax.Array
    explored: jax.Array
    probability: jax.Array


def num_uniforms(branches: int, num_actions: int) -> int:
    """Random numbers that `choose_actions` takes for a decision."""
    return 1 + num_actions if 0 < branches < num_actions else 1


def choose_actions(
    branches: int,
    strategy: jax.Array,
    legal: jax.Array,
    epsilon: jax.Array,
    is_traverser: jax.Array,
    uniforms: jax.Array,
) -> Choice:
    """Samples one action, or the actions that a branching traverser explores.

    Args:
      branches: static; 0 for one action of the sampling policy (outcome sampling, Lanctot et
        al. 2009), k for k of the legal ones without replacement (robust sampling, Li et al.
        2020), which is all of them from A on (external sampling, Lanctot et al. 2009).
      strategy: float32[..., A].
      legal: bool[..., A].
      epsilon: share of uniform exploration where one action is sampled. float32[].
      is_traverser: only the traverser branches. bool[].
      uniforms: `num_uniforms` numbers in [0, 1). float32[..., U].
    """
    sampling = explore(strategy, legal, epsilon)
    sampled = sample_action(sampling, uniforms[..., 0])
    actions = along_last(np.arange(legal.shape[-1]), legal.ndim)
    is_sampled = (actions == sampled[..., None]) & legal
    probability = select_action(sampling, sampled)
    if branches == 0:
        return Choice(sampled, is_sampled, probability)
    subset = legal
    if branches < legal.shape[-1]:
        draws = jnp.where(legal, uniforms[..., 1:], 2.0)
        rank = (draws[..., None, :] < draws[..., :, None]).sum(-1)
        subset = legal & (rank < branches)
    inclusion = jnp.minimum(branches / jnp.maximum(legal.sum(-1), 1).astype(jnp.float32), 1.0)
    first = jnp.argmax(subset, axis=-1).astype(jnp.int32)
    return Choice(
        jnp.where(is_traverser, first, sampled),
        jnp.where(is_traverser, subset, is_sampled),
        jnp.where(is_traverser, inclusion, probability),
    )


def node_value(
    strategy: jax.Array,
    choice: Choice,
    child_values: jax.Array,
    baseline: jax.Array,
    baseline_of_node: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """The value of a node from its explored children's values v, around a baseline b.

    With p(a) the probability that an action is explored, Q(a) = b(a) + 1[explored] (v(a) -
    b(a)) / p(a), and the node's value is the mean of Q under the strategy. Both are unbiased for
    any b that does not depend on the sample (the baseline-enhanced values of Schmid et al. 2019,
    VR-MCCFR); b = 0 is plain sampling (Lanctot et al. 2009), a perfect b leaves no variance.

    Args:
      strategy: the mover's strategy. float32[..., A].
      choice: the explored actions.
      child_values: v, from the mover's view; read where explored. float32[..., A].
      baseline: b; zeros without one. float32[..., A].
      baseline_of_node: mean of b under the strategy. float32[...].

    Returns:
      the corrections 1[explored] (v - b) / p float32[..., A], and the value float32[...].
    """
    probability = jnp.where(choice.explored, choice.probability[..., None], 1.0)
    corrections = jnp.where(choice.explored, (child_values - baseline) / probability, 0.0)
    return corrections, baseline_of_node + (strategy * corrections).sum(-1)


def advantage_targets(corrections: jax.Array, value: jax.Array, legal: jax.Array) -> jax.Array:
    """Q - v for *every* legal action, without the baseline's b(a): an unexplored one has -v.

    Leaving unexplored actions at 0 instead would be biased by v - s(a) v(a).

    Returns:
      float32[..., A], 0 for illegal actions; add b(a) where there is a baseline.
    """
    return jnp.where(legal, corrections - value[..., None], 0.0)


def trace_weights(strategy: jax.Array, choice: Choice) -> jax.Array:
    """How far what came of each explored action speaks for the strategy; float32[..., A].

    The truncated importance weights min(1, s(a) / q(a)) of Retrace (Munos et al. 2016, section 3),
    with the strategy s and the probability q of exploring the action: one that the strategy would
    not take says nothing. Where several were explored, their weights are the strategy's own, as
    shares of all of them if these sum to more than q.
    """
    weights = jnp.where(choice.explored, strategy, 0.0)
    total = weights.sum(-1, keepdims=True)
    return weights / jnp.maximum(jnp.maximum(total, choice.probability[..., None]), 1e-30)
