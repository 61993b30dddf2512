"""The traversals of an iteration under each scheduler, behind one contract.

All schedulers give the same samples for the same keys; they differ in how they share the
machine. `lockstep` is the fast path and leaves a tape on the devices; the others walk on the
host and are there to be compared with it.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from lostcities_jax.devices import Machine
from lostcities_jax.errors import UserError
from lostcities_jax.games.game import Game
from lostcities_jax.memory import clear
from lostcities_jax.networks import Network, make_network
from lostcities_jax.schedulers import interleaved, recursive
from lostcities_jax.schedulers.answers import Answers, Players, make_critic_values
from lostcities_jax.schedulers.blueprint import Blueprint, ServedSeat, ServiceSettings
from lostcities_jax.schedulers.collected import Collected, make_remember_collected
from lostcities_jax.schedulers.service import InferenceService
from lostcities_jax.settings import Config
from lostcities_jax.solvers.opponents import FIXED, rollout_policy, seat_policies
from lostcities_jax.solvers.remembering import (
    ESTIMATORS,
    Memories,
    make_remember,
    needs_critic,
    traverser_writes,
)
from lostcities_jax.traversal.lockstep import Seat
from lostcities_jax.traversal.plan import Plan
from lostcities_jax.traversal.sharded import Part, own_quota, sharded_traverse
from lostcities_jax.traversal.statistics import Statistics, statistics, tape_statistics


class Scheduler(NamedTuple):
    """How a solver gets the samples of a batch; a batch is whatever its scheduler returns.

    Attributes:
      run: `(traverser, seats, critic params, key) -> batch`; critic params are None where the
        estimator needs none.
      remember: `(traverser, memories, batch, critic params, iteration, key) -> Memories`;
        donates the memories.
      statistics: `batch -> Statistics`, on the device.
      close: ends what was started.
    """

    run: Callable[..., Any]
    remember: Callable[..., Memories]
    statistics: Callable[[Any], Statistics]
    close: Callable[[], None]


def make_scheduler(config: Config, game: Game, network: Network, machine: Machine) -> Scheduler:
    """The scheduler of a configuration; processes are started when they are first needed."""
    if config.scheduler.kind == "lockstep":
        return _lockstep(config, game, network, machine)
    return _on_host(config, game, network)


def part_of(machine: Machine) -> Part:
    """The part of the traversals that falls to this process."""
    return Part(machine.process, machine.processes)


def traversal_plan(config: Config, game: Game) -> Plan:
    """The static sizes of a configuration's traversals."""
    sizes = config.traversal
    branches = {"outcome": 0, "robust": sizes.branches, "external": game.max_actions}
    has_rollouts = sizes.cut_value == "rollouts"
    return Plan(
        width=sizes.batch_width,
        quota=sizes.traversals,
        branches=branches[sizes.sampling],
        max_depth=sizes.max_depth,
        max_nodes=sizes.max_nodes,
        has_critic=needs_critic(sizes.estimator),
        rollouts=sizes.rollouts if has_rollouts else 0,
        rollout_policy=rollout_policy(game, sizes.rollout_policy) if has_rollouts else None,
        stack_levels=sizes.stack_levels,
        tape_cycles=sizes.tape_cycles,
    )


def check_room(config: Config, game: Game, batch: Statistics, iteration: int) -> None:
    """Raises UserError where the tape or the stack was too short for a batch."""
    plan = traversal_plan(config, game)
    if batch.overflows:
        raise UserError(
            f"traversal.stack_levels is {plan.levels(game)}, too few for {batch.overflows} "
            f"decisions of iteration {iteration}; allowed: more, or 0 for as many as needed"
        )
    if batch.unfinished:
        raise UserError(
            f"traversal.tape_cycles is {plan.cycles(game)}, too few for {batch.unfinished} "
            f"traversals of iteration {iteration}; allowed: more"
        )


def _lockstep(config: Config, game: Game, network: Network, machine: Machine) -> Scheduler:
    plan, part = traversal_plan(config, game), part_of(machine)
    policies = [seat_policies(config, game, network, traverser) for traverser in (0, 1)]
    # One program where the same functions play, whoever traverses.
    programs = {pair: sharded_traverse(game, pair, plan, machine.lanes, part) for pair in policies}
    replicated = NamedSharding(machine.lanes, PartitionSpec())
    add_tape = make_remember(
        game,
        network,
        ESTIMATORS[config.traversal.estimator],
        config.critic.target_scale,
        config.critic.trace,
        machine,
        plan.levels(game),
    )

    def run(traverser: int, seats: tuple[Seat, Seat], critic: Any, key: jax.Array) -> Any:
        del critic
        return programs[policies[traverser]](*jax.device_put((seats, key), replicated))

    def remember(
        traverser: int, memories: Memories, batch: Any, critic: Any, iteration: int, key: jax.Array
    ) -> Memories:
        tape, summary = batch
        if memories.critic is not None:
            memories = memories._replace(critic=clear(memories.critic))
        writers = traverser_writes(traverser)
        return add_tape(writers, memories, tape, summary, critic, iteration, key)

    quota = own_quota(plan, machine.lanes.size, part)
    count = jax.jit(functools.partial(tape_statistics, game, quota))
    return Scheduler(run, remember, lambda batch: count(batch[0], batch[1]), lambda: None)


def _on_host(config: Config, game: Game, network: Network) -> Scheduler:
    plan = dataclasses.replace(traversal_plan(config, game), width=config.scheduler.traversals)
    trace = config.critic.trace
    add = make_remember_collected(game, ESTIMATORS[config.traversal.estimator])
    services = _Services(config, plan)
    players = [_players(config, game, network, traverser) for traverser in (0, 1)]
    in_process = {"recursive": recursive.run, "interleaved": interleaved.run}

    def run(traverser: int, seats: tuple[Seat, Seat], critic: Any, key: jax.Array) -> Collected:
        if config.scheduler.kind == "server":
            return services.run(traverser, seats, critic, key)
        scheduler = in_process[config.scheduler.kind]
        return scheduler(game, players[traverser], plan, Answers(seats, critic), key, trace)

    def remember(
        traverser: int,
        memories: Memories,
        batch: Collected,
        critic: Any,
        iteration: int,
        key: jax.Array,
    ) -> Memories:
        del critic  # its values are in the batch
        return Memories(*add(traverser, tuple(memories), batch, iteration, key))

    def count(batch: Collected) -> Statistics:
        calls = batch.calls
        summary = jax.tree.map(jnp.asarray, batch.summary)
        return statistics(game, plan.quota, summary, jnp.int32(calls.calls), jnp.int32(calls.rows))

    return Scheduler(run, remember, count, services.close)


def _players(config: Config, game: Game, network: Network, traverser: int) -> Players:
    """The functions that answer when `traverser` traverses."""
    critic = None
    if needs_critic(config.traversal.estimator):
        critic = make_critic_values(game, network, config.critic.target_scale)
    return Players(seat_policies(config, game, network, traverser), critic)


def build_players(game: Game, settings: tuple[Config, int]) -> Players:
    """`_players` in another process, from a configuration and the traverser."""
    config, traverser = settings
    network = make_network(game, **dataclasses.asdict(config.network))
    return _players(config, game, network, traverser)


class _Services:
    """One inference service for each traverser, or one for both if the same functions play."""

    def __init__(self, config: Config, plan: Plan):
        self._config, self._plan = config, plan
        self._services: dict[int, InferenceService] = {}

    def run(
        self, traverser: int, seats: tuple[Seat, Seat], critic: Any, key: jax.Array
    ) -> Collected:
        which = traverser if self._config.traversal.opponent in FIXED else 0
        service = self._services.get(which) or self._start(which)
        params = {f"{traverser}_{player}": seat.params for player, seat in enumerate(seats)}
        service.push_weights(
            params | ({f"{traverser}_critic": critic} if critic is not None else {})
        )
        served = [
            ServedSeat(f"{traverser}_{player}", float(seat.epsilon), bool(seat.is_traverser))
            for player, seat in enumerate(seats)
        ]
        name = f"{traverser}_critic" if critic is not None else None
        return service.run((served[0], served[1]), key, name)

    def _start(self, which: int) -> InferenceService:
        config, sizes = self._config, self._config.scheduler
        blueprint = Blueprint(
            game=config.game,
            rules=config.rules,
            plan=self._plan,
            build=build_players,
            settings=(config, which),
            trace=config.critic.trace,
        )
        service = InferenceService(
            blueprint,
            ServiceSettings(
                workers=sizes.workers,
                traversals=sizes.traversals,
                slots=sizes.slots,
                max_batch=sizes.max_batch,
                window_s=sizes.window_microseconds * 1e-6,
            ),
        )
        self._services[which] = service
        return service

    def close(self) -> None:
        for service in self._services.values():
            service.close()
        self._services.clear()
