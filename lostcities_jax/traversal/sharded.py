"""A traversal batch spread over devices: each runs its own lanes and share of the quota.

`jax.shard_map` without collectives in the loop, so no device waits for another's lanes.
(`jax.pmap` would do the same; it is in maintenance and is itself built on `shard_map`.)
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lostcities_jax.games.game import Game
from lostcities_jax.traversal.lockstep import Seat, Summary, TraversalPolicy, traverse
from lostcities_jax.traversal.plan import Plan
from lostcities_jax.traversal.tape import Tape

_T = TypeVar("_T")
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
    return jax.jit(
        jax.shard_map(
            lambda seats, key: on_device(seats, key, jax.lax.axis_index(axis)),
            mesh=mesh,
            in_specs=(PartitionSpec(), PartitionSpec()),
            out_specs=(_tape_specs(axis), PartitionSpec(axis)),
            check_vma=False,
        )
    )


def sharded_sweep(sweep: Callable[[Tape, Any], _T], mesh: Mesh) -> Callable[[Tape, Any], _T]:
    """Builds `(tape, params) -> rows` over the mesh that `sharded_traverse` was given.

    Every device makes rows of its own tape by `sweep`, beside the others and in one program: one
    for each device would be compiled for each. Arrays of the rows are [T, B, ...] and sharded as
    the tape's; params go to all devices.
    """

    def on_device(tape: Tape, params: Any) -> _T:
        return sweep(_without_devices(tape), params)

    if mesh.empty:
        return on_device
    (axis,) = mesh.axis_names
    everywhere = PartitionSpec()
    program = jax.jit(
        jax.shard_map(
            on_device,
            mesh=mesh,
            in_specs=(_tape_specs(axis), everywhere),
            out_specs=PartitionSpec(None, axis),
            check_vma=False,
        )
    )
    return lambda tape, params: program(
        tape, jax.device_put(params, NamedSharding(mesh, everywhere))
    )


def own_quota(plan: Plan, num_devices: int, part: Part) -> int:
    """Traversals of a plan that fall to one process of `num_devices` devices each."""
    each = num_devices * device_plan(plan, num_devices * part.processes).quota
    return min(max(plan.quota - part.process * each, 0), each)


def shards(tree: _T, mesh: Mesh) -> Iterator[_T]:
    """Each device's part of what it made, in turn and where it is.

    `mesh` is the one that `sharded_traverse` was given. Scalars keep their axis of devices, see
    `without_devices`: to index them here would take a program for each device.
    """
    if mesh.empty:
        yield tree
        return
    leaves, structure = jax.tree.flatten(tree)
    parts = [[shard.data for shard in leaf.addressable_shards] for leaf in leaves]
    for of_device in zip(*parts, strict=True):
        yield jax.tree.unflatten(structure, of_device)


def without_devices(tape: Tape, summary: Summary) -> tuple[Tape, Summary]:
    """One device's tape and summary as `traverse` returned them."""
    return _without_devices(tape), summary._replace(
        fallbacks=summary.fallbacks[0], overflows=summary.overflows[0]
    )


def _without_devices(tape: Tape) -> Tape:
    return tape._replace(length=tape.length[0])


def _with_devices(tape: Tape, summary: Summary) -> tuple[Tape, Summary]:
    """Scalars with a leading axis, of which each device fills one entry."""
    return tape._replace(length=tape.length[None]), summary._replace(
        fallbacks=summary.fallbacks[None], overflows=summary.overflows[None]
    )


def _tape_specs(axis: str) -> Tape:
    by_lane = PartitionSpec(None, axis)
    return Tape(by_lane, by_lane, PartitionSpec(axis))  # pyright: ignore
