"""Training of a population: batches of lanes in flight, each of which succeeds or fails alone."""

import functools
from collections.abc import Callable, Sequence

import jax
from jax.sharding import Mesh

from lostcities_jax.assembly import assemble
from lostcities_jax.devices import memory_limit_bytes, one_process, select_devices
from lostcities_jax.errors import UserError, shown
from lostcities_jax.games.catalogue import make_game
from lostcities_jax.population.flight import RATE, RETRIES, Batch, Crew, Outcome, Run, fly, turn_of
from lostcities_jax.population.lanes import make_lanes
from lostcities_jax.population.variants import IN_LANES, Group, differences, group
from lostcities_jax.rivals import as_rival
from lostcities_jax.settings import Config
from lostcities_jax.solvers.catalogue import plays_itself
from lostcities_jax.solvers.feasibility import USABLE, check_settings
from lostcities_jax.solvers.scheduling import check_room


def train_population(
    variants: Sequence[Config],
    limit: int | None = None,
    retries: int = RETRIES,
    keep: Callable[[Outcome], None] = lambda outcome: None,
    note: Callable[[Batch], None] = lambda batch: None,
    announce: Callable[[str], None] = lambda text: None,
) -> list[Outcome]:
    """Trains every variant as a lane; each comes to what it would come to alone.

    A lane is the run that `train` would make of its settings without evaluations and checkpoints
    on the way. Lanes that differ in more than numbers are run in turn, group by group. A lane in
    which something is not finite goes back to the state before that iteration, and tries again
    with a smaller learning rate; the others go on.

    Args:
      variants: settings, one for each lane; `devices` is the first one's.
      limit: lanes in flight at a time; all by default.
      retries: failures of a lane that are mended before it is given up.
      keep: told of every lane as soon as it ends, while the others wait.
      note: told of every batch of lanes when its last has ended.
      announce: told what is being done, in a line.

    Returns:
      what became of each variant, in their order.

    Raises:
      UserError: for no variants, a limit above their number, settings that do not go together
        or do not fit, or a solver that has no lanes.
    """
    _check(variants, limit)
    limit = len(variants) if limit is None else limit
    mesh = select_devices(variants[0].devices)
    outcomes: dict[int, Outcome] = {}

    def keep_outcome(outcome: Outcome) -> None:
        outcomes[outcome.lane] = outcome
        keep(outcome)

    for shared in group(variants):
        crew = _crew(shared, variants, min(limit, len(shared.members)), mesh)
        for first in range(0, len(shared.members), limit):
            members = shared.members[first : first + limit]
            announce(f"{len(members)} of {len(variants)} lanes: compiling and training")
            runs = [Run(lane, variants[lane], retries) for lane in members]
            note(fly(crew, runs, keep_outcome, announce))
    return [outcomes[lane] for lane in range(len(variants))]


def _check(variants: Sequence[Config], limit: int | None) -> None:
    if not variants:
        raise UserError("the number of variants is 0; allowed: at least 1")
    if limit is not None and not 1 <= limit <= len(variants):
        raise UserError(f"limit is {limit}; allowed: 1 to {len(variants)}, the number of lanes")
    for variant in variants:
        if variant.gradient.start_from:
            raise UserError(
                f"gradient.start_from is {shown(variant.gradient.start_from)}; "
                f"allowed in a population: none"
            )
        check_settings(variant, make_game(variant.game, variant.rules))
        if not plays_itself(variant):
            raise UserError(
                "learner.accumulation is reservoir; allowed in a population: bootstrap, or "
                "solver policy_gradient"
            )


def _crew(shared: Group, variants: Sequence[Config], width: int, mesh: Mesh) -> Crew:
    """Builds what trains a group, up to `width` lanes at a time."""
    config = shared.config
    devices = mesh.devices.flat[: min(mesh.size, width)]
    mesh = Mesh(devices, mesh.axis_names)
    game, network, rival, solver = assemble(config, one_process(Mesh(devices[:1], mesh.axis_names)))
    varied = {*differences([variants[member] for member in shared.members])} & {*IN_LANES}
    crew = Crew(
        lanes=make_lanes(config, game, network, mesh, rival and as_rival(rival)),
        slots=-(-width // mesh.size) * mesh.size,
        keys=sorted({*varied, RATE}),
        policy_of=lambda state: solver.split(state)[0],
        check=functools.partial(check_room, config, game),
    )
    _check_memory(crew, Run(0, config, 0), mesh)
    return crew


def _check_memory(crew: Crew, run: Run, mesh: Mesh) -> None:
    """Raises UserError for more lanes in flight than the devices have room for."""
    numbers = turn_of(crew, [run], lambda run: True).numbers
    leaves = jax.tree.leaves(jax.eval_shape(crew.lanes.init, numbers))
    needed = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
    limit = memory_limit_bytes(mesh.devices.flat[0])
    if limit is None:
        return
    usable = USABLE * limit * (1 if mesh.devices.flat[0].platform == "cpu" else mesh.size)
    if needed > usable:
        raise UserError(
            f"{crew.slots} lanes in flight need {needed / 1e9:.1f} GB; allowed: a limit of at most "
            f"{int(usable / needed * crew.slots)}, or a smaller memory.strategy_capacity"
        )
