"""From a batch's tapes to the memories: the critic's values, the sweep, and the samples."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lostcities_jax.devices import Machine
from lostcities_jax.games.game import Game
from lostcities_jax.memory import Memory
from lostcities_jax.networks import Network
from lostcities_jax.traversal import samples
from lostcities_jax.traversal.critic import baselines
from lostcities_jax.traversal.lockstep import Summary
from lostcities_jax.traversal.sharded import sharded_sweep, shards, without_devices
from lostcities_jax.traversal.tape import Baseline, NodeValues, Tape, sweep

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
    machine: Machine,
    levels: int = 0,
) -> Callable[..., Memories]:
    """Builds `(writers, memories, tape, summary, critic params, iteration, key) -> memories`.

    The memories are donated, and added to. `tape` and `summary` are those of `sharded_traverse`
    on the lanes of `machine`: each device's part is swept there, beside the others, and brought
    home to the memories in the order of the traversals. Critic params are None where advantages
    are made without a critic; `levels` are those of the traversal's stack.
    """

    strategy = functools.partial(samples.strategy, game)
    critic_return = functools.partial(samples.critic_return, game)

    def valued(
        tape: Tape, params: object
    ) -> tuple[tuple[NodeValues, ...], tuple[Baseline | None, ...]]:
        values_of = (None,) * len(game.phases)
        if params is not None:
            values_of = baselines(game, critic, params, tape, value_scale)
        return sweep(game, tape, values_of, trace, levels), values_of

    def add_batch(
        writers: Writers,
        carry: tuple[Memories, jax.Array],
        batch: samples.Batch,
        iteration: jax.Array,
        key: jax.Array,
    ) -> tuple[Memories, jax.Array]:
        memories, first = carry
        tape, summary = without_devices(batch.tape, batch.summary)
        batch = batch._replace(tape=tape, summary=summary)
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

    value_all = sharded_sweep(valued, machine.lanes)
    program = jax.jit(add_batch, static_argnums=0, donate_argnums=1)

    def at_home(tree: Any) -> Any:
        return tree if machine.home is None else jax.device_put(tree, machine.home)

    def remember(
        writers: Writers,
        memories: Memories,
        tape: Tape,
        summary: Summary,
        params: object,
        iteration: int,
        key: jax.Array,
    ) -> Memories:
        values, values_of = value_all(tape, params)
        # Bound to home as what the program returns is, or it compiles again for the next device.
        carry = (memories, at_home(jnp.zeros((3,), jnp.int32)))
        for batch in shards(samples.Batch(tape, values, values_of, summary), machine.lanes):
            carry = program(writers, carry, at_home(batch), jnp.int32(iteration), key)
        return carry[0]

    return remember
