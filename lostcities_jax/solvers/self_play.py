"""Self-play of one network in both seats: the steps of an iteration of two solvers.

A batch of games is played by the network against itself, or against an opponent; a critic that
sees both hands values every decision; then the policy and the critic are fitted to that batch
alone. The solvers differ in the fit of the policy: `policy_gradient` climbs a clipped objective,
`deep_cfr` with bootstrapped regrets adds the batch's regrets to those that the network holds.
Every decision of both seats counts, and of old samples only the average strategy's are kept, so an
iteration costs a fraction of one that updates the players in turn.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lostcities_jax import memory
from lostcities_jax.devices import Machine
from lostcities_jax.games.game import Game
from lostcities_jax.learner import LearnerState
from lostcities_jax.memory import Memory
from lostcities_jax.networks import Network
from lostcities_jax.settings import Config
from lostcities_jax.snapshots import Snapshots
from lostcities_jax.solvers.common import (
    FIT,
    INIT,
    LEAGUE,
    MEMORY,
    SNAPSHOT,
    TRAVERSE,
    make_keep,
    make_keys,
    new_snapshots,
)
from lostcities_jax.solvers.fits import critic_fit, policy_fit, strategy_fit
from lostcities_jax.solvers.joint import new_memory, own_key
from lostcities_jax.solvers.remembering import Memories, Writers, make_remember
from lostcities_jax.solvers.seating import Batch, Rival, make_games
from lostcities_jax.traversal.samples import critic_advantage, policy_advantage
from lostcities_jax.traversal.statistics import Statistics, tape_statistics

_POLICY, _STRATEGY, _CRITIC = range(3)  # what is fitted


class SelfPlayState(NamedTuple):
    """What an iteration changes, and all that a checkpoint needs.

    Attributes:
      policy: the network that plays: logits of a policy gradient, or regrets.
      critic: the critic and its optimiser.
      strategy: the average strategy's network; None for a policy gradient.
      memories: samples of the newest batch, but for the strategy's, which are of all.
      snapshots: past policy networks; None where none are kept.
    """

    policy: LearnerState
    critic: LearnerState
    strategy: LearnerState | None
    memories: Memories
    snapshots: Snapshots | None


class SelfPlay(NamedTuple):
    """The steps of an iteration; iterations count from 1.

    Attributes:
      init: `() -> SelfPlayState`.
      new_memories: `() -> Memories`, those of a batch, empty; the strategy's is None.
      batches: batches an iteration has.
      play: `(state, iteration, index) -> Batch`, one of them.
      statistics: `Batch -> Statistics`.
      remember: `(state, iteration, index, batch) -> state`, in their order; donates the memories
        of `state`.
      fit_policy: `(state, iteration) -> (state, losses float32[2])`; donates the learner.
      fit_critic: the same for the critic.
      fit_strategy: the same for the average strategy; without one it does nothing.
      keep_snapshot: `(state, iteration) -> state`, at the end of an iteration; donates the
        snapshots of `state`.
    """

    init: Callable[[], SelfPlayState]
    new_memories: Callable[[], Memories]
    batches: int
    play: Callable[[SelfPlayState, int, int], Batch]
    statistics: Callable[[Batch], Statistics]
    remember: Callable[[SelfPlayState, int, int, Batch], SelfPlayState]
    fit_policy: Callable[[SelfPlayState, int], tuple[SelfPlayState, jax.Array]]
    fit_critic: Callable[[SelfPlayState, int], tuple[SelfPlayState, jax.Array]]
    fit_strategy: Callable[[SelfPlayState, int], tuple[SelfPlayState, jax.Array]]
    keep_snapshot: Callable[[SelfPlayState, int], SelfPlayState]


def make_self_play(
    config: Config, game: Game, network: Network, machine: Machine, rival: Rival | None = None
) -> SelfPlay:
    """Builds the steps of a configuration. With a rival, the network learns to beat it and
    nothing else.

    On the machine TRACED the steps are functions to trace into a program: then iterations, and
    numbers among the settings, may be traced scalars.
    """
    is_gradient = config.solver == "policy_gradient"
    policy = policy_fit(config, game, network, machine)
    critic = critic_fit(config, game, network, machine, per_iteration=1)
    strategy = None if is_gradient else strategy_fit(config, game, network, machine)
    key_of = make_keys(config.seed)
    new = functools.partial(new_memory, machine, game)

    def new_memories() -> Memories:
        rows = 2 if is_gradient else 1
        memories = Memories(
            advantage=new(config.memory.advantage_capacity, rows=rows),
            strategy=None,
            critic=new(config.critic.capacity),
        )
        return jax.device_put(memories, machine.home)

    def init() -> SelfPlayState:
        policy_state = policy.init(key_of(INIT, 0, _POLICY))
        state = SelfPlayState(
            policy=policy_state,
            critic=critic.init(key_of(INIT, 0, _CRITIC)),
            strategy=None,
            memories=new_memories(),
            snapshots=new_snapshots(config.snapshots, (policy_state.params,)),
        )
        if strategy is not None:
            samples = new(config.memory.strategy_capacity)
            state = state._replace(
                strategy=strategy.init(key_of(INIT, 0, _STRATEGY)),
                memories=state.memories._replace(strategy=samples),
            )
        # Bound to the device that every later step leaves it on, or all compile twice.
        return jax.device_put(state, machine.home)

    games = make_games(config, game, network, machine, rival)

    def play(state: SelfPlayState, iteration: int, index: int) -> Batch:
        key, league_key = key_of(TRAVERSE, iteration), key_of(LEAGUE, iteration)
        return games.play(state.policy.params, state.snapshots, index, key, league_key)

    remember_tape = make_remember(
        game,
        network,
        functools.partial(policy_advantage, game) if is_gradient else critic_advantage,
        config.critic.target_scale,
        config.critic.trace,
        machine,
    )

    def remember(state: SelfPlayState, iteration: int, index: int, batch: Batch) -> SelfPlayState:
        memories = state.memories
        if index == 0:
            memories = memories._replace(
                advantage=memory.clear(memories.advantage),
                critic=memory.clear(_present(memories.critic)),
            )
        memories = remember_tape(
            Writers(batch.learners, batch.learners),
            memories,
            batch.tape,
            batch.summary,
            state.critic.params,
            iteration,
            own_key(machine, key_of(MEMORY, iteration, index)),
        )
        return state._replace(memories=memories)

    def fit_policy(state: SelfPlayState, iteration: int) -> tuple[SelfPlayState, jax.Array]:
        key = key_of(FIT, iteration, _POLICY)
        fitted, losses = policy.fit(state.policy, state.memories.advantage, iteration, key)
        return state._replace(policy=fitted), losses

    def fit_critic(state: SelfPlayState, iteration: int) -> tuple[SelfPlayState, jax.Array]:
        key = key_of(FIT, iteration, _CRITIC)
        fitted, losses = critic.fit(state.critic, state.memories.critic, iteration, key)
        return state._replace(critic=fitted), losses

    def fit_strategy(state: SelfPlayState, iteration: int) -> tuple[SelfPlayState, jax.Array]:
        if strategy is None or state.strategy is None:
            return state, jnp.zeros((2,))
        key = key_of(FIT, iteration, _STRATEGY)
        fitted, losses = strategy.fit(state.strategy, state.memories.strategy, iteration, key)
        return state._replace(strategy=fitted), losses

    keep = make_keep(config.snapshots)

    def keep_snapshot(state: SelfPlayState, iteration: int) -> SelfPlayState:
        key = key_of(SNAPSHOT, iteration)
        kept = keep(state.snapshots, (state.policy.params,), iteration, key)
        return state._replace(snapshots=kept)

    count = jax.jit(functools.partial(tape_statistics, game), static_argnums=0)
    return SelfPlay(
        init=init,
        new_memories=new_memories,
        batches=games.batches,
        play=play,
        statistics=lambda batch: count(batch.quota, batch.tape, batch.summary),
        remember=remember,
        fit_policy=fit_policy,
        fit_critic=fit_critic,
        fit_strategy=fit_strategy,
        keep_snapshot=keep_snapshot,
    )


def _present(samples: Memory | None) -> Memory:
    assert samples is not None
    return samples
