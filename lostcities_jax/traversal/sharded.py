"""A traversal batch spread over devices: each runs its own lanes and share of the quota.

`jax.shard_map` without collectives in the loop, so no device waits for another's lanes.
(`jax.pmap` would do the same; it is in maintenance and is itself built on `shard_map`.)
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from lostcities_jax.games.game import Game
from lostcities_jax.traversal.lockstep import Seat, Summary, TraversalPolicy, traverse
from lostcities_jax.traversal.plan import Plan
from lostcities_jax.traversal.tape import Tape

Traverse = Callable[[tuple[Seat, Seat], jax.Array], tuple[Tape, Summary]]


class Part(NamedTuple):
    """Which of several processes this is; together they are as one with all their devices."""

    process: int = 0
    processes: int = 1


WHOLE = Part()


def device_plan(plan: Plan, num_devices: int) -> Plan:
    """The share of each of `num_devices`: of lanes and of traversals, both rounded up.

    So all devices run one program, and together some more lanes than the width where they do not
    divide it; no sample depends on how many there are.
    """
    return dataclasses.replace(
        plan, width=-(-plan.width // num_devices), quota=-(-plan.quota // num_devices)
    )


def sharded_traverse(
    game: Game,
    policies: tuple[TraversalPolicy, TraversalPolicy],
    plan: Plan,
    mesh: Mesh,
    part: Part = WHOLE,
) -> Traverse:
    """Builds `(seats, key) -> (tape, summary)` over a one-dimensional mesh of lanes.

    Every device has its own tape and summary, sharded along the lane axis and the
    traversals; their scalars gain a leading axis of devices. A device's traversals are a
    contiguous range of indices, so that reading the shards in order reads them in order.
    `plan` is that of all processes, `mesh` has the devices of this one; if it is empty, the
    traversal is part of whatever program it is called in.
    """
    devices = 1 if mesh.empty else mesh.size
    share = device_plan(plan, devices * part.processes)

    def on_device(seats: tuple[Seat, Seat], key: jax.Array, index: Any) -> tuple[Tape, Summary]:
        first = (part.process * devices + jnp.int32(index)) * share.quota
        count = jnp.clip(plan.quota - first, 0, share.quota)
        tape, summary = traverse(game, policies, share, seats, key, first, count)
        return _with_devices(tape, summary)

    if mesh.empty:
        return lambda seats, key: on_device(seats, key, 0)
    (axis,) = mesh.axis_names
    by_lane, by_device = PartitionSpec(None, axis), PartitionSpec(axis)
    return jax.jit(
        jax.shard_map(
            lambda seats, key: on_device(seats, key, jax.lax.axis_index(axis)),
            mesh=mesh,
            in_specs=(PartitionSpec(), PartitionSpec()),
            out_specs=(Tape(by_lane, by_lane, by_device), by_device),  # pyright: ignore
            check_vma=False,
        )
    )


def own_quota(plan: Plan, num_devices: int, part: Part) -> int:
    """Traversals of a plan that fall to one process of `num_devices` devices each."""
    each = num_devices * device_plan(plan, num_devices * part.processes).quota
    return min(max(plan.quota - part.process * each, 0), each)


def shards(tape: Tape, summary: Summary, mesh: Mesh) -> Iterator[tuple[Tape, Summary]]:
    """Each device's tape and summary in turn, where they are, as `traverse` returned them.

    `mesh` is the one that `sharded_traverse` was given.
    """
    if mesh.empty:
        yield _without_devices(tape, summary)
        return
    for index in range(len(tape.length.addressable_shards)):
        of_device = jax.tree.map(
            lambda leaf, i=index: leaf.addressable_shards[i].data, (tape, summary)
        )
        yield _without_devices(*of_device)


def _with_devices(tape: Tape, summary: Summary) -> tuple[Tape, Summary]:
    """Scalars with a leading axis, of which each device fills one entry."""
    return tape._replace(length=tape.length[None]), summary._replace(
        fallbacks=summary.fallbacks[None], overflows=summary.overflows[None]
    )


def _without_devices(tape: Tape, summary: Summary) -> tuple[Tape, Summary]:
    return tape._replace(length=tape.length[0]), summary._replace(
        fallbacks=summary.fallbacks[0], overflows=summary.overflows[0]
    )
