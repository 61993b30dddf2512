"""How each network of self-play is fitted to the newest batch, and the average strategy to all."""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from lostcities_jax.games.game import Game
from lostcities_jax.learner import Learner, LearnerState, bootstrap, make_learner, make_optimizer
from lostcities_jax.losses import clipped_surrogate, cross_entropy, squared_error
from lostcities_jax.memory import Memory
from lostcities_jax.networks import Network
from lostcities_jax.settings import Config


class Fits(NamedTuple):
    """How each network is fitted.

    Attributes:
      policy_init: `key -> LearnerState`.
      policy_fit: `(LearnerState, memory, share, key) -> (LearnerState, losses)`; donates the
        first.
      critic: of the critic.
      strategy: of the average strategy.
    """

    policy_init: Callable
    policy_fit: Callable
    critic: Learner
    strategy: Learner


def make_fits(config: Config, game: Game, network: Network) -> Fits:
    """Builds the fits of a configuration; `solver` decides what becomes of the policy."""
    settings, gradient, critic = config.learner, config.gradient, config.critic
    make = functools.partial(make_learner, game, network, batch_size=settings.batch_size)

    def optimizer(steps: int) -> optax.GradientTransformation:
        return make_optimizer(settings, steps * config.iterations)

    scale = settings.target_scale
    if config.solver == "policy_gradient":
        loss, steps = clipped_surrogate(gradient.clip, gradient.entropy), gradient.steps
        policy = make(loss, optimizer=optimizer(steps), steps=steps, target_scale=1.0)
    else:
        steps = settings.advantage_steps
        policy = make(squared_error, optimizer=optimizer(steps), steps=steps, target_scale=scale)

    def fit(
        state: LearnerState, samples: Memory, share: jax.Array, key: jax.Array
    ) -> tuple[LearnerState, jax.Array]:
        if config.solver == "deep_cfr":
            samples = bootstrap(game, network, state.params, samples, share, scale)
        return policy.fit(state, samples, jnp.ones((config.iterations + 1,)), key)

    return Fits(
        policy_init=policy.init,
        policy_fit=jax.jit(fit, donate_argnums=0),
        critic=make(
            squared_error,
            optimizer=optimizer(critic.steps),
            steps=critic.steps,
            target_scale=critic.target_scale,
        ),
        strategy=make(
            cross_entropy,
            optimizer=make_optimizer(dataclasses.replace(settings, final_rate=1.0)),
            steps=settings.strategy_steps,
            target_scale=1.0,
        ),
    )
