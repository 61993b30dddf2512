"""`python -m lostcities_jax.evaluate`: matches of a checkpoint or a bot, or checks a recording."""

import dataclasses
import pathlib
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import rich.console
from jax.sharding import Mesh

from lostcities_jax.bots import BOTS
from lostcities_jax.cli import EvaluateArguments, parse_evaluate
from lostcities_jax.compile_cache import use_compile_cache
from lostcities_jax.compile_clock import CompileClock
from lostcities_jax.config import config_keys
from lostcities_jax.devices import out_of_memory_named, select_devices
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.evaluation.agents import Agent, Mixture
from lostcities_jax.evaluation.exactness import exact_result
from lostcities_jax.evaluation.loading import load_agents, load_game, load_policy
from lostcities_jax.evaluation.matches import MatchResult, evaluate
from lostcities_jax.evaluation.search import search_agent
from lostcities_jax.evaluation.tables import print_exact, print_results, write_json
from lostcities_jax.exact.tree import build_tree
from lostcities_jax.flags import read_flags, refuse_idle
from lostcities_jax.games.game import Game
from lostcities_jax.recording import ReplayError
from lostcities_jax.replay import verify_file
from lostcities_jax.rules import PRESETS, Rules

PROG = "python -m lostcities_jax.evaluate"
_WITHOUT_MATCHES = ("agent", "policy", "json")  # what asks something of exact figures too


def main(argv: Sequence[str]) -> int:
    """Runs the command; raises UserError for whatever the user can mend."""
    arguments = parse_evaluate(argv, prog=PROG)
    if arguments.replay is not None:
        _verify(arguments.replay)
        return 0
    assert arguments.agent is not None
    use_compile_cache()
    mesh = select_devices(arguments.devices)  # before anything is computed, or it has no effect
    game = None if arguments.agent in BOTS else load_game(arguments.agent)
    if game is not None and game.rules is None:
        _refuse_matches(argv, game.name)
        records = [_exact(game, load_policy(arguments.agent, arguments.policy))]
    else:
        records = _measure(arguments, game, mesh)
    if arguments.json is not None:
        write_json(arguments.json, records)
    return 0


def _refuse_matches(argv: Sequence[str], game: str) -> None:
    """Refuses what is said of matches for a game that is measured without any."""
    kinds = config_keys(EvaluateArguments)
    given = read_flags(argv, kinds, positional="agent")
    idle = [key for key in kinds if key not in _WITHOUT_MATCHES]
    refuse_idle(given, idle, f"with a checkpoint of {game}", "with one of Lost Cities")


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


def _as_asked(agent: Agent | Mixture, rules: Rules, asked: EvaluateArguments) -> Agent | Mixture:
    """The agent, with the search that was asked for."""
    if not asked.search.worlds:
        return agent
    if isinstance(agent, Mixture):
        raise UserError("policy is 'iterates'; allowed with search.worlds: average, current")
    return search_agent(rules, agent, asked.search, asked.batch_width, asked.seed)


def _exact(game: Game, agent: Agent | Mixture) -> dict[str, Any]:
    """Exact figures of an agent in a game that is small enough for them."""
    result = exact_result(build_tree(game), agent)
    print_exact(rich.console.Console(), game.name, [result])
    return dataclasses.asdict(result)


@out_of_memory_named("--batch-width or --games")
def _measure(arguments: EvaluateArguments, game: Game | None, mesh: Mesh) -> list[dict[str, Any]]:
    """What there is to say of an agent in Lost Cities; `game` is that of a checkpoint."""
    assert arguments.agent is not None
    wanted = PRESETS[arguments.rules] if arguments.rules else None
    names = (arguments.agent, *arguments.against)
    rules, (agent, *opponents) = load_agents(names, arguments.policy, wanted)
    agent = _as_asked(agent, rules, arguments)
    exact = [] if game is None or game.all_deals is None else [_exact(game, agent)]
    return exact + _play(arguments, mesh, rules, agent, opponents)


def _play(
    arguments: EvaluateArguments,
    mesh: Mesh,
    rules: Rules,
    agent: Agent | Mixture,
    opponents: Sequence[Agent | Mixture],
) -> list[dict[str, Any]]:
    """Matches of an agent."""
    results, costs = [], []
    width, seed = arguments.batch_width, arguments.seed
    for result, seconds in _timed(
        evaluate(rules, agent, opponents, arguments.games, width, seed, mesh)
    ):
        print(f"played {agent.name} against {result.opponent}", file=sys.stderr, flush=True)
        results.append(result)
        costs.append(1000 * seconds / result.decisions)
    print_results(rich.console.Console(), agent.name, results)
    if not arguments.search.worlds:
        return [dataclasses.asdict(result) for result in results]
    print(f"milliseconds a decision, row by row: {', '.join(f'{cost:.3g}' for cost in costs)}")
    return [
        dataclasses.asdict(result) | {"milliseconds_per_decision": cost}
        for result, cost in zip(results, costs, strict=True)
    ]


def _timed(matches: Iterable[MatchResult]) -> Iterator[tuple[MatchResult, float]]:
    """Results with the seconds that each took, without compiling."""
    clock = CompileClock()
    started, compiled = time.perf_counter(), clock.seconds
    for result in matches:
        yield result, time.perf_counter() - started - (clock.seconds - compiled)
        started, compiled = time.perf_counter(), clock.seconds


if __name__ == "__main__":
    sys.exit(run_command(main))
