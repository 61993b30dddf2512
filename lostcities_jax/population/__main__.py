"""`python -m lostcities_jax.population`: trains variants, keeps and rates them, activates one."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import rich.console

from lostcities_jax.compile_cache import use_compile_cache
from lostcities_jax.devices import out_of_memory_named, select_devices
from lostcities_jax.errors import run_command
from lostcities_jax.evaluation.tables import print_ratings
from lostcities_jax.population import records
from lostcities_jax.population.arguments import BEST, PopulationArguments, parse_population
from lostcities_jax.population.flight import Batch, Outcome
from lostcities_jax.population.revisions import Registry
from lostcities_jax.population.tournament import best_revision, play_tournament
from lostcities_jax.population.training import train_population
from lostcities_jax.population.variants import differences, expand
from lostcities_jax.rivals import with_pinned_rival
from lostcities_jax.run_state import metadata_of

PROG = "python -m lostcities_jax.population"


def main(argv: Sequence[str]) -> int:
    """Runs the command; raises UserError for whatever the user can mend."""
    arguments = parse_population(argv, prog=PROG)
    registry = Registry(arguments.registry)
    if arguments.rollback:
        print(f"{registry.rollback()} is in use again")
        return 0
    _check(registry, arguments)
    use_compile_cache()
    mesh = select_devices(arguments.settings.devices)
    if arguments.vary:
        _train(registry, arguments)
    wanted = arguments.activate
    if arguments.plays_tournament:
        standings = play_tournament(
            registry,
            arguments.settings.evaluation,
            arguments.settings.traversal.batch_width,
            arguments.settings.seed,
            lambda pair: _say(f"played {pair}"),
            mesh,
        )
        print_ratings(rich.console.Console(), standings)
        wanted = best_revision(standings, registry.ids()) if wanted == BEST else None
    if wanted is not None:
        registry.activate(wanted)
        print(f"{wanted} is in use")
    return 0


def _check(registry: Registry, arguments: PopulationArguments) -> None:
    """Finds before the training what would be in vain after it."""
    if arguments.activate not in (None, BEST):
        registry.check_known(arguments.activate)
    if arguments.vary:
        registry.check_writable()
        records.append(registry.path)


def _train(registry: Registry, arguments: PopulationArguments) -> None:
    """Trains a lane for each variant, and registers each that ends well."""
    variants = [with_pinned_rival(one) for one in expand(arguments.settings, arguments.vary)]
    columns = differences(variants)
    ends: list[str] = []

    def keep(outcome: Outcome) -> None:
        settings = {key: column[outcome.lane] for key, column in columns.items()}
        *failures, lane = _register(registry, outcome, settings)
        records.append(registry.path, *failures, lane)
        ends.append(lane["outcome"])
        cause = f" since {failures[-1]['cause']}" if lane["revision"] is None else ""
        undone = f", {len(failures)} steps undone" if failures else ""
        said = " ".join(f"{key}={value}" for key, value in settings.items())
        _say(f"lane {outcome.lane} ({said}): {ends[-1]} {lane['revision'] or cause}{undone}")

    def note(batch: Batch) -> None:
        records.append(registry.path, records.batch_record(batch))

    with out_of_memory_named("--limit, traversal.batch_width or memory.strategy_capacity"):
        train_population(variants, arguments.limit, arguments.retries, keep, note, _say)
    counts = ", ".join(f"{ends.count(end)} {end}" for end in records.ENDS)
    print(f"{len(variants)} lanes: {counts}; records in {registry.path / records.FILE}")


def _register(
    registry: Registry, outcome: Outcome, settings: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Keeps what a lane came to; returns the records of its failures, and its own."""
    revision, is_duplicate = None, False
    if outcome.policy is not None:
        metadata = metadata_of(outcome.config, outcome.policy)
        revision, is_duplicate = registry.register(
            outcome.policy, metadata, outcome.config, outcome.metrics
        )
    return records.lane_records(outcome, settings, revision, is_duplicate)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(run_command(main))
