"""`python -m lostcities_jax.rate`: ratings of a run's checkpoints and bots by a round robin."""

import dataclasses
import sys
from collections.abc import Sequence

import rich.console

from lostcities_jax.cli import RateArguments, parse_rate
from lostcities_jax.compile_cache import use_compile_cache
from lostcities_jax.devices import out_of_memory_named, select_devices
from lostcities_jax.errors import run_command
from lostcities_jax.evaluation.loading import load_field
from lostcities_jax.evaluation.rating import Standings, play_round_robin, rate
from lostcities_jax.evaluation.tables import print_cross, print_ratings, write_json
from lostcities_jax.rules import PRESETS

PROG = "python -m lostcities_jax.rate"


def main(argv: Sequence[str]) -> int:
    """Runs the command; raises UserError for whatever the user can mend."""
    arguments = parse_rate(argv, prog=PROG)
    standings = _play(arguments)
    console = rich.console.Console()
    print_ratings(console, standings)
    if arguments.cross:
        print_cross(console, standings)
    if arguments.json is not None:
        write_json(arguments.json, _record(standings))
    return 0


@out_of_memory_named("--batch-width or --games")
def _play(arguments: RateArguments) -> Standings:
    use_compile_cache()
    mesh = select_devices(arguments.devices)
    wanted = PRESETS[arguments.rules] if arguments.rules else None
    field = (*arguments.agents, *arguments.bots)
    rules, agents = load_field(field, arguments.policy, wanted)
    names = [agent.name for agent in agents]
    pairs = len(agents) * (len(agents) - 1) // 2
    meetings = []
    for meeting in play_round_robin(
        rules,
        agents,
        arguments.games,
        arguments.batch_width,
        arguments.seed,
        arguments.greedy,
        mesh,
    ):
        meetings.append(meeting)
        pair = f"{names[meeting.first]} against {names[meeting.second]}"
        print(f"played {len(meetings)}/{pairs}: {pair}", file=sys.stderr, flush=True)
    return rate(names, meetings, arguments.games)


def _record(standings: Standings) -> dict:
    """Plain values for a file; JSON has no NaN."""
    points = standings.points.tolist()
    for place, row in enumerate(points):
        row[place] = None
    ratings = [dataclasses.asdict(rating) for rating in standings.ratings]
    return {"ratings": ratings, "points": points}


if __name__ == "__main__":
    sys.exit(run_command(main))
