"""`python -m lostcities_jax.evaluate`: matches of a checkpoint or a bot, or checks a recording."""

import dataclasses
import pathlib
import sys
from collections.abc import Sequence

import rich.console

from lostcities_jax.bots import BOTS
from lostcities_jax.cli import EvaluateArguments, parse_evaluate
from lostcities_jax.devices import select_devices
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.evaluation.agents import Agent, Mixture
from lostcities_jax.evaluation.exactness import ExactResult, exact_result
from lostcities_jax.evaluation.loading import load_agents, load_game, load_policy
from lostcities_jax.evaluation.matches import MatchResult, evaluate
from lostcities_jax.evaluation.tables import print_exact, print_results, write_json
from lostcities_jax.exact.tree import build_tree
from lostcities_jax.games.game import Game
from lostcities_jax.recording import ReplayError
from lostcities_jax.replay import verify_file
from lostcities_jax.rules import PRESETS

PROG = "python -m lostcities_jax.evaluate"


def main(argv: Sequence[str]) -> int:
    """Runs the command; raises UserError for whatever the user can mend."""
    arguments = parse_evaluate(argv, prog=PROG)
    if arguments.replay is not None:
        _verify(arguments.replay)
        return 0
    assert arguments.agent is not None
    game = None if arguments.agent in BOTS else load_game(arguments.agent)
    results: list[MatchResult | ExactResult] = []
    if game is not None and game.all_deals is not None:
        results.append(_exact(game, load_policy(arguments.agent, arguments.policy)))
    if game is None or game.rules is not None:
        results += _play(arguments)
    if arguments.json is not None:
        write_json(arguments.json, [dataclasses.asdict(result) for result in results])
    return 0


def _verify(path: pathlib.Path) -> None:
    """Checks recorded games: every move legal, the scores and the end right."""
    try:
        summary = verify_file(path)
    except ReplayError as error:
        raise UserError(str(error)) from error
    print(
        f"{path}: {summary.games} games, {summary.moves} moves: all legal, scores right; "
        f"{summary.finished} finished, {summary.unfinished} not"
    )


def _exact(game: Game, agent: Agent | Mixture) -> ExactResult:
    """Exact figures of an agent in a game that is small enough for them."""
    result = exact_result(build_tree(game), agent)
    print_exact(rich.console.Console(), game.name, [result])
    return result


def _play(arguments: EvaluateArguments) -> list[MatchResult]:
    assert arguments.agent is not None
    select_devices(arguments.devices)
    wanted = PRESETS[arguments.rules] if arguments.rules else None
    names = (arguments.agent, *arguments.against)
    rules, (agent, *opponents) = load_agents(names, arguments.policy, wanted)
    results = []
    for result in evaluate(
        rules, agent, opponents, arguments.games, arguments.batch_width, arguments.seed
    ):
        print(f"played {agent.name} against {result.opponent}", file=sys.stderr, flush=True)
        results.append(result)
    print_results(rich.console.Console(), agent.name, results)
    return results


if __name__ == "__main__":
    sys.exit(run_command(main))
