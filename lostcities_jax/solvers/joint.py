"""What several processes of a run do together: one fit over the samples of all of them.

Each process walks its own traversals and keeps its own memories; the networks are the same in
all of them, since every step of a fit takes the gradient of one loss over all their samples.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from lostcities_jax import memory
from lostcities_jax.devices import PROCESS_AXIS, Machine
from lostcities_jax.games.game import Game
from lostcities_jax.memory import Memory


def fit_axis(machine: Machine) -> str | None:
    """The mesh axis that learners sum over; None for a process alone."""
    return None if machine.peers is None else PROCESS_AXIS


def own_share(machine: Machine, total: int) -> int:
    """A process's share of memory slots or of a batch, rounded up."""
    return -(-total // machine.processes)


def new_memory(machine: Machine, game: Game, capacity: int, rows: int = 1) -> Memory:
    """This process's share of an empty memory of `capacity` slots; see `memory.init`."""
    return memory.init(own_share(machine, capacity), game.info_size, game.max_actions, rows)


def own_key(machine: Machine, key: jax.Array) -> jax.Array:
    """A key of this process alone, for what it need not draw as the others do."""
    return key if machine.peers is None else jax.random.fold_in(key, machine.process)


def jit_fit(machine: Machine, fit: Callable) -> Callable:
    """Compiles `(state, memory, weights, key) -> (state, losses)`; donates the state.

    With several processes the state, weights and key are the same in all, and `fit` sums over
    `fit_axis`; arrays come from this process's home, and are left there.
    """
    if machine.peers is None:
        return jax.jit(fit, donate_argnums=0)
    home, peers = machine.home, machine.peers
    shared, own = PartitionSpec(), PartitionSpec(PROCESS_AXIS)
    specs = (shared, own, shared, shared)
    program = jax.jit(
        jax.shard_map(fit, mesh=peers, in_specs=specs, out_specs=shared), donate_argnums=0
    )

    def joined(spec: PartitionSpec, tree: Any) -> Any:
        """This process's arrays as its part of those of all processes."""
        sharding = NamedSharding(peers, spec)

        def join(leaf: jax.Array) -> jax.Array:
            shape = leaf.shape
            if spec == own:
                shape = (machine.processes * shape[0], *shape[1:])
            return jax.make_array_from_single_device_arrays(shape, sharding, [leaf])

        return jax.tree.map(join, jax.device_put(tree, home))

    def run(state: Any, samples: Memory, weights: Any, key: jax.Array) -> Any:
        result = program(*map(joined, specs, (state, samples, weights, key)))
        return jax.tree.map(lambda leaf: leaf.addressable_data(0), result)

    return run
