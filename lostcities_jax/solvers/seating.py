"""Who sits where in self-play: the network against itself, a past one, bots or a rival.

Where both seats are the network's, one batch teaches it from both. Otherwise it plays one batch
in each seat, and learns from its own decisions alone. Bots to spar with come on top of self-play.
Batches are played one at a time, so that no more than one is in memory.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from lostcities_jax.devices import Machine
from lostcities_jax.games.game import Game
from lostcities_jax.networks import Network
from lostcities_jax.settings import Config
from lostcities_jax.snapshots import Snapshots
from lostcities_jax.solvers.opponents import (
    FIXED,
    SeatParams,
    draw_from_league,
    draw_places,
    fixed_policy,
    own_policy,
    sparring_policy,
)
from lostcities_jax.solvers.scheduling import part_of, traversal_plan
from lostcities_jax.traversal.lockstep import Seat, Summary, TraversalPolicy
from lostcities_jax.traversal.plan import Plan
from lostcities_jax.traversal.sharded import own_quota, sharded_traverse
from lostcities_jax.traversal.tape import Tape


class Rival(NamedTuple):
    """An opponent that does not learn.

    Attributes:
      policy: its policy function.
      params: what the function takes in seat 0 and in seat 1.
    """

    policy: TraversalPolicy
    params: tuple[Any, Any]


class Batch(NamedTuple):
    """Games of an iteration with one seating.

    Attributes:
      learners: the seats whose decisions the network learns from.
      quota: how many of them this process plays.
      tape: the devices' tapes.
      summary: their summaries.
    """

    learners: tuple[int, ...]
    quota: int
    tape: Tape
    summary: Summary


class _Seating(NamedTuple):
    """What a batch plays.

    Attributes:
      learners: the seats whose decisions the network learns from.
      plan: its static sizes.
      policies: policy functions of player 0 and player 1.
      seats: what these take.
    """

    learners: tuple[int, ...]
    plan: Plan
    policies: tuple[TraversalPolicy, TraversalPolicy]
    seats: tuple[Seat, Seat]


class Games(NamedTuple):
    """The games of an iteration.

    Attributes:
      batches: batches an iteration has.
      play: `(parameters of the network, snapshots, b, key of the batches, key of whom it meets) ->
        Batch`, that of index b.
    """

    batches: int
    play: Callable[[Any, Snapshots | None, int, jax.Array, jax.Array], Batch]


def make_games(
    config: Config, game: Game, network: Network, machine: Machine, rival: Rival | None
) -> Games:
    """Builds what plays an iteration's games, on the lanes of `machine`.

    Batch b's games depend on the parameters and on its key folded with b alone.
    """
    if rival is None and config.traversal.opponent in FIXED:
        rival = Rival(fixed_policy(game, config.traversal.opponent), (None, None))
    is_gradient = config.solver == "policy_gradient"
    own_play = own_policy(config, game, network)
    plan = traversal_plan(config, game)
    replicated = None if machine.lanes.empty else NamedSharding(machine.lanes, PartitionSpec())
    draw = jax.jit(functools.partial(draw_from_league, config.league), static_argnums=2)
    sparring = config.traversal.sparring
    bots_of = jax.jit(functools.partial(draw_places, len(sparring)))
    sparring_games = max(1, round(plan.quota * config.traversal.sparring_share))
    sparring_plan = dataclasses.replace(plan, quota=sparring_games)
    has_league = rival is None and config.traversal.opponent == "league"

    @functools.cache
    def program(policies: tuple[TraversalPolicy, TraversalPolicy], plan: Plan) -> Callable:
        return sharded_traverse(game, policies, plan, machine.lanes, part_of(machine))

    def against(
        policy: TraversalPolicy, opponents: tuple[Any, Any], own: Seat, plan: Plan
    ) -> list[_Seating]:
        """A batch in each seat; the opponents' parameters in seat 0 and in seat 1."""
        first, second = (Seat(params, jnp.float32(0), jnp.asarray(False)) for params in opponents)
        return [
            _Seating((0,), plan, (own_play, policy), (own, second)),
            _Seating((1,), plan, (policy, own_play), (first, own)),
        ]

    def seatings(params: Any, kept: Snapshots | None, key: jax.Array) -> list[_Seating]:
        """What each batch plays."""
        epsilon = jnp.float32(0.0 if is_gradient else config.traversal.epsilon)
        own = Seat(SeatParams(params, jnp.asarray(is_gradient)), epsilon, jnp.asarray(True))
        if rival is not None:
            return against(rival.policy, rival.params, own, plan)
        if has_league:
            past = SeatParams(draw(kept, params, 0, key), jnp.asarray(is_gradient))
            return against(own_play, (past, past), own, plan)
        itself = [_Seating((0, 1), plan, (own_play, own_play), (own, own))]
        if not sparring:
            return itself
        bots = sparring_policy(game, sparring)
        return itself + against(bots, bots_of(key), own, sparring_plan)

    def play(
        params: Any, kept: Snapshots | None, index: int, key: jax.Array, meeting_key: jax.Array
    ) -> Batch:
        seating = seatings(params, kept, meeting_key)[index]
        inputs = jax.device_put((seating.seats, jax.random.fold_in(key, index)), replicated)
        quota = own_quota(seating.plan, machine.lanes.size or 1, part_of(machine))
        walked = program(seating.policies, seating.plan)(*inputs)
        return Batch(seating.learners, quota, *walked)

    if rival is not None or has_league:
        return Games(2, play)
    return Games(3 if sparring else 1, play)
