"""Fitting a network to a memory: all steps of a phase in one jitted scan.

The loss of a sample is weighted by the iteration it comes from and by nothing else. Under
outcome sampling an info state is visited in proportion to its owner's own reach under the
sampling policy, so within an iteration the fit leans towards what that policy visits.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib

from lostcities_jax.games.game import Game
from lostcities_jax.losses import Loss
from lostcities_jax.memory import Memory, Samples, draw_batch, size
from lostcities_jax.networks import Network
from lostcities_jax.settings import LearnerConfig

WEIGHTINGS = ("none", "lcfr", "dcfr")
DCFR_ALPHA = 1.5  # discount exponent of regrets (Brown and Sandholm 2019, section 4)
DCFR_GAMMA = 2.0  # exponent of the average strategy's weights
_MUON_STEP = 3.0  # root mean square of Muon's step, in learning rates


class LearnerState(NamedTuple):
    """Parameters and the optimiser's state; donate it to the fit."""

    params: Any
    optimizer: Any


def iteration_weights(weighting: str, iteration: int, is_strategy: bool, length: int) -> np.ndarray:
    """Weight of the samples of each iteration up to `iteration`, the newest 1.

    "lcfr" weighs iteration t by t (linear CFR), "dcfr" regrets by the product of the later
    discounts k^alpha / (k^alpha + 1) and strategies by t^gamma (Brown and Sandholm 2019,
    equation 3; a sampled regret is discounted as a positive one, since the sign that
    matters is the sum's).

    Args:
      weighting: one of WEIGHTINGS.
      iteration: the current iteration, from 1.
      is_strategy: for strategy samples instead of advantages.
      length: entries to return, at least `iteration + 1`; entry t is iteration t's.

    Returns:
      float32[length], 0 outside 1 .. iteration.
    """
    t = np.arange(1, iteration + 1, dtype=np.float64)
    if weighting == "none":
        weights = np.ones_like(t)
    elif weighting == "lcfr":
        weights = t / iteration
    elif is_strategy:
        weights = (t / iteration) ** DCFR_GAMMA
    else:
        discounts = t**DCFR_ALPHA / (t**DCFR_ALPHA + 1)
        weights = np.append(np.cumprod(discounts[-2::-1])[::-1], 1.0)
    full = np.zeros(length, np.float32)
    full[1 : iteration + 1] = weights
    return full


class Learner(NamedTuple):
    """How one kind of network is fitted.

    Attributes:
      init: `key -> LearnerState`; consumes the key.
      fit: `(state, memory, weights float32[t], key) -> (state, mean losses float32[2])` of
        the first and the last tenth of the steps; consumes the key.
    """

    init: Callable[[jax.Array], LearnerState]
    fit: Callable[..., tuple[LearnerState, jax.Array]]


def make_learner(
    game: Game,
    network: Network,
    loss: Loss,
    optimizer: optax.GradientTransformation,
    steps: int,
    batch_size: int,
    target_scale: float,
    axis: str | None = None,
) -> Learner:
    """Builds a learner.

    Args:
      game: the game.
      network: the network.
      loss: of its outputs.
      optimizer: of its parameters.
      steps: steps of a fit.
      batch_size: samples of a step.
      target_scale: size of a target that a network output of 1 means.
      axis: mesh axis of processes that fit together under `jax.shard_map`: each draws
        `batch_size` samples of its own memory, and the loss is that of all of them.
    """

    def init(key: jax.Array) -> LearnerState:
        params = network.init(key)
        return LearnerState(params, optimizer.init(params))

    def mean_loss(params: Any, batch: Samples, weights: jax.Array) -> jax.Array:
        outputs = all_heads(game, network, params, batch.info, batch.legal)
        weight = weights[batch.iteration]
        losses = loss(outputs, batch.target / target_scale, batch.legal)
        sums = (weight * losses).sum(), weight.sum()
        if axis is not None:  # JAX then sums the gradients over the processes too
            sums = jax.lax.psum(sums, axis)
        return sums[0] / jnp.maximum(sums[1], 1e-9)

    def fit(
        state: LearnerState, memory: Memory, weights: jax.Array, key: jax.Array
    ) -> tuple[LearnerState, jax.Array]:
        def step(state: LearnerState, step_key: jax.Array):
            if axis is not None:
                step_key = jax.random.fold_in(step_key, jax.lax.axis_index(axis))
            batch = draw_batch(memory, step_key, batch_size)
            value, gradient = jax.value_and_grad(mean_loss)(state.params, batch, weights)
            updates, opt_state = optimizer.update(gradient, state.optimizer, state.params)
            return LearnerState(optax.apply_updates(state.params, updates), opt_state), value

        state, losses = jax.lax.scan(step, state, jax.random.split(key, steps))
        tenth = max(steps // 10, 1)
        return state, jnp.stack([losses[:tenth].mean(), losses[-tenth:].mean()])

    return Learner(init, fit)


def bootstrap(
    game: Game,
    network: Network,
    params: Any,
    memory: Memory,
    share: jax.Array,
    target_scale: float,
    block_rows: int,
) -> Memory:
    """Turns the regrets of the newest iteration into averages that lean on the network's own.

    A target r becomes (1 - share) max(R, 0) + share r, with R what `params` say of the sample:
    the running average of regrets without a reservoir of old ones, cut off at 0 as in CFR+
    (Tammelin et al. 2015). With share 1 / t it is the mean over t iterations; held at 1 / T
    it forgets what is older than some T iterations.

    Args:
      game: the game; static.
      network: the advantage network; static.
      params: its parameters, fitted to the iterations before.
      memory: regrets of the newest iteration, in points.
      share: weight of the newest iteration. float32[].
      target_scale: points that an output of 1 means; static.
      block_rows: samples evaluated at a time; static. On a CPU those that fit into a core's cache
        take half the time of thousands.
    """
    capacity = memory.capacity
    rows = min(block_rows, capacity)

    def write(index: jax.Array, targets: jax.Array) -> jax.Array:
        # The last block is moved back to lie inside; what it has in common is written twice.
        start = jnp.minimum(index * rows, capacity - rows)
        info, legal = (
            jax.lax.dynamic_slice_in_dim(array, start, rows)
            for array in (memory.samples.info, memory.samples.legal)
        )
        newest = jax.lax.dynamic_slice_in_dim(memory.samples.target, start, rows)
        own = target_scale * all_heads(game, network, params, info, legal)
        averaged = (1.0 - share) * jnp.maximum(own, 0.0) + share * newest
        return jax.lax.dynamic_update_slice_in_dim(
            targets, jnp.where(legal, averaged, 0.0), start, 0
        )

    blocks = -(-size(memory) // rows)
    targets = jax.lax.fori_loop(0, blocks, write, memory.samples.target)
    return memory._replace(samples=memory.samples._replace(target=targets))


def make_optimizer(settings: LearnerConfig, steps: int = 0) -> optax.GradientTransformation:
    """Muon or AdamW, behind clipping of the gradient's norm.

    Muon (Jordan et al. 2024) moves the matrix of a hidden layer by its momentum made orthogonal,
    scaled to a few times a step of Adam's; biases and last layers are left to Nadam.

    Args:
      settings: its kind, rate, decay and clip, and the share of the rate that is left in the end.
      steps: steps over which the rate falls.
    """
    rate: Any = settings.learning_rate
    decay = settings.weight_decay
    if settings.final_rate != 1.0:
        rate = optax.linear_schedule(rate, rate * settings.final_rate, steps)
    if settings.optimizer == "adam":
        rule = optax.adamw(rate, weight_decay=decay)
    else:
        rule = optax.contrib.muon(
            rate,
            weight_decay=decay,
            adam_weight_decay=decay,
            muon_weight_dimension_numbers=_orthogonal,
            consistent_rms=_MUON_STEP,
        )
    return optax.chain(optax.clip_by_global_norm(settings.max_grad_norm), rule)


def _orthogonal(params: Any) -> Any:
    """Which parameters Muon moves: matrices, but for those of last layers."""

    def dimensions(path: Any, leaf: jax.Array) -> Any:
        is_last = any(str(getattr(key, "key", "")).endswith("_head") for key in path)
        return optax.contrib.MuonDimensionNumbers() if leaf.ndim == 2 and not is_last else None

    return jax.tree_util.tree_map_with_path(dimensions, params)


def all_heads(
    game: Game, network: Network, params: Any, info: jax.Array, legal: jax.Array
) -> jax.Array:
    """Outputs of each sample's own phase, padded to the widest; float32[B, A].

    A batch mixes phases; the game says which head an info state belongs to.
    """
    outputs = jnp.zeros(legal.shape, jnp.float32)
    own_head = game.head_of(info)
    for head, row in enumerate(network.apply_heads(params, info)):
        padded = jnp.pad(row, ((0, 0), (0, legal.shape[-1] - row.shape[-1])))
        outputs = jnp.where((own_head == head)[:, None], padded, outputs)
    return outputs
