"""Which width and devices a configuration runs fastest with, by running its iterations.

A traversal's samples depend on neither, so the choice changes how long a run takes and, but for
rounding, nothing else.
"""

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from lostcities_jax.assembly import assemble
from lostcities_jax.devices import SAME, out_of_memory_named, select_machine, usable_cores
from lostcities_jax.errors import UserError
from lostcities_jax.settings import Config
from lostcities_jax.solvers.scheduling import check_room

_NARROWEST, _WIDEST = 32, 65536
FINALISTS = 3  # settings that are measured again


class Setting(NamedTuple):
    """What is tuned.

    Attributes:
      width: `traversal.batch_width`.
      devices: `devices`.
      walking: `traversal.devices`.
    """

    width: int
    devices: str
    walking: str = SAME


class Timing(NamedTuple):
    """One iteration: seconds of all of it and of its traversals, and the nodes of these."""

    seconds: float
    traversal_seconds: float
    nodes: int


class Tuned(NamedTuple):
    """A setting with its timings; none where it was refused, for a reason."""

    setting: Setting
    timings: list[Timing]
    refusal: str = ""

    @property
    def seconds(self) -> float:
        """The median iteration."""
        return statistics.median(timing.seconds for timing in self.timings)

    @property
    def nodes_per_second(self) -> float:
        """The median rate of the traversals."""
        return statistics.median(one.nodes / one.traversal_seconds for one in self.timings)

    def __str__(self) -> str:
        width, devices, walking = self.setting
        where = devices if walking == SAME else f"{devices}, walking on {walking}"
        found = f"{self.seconds:.3f} s an iteration" if self.timings else self.refusal
        return f"{width} lanes on {where}: {found}"


def widths_to_try(config: Config) -> list[int]:
    """Powers of two; more lanes than traversals would be idle."""
    most = min(max(config.traversal.traversals, _NARROWEST), _WIDEST)
    return [2**k for k in range(most.bit_length()) if _NARROWEST <= 2**k <= most]


def places_to_try() -> list[tuple[str, str]]:
    """`devices` and `traversal.devices` that this machine has."""
    cores = usable_cores()
    counts = sorted({2**k for k in range(cores.bit_length()) if 2**k <= cores} | {cores})
    processors = [(f"cpu:{count}", SAME) for count in counts]
    if jax.default_backend() == "cpu":
        return processors
    return [("auto", SAME), ("auto", f"cpu:{cores}"), processors[-1]]


def with_setting(config: Config, setting: Setting) -> Config:
    """The configuration with a setting."""
    sizes = dataclasses.replace(
        config.traversal, batch_width=setting.width, devices=setting.walking
    )
    return dataclasses.replace(config, devices=setting.devices, traversal=sizes)


def tune(
    settings: Sequence[Setting],
    measure: Callable[[Setting, int], list[Timing]],
    repeats: int,
    announce: Callable[[Tuned], None],
) -> list[Tuned]:
    """Measures every setting once and the best few again; the fastest comes first.

    Args:
      settings: what to try.
      measure: `(setting, iterations) -> timings`; raises UserError for a setting that cannot be.
      repeats: iterations in which each finalist is measured again.
      announce: told of each setting when it has been measured.

    Raises:
      UserError: if none could be measured.
    """
    found, refused = [], []
    for setting in settings:
        one = measured(setting, measure, 1)
        (found if one.timings else refused).append(one)
        announce(one)
    if not found:
        raise UserError(f"no setting can be measured: {refused[0].refusal}")
    found.sort(key=lambda one: one.seconds)
    finalists, others = [], found[FINALISTS:]
    for one in found[:FINALISTS]:
        # What one iteration happened to take says little beside what several did.
        again = measured(one.setting, measure, repeats)
        (finalists if again.timings else refused).append(again)
        announce(again)
    if not finalists and not others:
        raise UserError(f"no setting can be measured: {refused[-1].refusal}")
    return sorted(finalists, key=lambda one: one.seconds) + others + refused


def measured(
    setting: Setting, measure: Callable[[Setting, int], list[Timing]], iterations: int
) -> Tuned:
    """A setting with its timings, or why it has none: no reason to lose those of others.

    `measure` is that of `tune`.
    """
    try:
        return Tuned(setting, measure(setting, iterations))
    except UserError as error:
        return Tuned(setting, [], str(error))


def measure_setting(config: Config, setting: Setting, iterations: int) -> list[Timing]:
    """Timings of iterations of a configuration with a setting, after one that compiles.

    Raises:
      UserError: for a setting that does not go with the configuration, or does not fit.
    """
    config = with_setting(config, setting)
    config = dataclasses.replace(config, iterations=max(config.iterations, iterations + 1))
    machine = select_machine(config.devices, config.traversal.devices)
    game, _, _, solver = assemble(config, machine)
    seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def timed(name: str, title: str) -> Iterator[None]:
        del title
        started = time.perf_counter()
        yield
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - started

    with contextlib.ExitStack() as at_exit:
        at_exit.callback(solver.close)
        at_exit.enter_context(out_of_memory_named("traversal.batch_width"))
        state, timings = solver.init(), []
        for iteration in range(1, iterations + 2):
            seconds.clear()
            started = time.perf_counter()
            state, report = jax.block_until_ready(solver.iterate(state, iteration, timed))
            spent = time.perf_counter() - started
            for batch in report.statistics:
                check_room(config, game, batch, iteration)
            nodes = sum(int(np.sum(batch.nodes)) for batch in report.statistics)
            timings.append(Timing(spent, seconds["traversal"], nodes))
    return timings[1:]
