"""From a batch's tapes to the memories: the critic's values, the sweep, and the samples."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lostcities_jax.games.game import Game
from lostcities_jax.memory import Memory
from lostcities_jax.networks import Network
from lostcities_jax.traversal import samples
from lostcities_jax.traversal.critic import baselines
from lostcities_jax.traversal.lockstep import Summary
from lostcities_jax.traversal.tape import Tape, sweep

ESTIMATORS = {
    "outcome": samples.sampled_advantage,
    "baseline": samples.sampled_advantage,
    "critic": samples.critic_advantage,
}


class Memories(NamedTuple):
    """The memories that a batch writes.

    Attributes:
      advantage: advantage samples.
      strategy: strategy samples of both players; None where no average strategy is wanted.
      critic: samples of the newest batch; None where the estimator needs no critic.
    """

    advantage: Memory
    strategy: Memory | None
    critic: Memory | None


class Writers(NamedTuple):
    """Whose decisions a batch leaves in the memories; those of both players go to the critic.

    Attributes:
      advantage: players whose advantages are wanted.
      strategy: players whose strategies are.
    """

    advantage: tuple[int, ...]
    strategy: tuple[int, ...]


def traverser_writes(traverser: int) -> Writers:
    """The writers of Deep CFR: advantages of the traverser, strategies of the other."""
    return Writers((traverser,), (1 - traverser,))


def needs_critic(estimator: str) -> bool:
    """Whether an estimator of ESTIMATORS uses a critic."""
    return estimator != "outcome"


def make_remember(
    game: Game,
    critic: Network,
    make_advantage: Callable[[samples.Decisions], samples.Target],
    value_scale: float,
    trace: float,
    home: Any,
    levels: int = 0,
) -> Callable[..., Memories]:
    """Builds `(writers, memories, tapes, critic params, iteration, key) -> memories`.

    The memories are donated, and added to. `tapes` are the devices' `(tape, summary)` in the
    order of their traversals: each is swept on its own device, beside the others, and brought
    `home` to the memories (None in a program that is being traced). Critic params are None where
    advantages are made without a critic; `levels` are those of the traversal's stack.
    """

    strategy = functools.partial(samples.strategy, game)
    critic_return = functools.partial(samples.critic_return, game)

    @jax.jit
    def swept(tape: Tape, summary: Summary, params: object) -> samples.Batch:
        values_of = (None,) * len(game.phases)
        if params is not None:
            values_of = baselines(game, critic, params, tape, value_scale)
        values = sweep(game, tape, values_of, trace, levels)
        return samples.Batch(tape, values, values_of, summary)

    def add_batch(
        writers: Writers,
        carry: tuple[Memories, jax.Array],
        batch: samples.Batch,
        iteration: jax.Array,
        key: jax.Array,
    ) -> tuple[Memories, jax.Array]:
        memories, first = carry
        wanted = [
            (make_advantage, writers.advantage, memories.advantage),
            (strategy, writers.strategy, memories.strategy),
            (critic_return, (0, 1), memories.critic),
        ]
        added, counts = [], []
        for index, (make_target, players, old) in enumerate(wanted):
            new, count = old, first[index]
            if old is not None:
                new, count = samples.add_samples(
                    game,
                    make_target,
                    players,
                    old,
                    batch,
                    first[index],
                    iteration,
                    jax.random.fold_in(key, index),
                )
            added.append(new)
            counts.append(count)
        return Memories(*added), jnp.stack(counts)

    program = jax.jit(add_batch, static_argnums=0, donate_argnums=1)

    def remember(
        writers: Writers,
        memories: Memories,
        tapes: Iterable[tuple[Tape, Summary]],
        params: object,
        iteration: int,
        key: jax.Array,
    ) -> Memories:
        batches = []
        for tape, summary in tapes:
            near = params if home is None else jax.device_put(params, tape.length.device)
            batches.append(swept(tape, summary, near))
        carry = (memories, jnp.zeros((3,), jnp.int32))
        for batch in batches:
            brought = batch if home is None else jax.device_put(batch, home)
            carry = program(writers, carry, brought, jnp.int32(iteration), key)
        return carry[0]

    return remember
