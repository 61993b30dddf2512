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
    """The share of each of `num_devices`; raises ValueError if the width does not divide."""
    if plan.width % num_devices:
        raise ValueError(
            f"batch_width is {plan.width}; allowed: a multiple of the {num_devices} devices"
        )
    return dataclasses.replace(
        plan, width=plan.width // num_devices, quota=-(-plan.quota // num_devices)
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
    `plan` is that of all processes, `mesh` has the devices of this one.
    """
    (axis,) = mesh.axis_names
    share = device_plan(plan, mesh.size * part.processes)

    def on_device(seats: tuple[Seat, Seat], key: jax.Array) -> tuple[Tape, Summary]:
        device = part.process * mesh.size + jax.lax.axis_index(axis).astype(jnp.int32)
        first = device * share.quota
        count = jnp.clip(plan.quota - first, 0, share.quota)
        tape, summary = traverse(game, policies, share, seats, key, first, count)
        tape = tape._replace(length=tape.length[None])
        return tape, summary._replace(
            fallbacks=summary.fallbacks[None], overflows=summary.overflows[None]
        )

    by_lane, by_device = PartitionSpec(None, axis), PartitionSpec(axis)
    return jax.jit(
        jax.shard_map(
            on_device,
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


def shards(tape: Tape, summary: Summary, device: Any) -> Iterator[tuple[Tape, Summary]]:
    """Each device's tape and summary in turn, moved to `device`, as `traverse` returned them."""
    for index in range(len(tape.length.addressable_shards)):
        tape_shard, summary_shard = jax.device_put(
            jax.tree.map(lambda leaf, i=index: leaf.addressable_shards[i].data, (tape, summary)),
            device,
        )
        yield (
            tape_shard._replace(length=tape_shard.length[0]),
            summary_shard._replace(
                fallbacks=summary_shard.fallbacks[0], overflows=summary_shard.overflows[0]
            ),
        )
