"""What this machine can do at best, and how much of it a function asks for.

A rate means little by itself: beside every one stands the rate that plain float32 matrix
products, or plain copies, reach on the same devices in the same run.
"""

import functools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.sharding import Mesh, NamedSharding, PartitionSpec

MATMUL_DIM = 512
MATMUL_BATCHES = (256, 512, 1024, 2048, 4096)
_ROWS_PER_PROGRAM = 8192  # of one program on one device, so that its start weighs nothing
COPY_WORDS = 1 << 24
_SECONDS_PER_TIMING = 0.03
_TIMINGS = 3


class Limit:
    """The best rate any of some programs has reached so far.

    Other processes disturb a shared machine, so `measure` is called again and again between
    the runs that are to be compared, and only the best counts.
    """

    def __init__(self, unit: str, programs: Sequence[tuple[float, Callable[[], Any]]]):
        """Takes programs with the work that one call of each does; compiles them."""
        self.unit = unit
        self.best = 0.0
        self._programs = []
        for work, program in programs:
            jax.block_until_ready(program())
            seconds = _seconds_of(program, 1)
            self._programs.append((work, program, math.ceil(_SECONDS_PER_TIMING / seconds)))

    def measure(self) -> float:
        """Runs every program again; the best rate of all calls so far, per second."""
        for work, program, calls in self._programs:
            seconds = min(_seconds_of(program, calls) for _ in range(_TIMINGS))
            self.best = max(self.best, work * calls / seconds)
        return self.best


def matmul_limit(meshes: Iterable[Mesh]) -> Limit:
    """Floating-point operations per second of [b, 512] x [512, 512] float32 products.

    Each mesh runs the products on all its devices at once. One CPU device already uses all
    cores, as XLA does by default.
    """
    programs = []
    for mesh in meshes:
        for batch in MATMUL_BATCHES:
            products = max(_ROWS_PER_PROGRAM // batch, 1)
            work = 2.0 * products * batch * MATMUL_DIM**2 * mesh.size
            programs.append((work, _products(mesh, batch, products)))
    return Limit("FLOP", programs)


def _products(mesh: Mesh, batch: int, products: int) -> Callable[[], jax.Array]:
    (axis,) = mesh.axis_names
    by_device, replicated = PartitionSpec(axis), PartitionSpec()

    def chain(x: jax.Array, w: jax.Array) -> jax.Array:
        for _ in range(products):
            x = x @ w
        return x

    x = jnp.ones((batch * mesh.size, MATMUL_DIM), jnp.float32)
    w = jnp.eye(MATMUL_DIM, dtype=jnp.float32)
    x = jax.device_put(x, NamedSharding(mesh, by_device))
    w = jax.device_put(w, NamedSharding(mesh, replicated))
    return functools.partial(_on_each_device(chain, mesh, (by_device, replicated)), x, w)


def copy_limit(meshes: Iterable[Mesh]) -> Limit:
    """Bytes per second, read and written, of changing a large array in place."""
    words = {mesh: COPY_WORDS - COPY_WORDS % mesh.size for mesh in meshes}
    # Each word is four bytes read and four written.
    return Limit("B", [(8.0 * count, _touches(mesh, count)) for mesh, count in words.items()])


def _touches(mesh: Mesh, words: int) -> Callable[[], jax.Array]:
    (axis,) = mesh.axis_names
    array = jax.device_put(
        jnp.zeros((words,), jnp.uint32), NamedSharding(mesh, PartitionSpec(axis))
    )
    touch = _on_each_device(lambda x: x ^ jnp.uint32(1), mesh, (PartitionSpec(axis),), donate=(0,))
    held = [array]

    def program() -> jax.Array:
        held[0] = touch(held[0])
        return held[0]

    return program


def _on_each_device(
    function: Callable[..., jax.Array],
    mesh: Mesh,
    in_specs: tuple[PartitionSpec, ...],
    donate: tuple[int, ...] = (),
) -> Callable[..., jax.Array]:
    (axis,) = mesh.axis_names
    sharded = jax.shard_map(
        function, mesh=mesh, in_specs=in_specs, out_specs=PartitionSpec(axis), check_vma=False
    )
    return jax.jit(sharded, donate_argnums=donate)


def _seconds_of(program: Callable[[], Any], calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        # One after the other: calls in flight together may end in any order.
        jax.block_until_ready(program())
    return time.perf_counter() - started


def matmul_flops(function: Callable[..., Any], *args: Any) -> int:
    """Floating-point operations of the matrix products a function's outputs need.

    Counts two for each multiply-add, over all nested functions. A scan counts each of its
    steps, a conditional its costliest branch, and a while loop one turn, since how many it
    takes is not known. Products that no output needs are left out, as the compiler does.
    """
    return _jaxpr_flops(jax.make_jaxpr(function)(*args).jaxpr)


def _jaxpr_flops(jaxpr: Jaxpr) -> int:
    needed = {id(variable) for variable in jaxpr.outvars}
    total = 0
    for equation in reversed(jaxpr.eqns):
        if needed.isdisjoint(id(variable) for variable in equation.outvars):
            continue
        needed.update(id(variable) for variable in equation.invars)
        total += _equation_flops(equation)
    return total


def _equation_flops(equation: Any) -> int:
    if equation.primitive.name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        shape = equation.invars[0].aval.shape
        depth = math.prod(shape[axis] for axis in contracted)
        return 2 * math.prod(equation.outvars[0].aval.shape) * depth
    parts = [_jaxpr_flops(inner) for inner in _inner_jaxprs(equation.params)]
    if equation.primitive.name == "cond":
        return max(parts, default=0)
    return sum(parts) * (equation.params["length"] if equation.primitive.name == "scan" else 1)


def _inner_jaxprs(params: dict[str, Any]) -> list[Jaxpr]:
    values = []
    for value in params.values():
        values += value if isinstance(value, list | tuple) else [value]
    inner = [value.jaxpr if isinstance(value, ClosedJaxpr) else value for value in values]
    return [value for value in inner if isinstance(value, Jaxpr)]
