"""How each network of a solver is fitted, and with what weights of the iterations."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lostcities_jax.devices import Machine
from lostcities_jax.games.game import Game
from lostcities_jax.learner import (
    WEIGHTINGS,
    Learner,
    LearnerState,
    bootstrap,
    iteration_weights,
    make_learner,
    make_optimizer,
)
from lostcities_jax.losses import Loss, clipped_surrogate, cross_entropy, squared_error
from lostcities_jax.memory import Memory
from lostcities_jax.networks import Network
from lostcities_jax.settings import Config
from lostcities_jax.solvers.joint import fit_axis, jit_fit, own_share


class Fit(NamedTuple):
    """How one kind of network is fitted.

    Attributes:
      init: `key -> LearnerState`; consumes the key.
      fit: `(LearnerState, memory, iteration, key) -> (LearnerState, losses float32[2])`; donates
        the first and consumes the key.
    """

    init: Callable[[jax.Array], LearnerState]
    fit: Callable[[LearnerState, Any, int, jax.Array], tuple[LearnerState, jax.Array]]


def advantage_fit(config: Config, game: Game, network: Network, machine: Machine) -> Fit:
    """Of a player's advantage network to a reservoir of all iterations.

    The rate falls over all fits, or over each that begins with new weights.
    """
    steps, scale = config.learner.advantage_steps, config.learner.target_scale
    fits = config.iterations if config.learner.warm_start else 1
    learner = _learner(config, game, network, machine, squared_error, steps, scale, fits)
    return _compiled(
        machine, learner, lambda iteration: _weights(config, iteration, is_strategy=False)
    )


def policy_fit(config: Config, game: Game, network: Network, machine: Machine) -> Fit:
    """Of the policy of self-play to the newest batch: `solver` decides what becomes of it."""
    if config.solver == "policy_gradient":
        return _gradient_fit(config, game, network, machine)
    steps, scale = config.learner.advantage_steps, config.learner.target_scale
    fits = config.iterations
    learner = _learner(config, game, network, machine, squared_error, steps, scale, fits)
    rows = own_share(machine, config.learner.batch_size)

    def fit(
        state: LearnerState, samples: Memory, share: jax.Array, key: jax.Array
    ) -> tuple[LearnerState, jax.Array]:
        samples = bootstrap(game, network, state.params, samples, share, scale, rows)
        return learner.fit(state, samples, _newest(config), key)

    def share(iteration: int) -> jax.Array:
        return 1.0 / jnp.minimum(iteration, config.learner.horizon).astype(jnp.float32)

    return _compiled(machine, Learner(learner.init, fit), share)


def _gradient_fit(config: Config, game: Game, network: Network, machine: Machine) -> Fit:
    """Along the clipped objective; the entropy's weight moves in a line over the iterations."""
    settings, steps = config.gradient, config.gradient.steps

    def learner(entropy: jax.Array | float) -> Learner:
        loss = clipped_surrogate(settings.clip, entropy, fit_axis(machine))
        return _learner(config, game, network, machine, loss, steps, 1.0, config.iterations)

    def fit(
        state: LearnerState, samples: Memory, entropy: jax.Array, key: jax.Array
    ) -> tuple[LearnerState, jax.Array]:
        return learner(entropy).fit(state, samples, _newest(config), key)

    def entropy(iteration: int) -> jax.Array:
        done = jnp.float32(iteration - 1) / max(config.iterations - 1, 1)
        return settings.entropy + (settings.final_entropy - settings.entropy) * done

    return _compiled(machine, Learner(learner(0.0).init, fit), entropy)


def critic_fit(
    config: Config, game: Game, network: Network, machine: Machine, per_iteration: int
) -> Fit:
    """Of the critic to the newest batch, so many times in an iteration; beside other fits."""
    steps, scale = config.critic.steps, config.critic.target_scale
    fits = per_iteration * config.iterations
    learner = _learner(config, game, network, machine, squared_error, steps, scale, fits)
    return _aside(machine, _compiled(machine, learner, lambda _: _newest(config)))


def strategy_fit(config: Config, game: Game, network: Network, machine: Machine) -> Fit:
    """Of the average strategy's network to strategies of all iterations, at a constant rate."""
    settings = dataclasses.replace(config.learner, final_rate=1.0)
    learner = make_learner(
        game,
        network,
        cross_entropy,
        make_optimizer(settings),
        settings.strategy_steps,
        own_share(machine, settings.batch_size),
        target_scale=1.0,
        axis=fit_axis(machine),
    )
    return _compiled(
        machine, learner, lambda iteration: _weights(config, iteration, is_strategy=True)
    )


def _learner(
    config: Config,
    game: Game,
    network: Network,
    machine: Machine,
    loss: Loss,
    steps: int,
    scale: float,
    fits: int,
) -> Learner:
    """A learner whose rate falls over so many fits."""
    optimizer = make_optimizer(config.learner, steps * fits)
    batch_size = own_share(machine, config.learner.batch_size)
    return make_learner(game, network, loss, optimizer, steps, batch_size, scale, fit_axis(machine))


def _compiled(machine: Machine, learner: Learner, weights: Callable[[int], jax.Array]) -> Fit:
    program = jit_fit(machine, learner.fit)

    def fit(
        state: LearnerState, samples: Memory, iteration: int, key: jax.Array
    ) -> tuple[LearnerState, jax.Array]:
        return program(state, samples, weights(iteration), key)

    return Fit(learner.init, fit)


def _aside(machine: Machine, fit: Fit) -> Fit:
    """A fit on another device than home, if there is one: it waits for none that runs there."""
    if machine.aside == machine.home:
        return fit

    def fit_aside(
        state: LearnerState, samples: Memory, iteration: int, key: jax.Array
    ) -> tuple[LearnerState, jax.Array]:
        state, samples, key = jax.device_put((state, samples, key), machine.aside)
        return jax.device_put(fit.fit(state, samples, iteration, key), machine.home)

    return Fit(fit.init, fit_aside)


def _weights(config: Config, iteration: int, is_strategy: bool) -> jax.Array:
    """Weights by `learner.weighting`; of a traced one, which is its index in WEIGHTINGS."""
    weighting, length = config.learner.weighting, config.iterations + 1
    if isinstance(weighting, str):
        return jnp.asarray(iteration_weights(weighting, iteration, is_strategy, length))
    each = [iteration_weights(name, iteration, is_strategy, length) for name in WEIGHTINGS]
    return jnp.stack(each)[weighting]


def _newest(config: Config) -> jax.Array:
    """Weights for a memory of one iteration's samples alone."""
    return jnp.ones((config.iterations + 1,))
