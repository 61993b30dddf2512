"""`python -m lostcities_jax.population.evolve`: searches a bot, or settings, by rounds."""

import contextlib
import dataclasses
import functools
import json
import math
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import jax
import numpy as np
import tyro
from jax.sharding import Mesh

from lostcities_jax.bots import BOTS, BotParams
from lostcities_jax.compile_cache import use_compile_cache
from lostcities_jax.config import config_keys, config_value, find_config, load_config, with_values
from lostcities_jax.devices import select_devices
from lostcities_jax.errors import UserError, nearest, run_command, shown
from lostcities_jax.evaluation.agents import bot_agent
from lostcities_jax.evaluation.matches import play_pair
from lostcities_jax.flags import help_if_asked, read_flags
from lostcities_jax.population import records
from lostcities_jax.population.arguments import check_opponents
from lostcities_jax.population.bot_lanes import measure_bots, mutate_bot
from lostcities_jax.population.evolution import Round, Score, evolve, failures_by_lane
from lostcities_jax.population.revisions import Registry
from lostcities_jax.population.training import train_population
from lostcities_jax.population.variants import IN_LANES, full_key
from lostcities_jax.rivals import with_pinned_rival
from lostcities_jax.run_state import metadata_of
from lostcities_jax.settings import Config, Opponent

PROG = "python -m lostcities_jax.population.evolve"
_T = TypeVar("_T")
_MOST_SPREAD = 10.0  # from here on hardly any mutation of a setting is allowed
_NUMBERS = tuple(key for key in IN_LANES if config_keys()[key] is float)


@dataclasses.dataclass(frozen=True)
class EvolveArguments:
    """Search the numbers of a bot, or settings of training, by mutation and selection.

    Every lane plays evaluation.games against each bot of evaluation.opponents, all lanes of a
    round on the same deals. Networks that were trained are kept as revisions, whose parent is
    the one they are mutations of.

    Attributes:
      registry: folder of the records and revisions.
      config: YAML file of settings, or the name of a shipped one.
      mutate: settings to search, such as learning_rate; without any, a bot is searched.
      bot: the bot to start from.
      rounds: how often lanes are measured and selected.
      lanes: of a round.
      survivors: lanes that go on to the next round.
      spread: standard deviation of a mutation, as a share of the value.
    """

    registry: Annotated[pathlib.Path, tyro.conf.Positional] = pathlib.Path("evolution")
    config: Annotated[pathlib.Path | None, tyro.conf.arg(metavar="FILE")] = None
    mutate: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SETTING ...")] = ()
    bot: Opponent = "expert"
    rounds: int = 5
    lanes: int = 16
    survivors: int = 4
    spread: float = 0.2
    settings: Annotated[Config, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Config)


@dataclasses.dataclass(frozen=True)
class Candidate:
    """Settings to train by, and the revision they are a mutation of.

    Attributes:
      config: the settings.
      parent: id of that revision; None in the first round.
    """

    config: Config
    parent: str | None = None


def parse_evolve(argv: Sequence[str], prog: str) -> EvolveArguments:
    """Parse the evolve command's flags; `--help` prints them and exits with 0.

    Raises:
      UserError: for an unknown flag, a missing value or a value that is not allowed.
    """
    help_if_asked(argv, prog, EvolveArguments())
    own = {"registry": str, "config": str, "mutate": tuple[str, ...], "bot": str}
    own |= {"rounds": int, "lanes": int, "survivors": int, "spread": float}
    given = read_flags(argv, own | config_keys(), positional="registry")
    asked = {key: given.pop(key) for key in own if key in given}
    for key in ("rounds", "lanes", "survivors"):
        value = asked.get(key, 1)
        if type(value) is not int or value < 1:
            raise UserError(f"{key} is {shown(value)}; allowed: a whole number from 1")
    spread = asked.get("spread", 1.0)
    if isinstance(spread, bool | str) or not 0 < spread <= _MOST_SPREAD:
        raise UserError(
            f"spread is {shown(spread)}; allowed: a number above 0, at most {_MOST_SPREAD:g}"
        )
    bot = asked.get("bot", "random")
    if bot not in BOTS:
        raise UserError(f"bot is {shown(bot)}; allowed: {', '.join(BOTS)}{nearest(bot, BOTS)}")
    if "registry" not in asked:
        raise UserError("the value of REGISTRY is missing; allowed: a folder")
    asked["mutate"] = tuple(full_key(name) for name in asked.get("mutate", ()))
    for key in asked["mutate"]:
        if key not in _NUMBERS:
            raise UserError(f"mutate is {key}; allowed: {', '.join(_NUMBERS)}")
    path = asked.pop("config", None)
    base = Config() if path is None else load_config(find_config(path))
    asked["registry"] = pathlib.Path(asked["registry"])
    arguments = EvolveArguments(settings=with_values(base, given), **asked)
    check_opponents(arguments.settings, "a search")
    for key in arguments.mutate:
        if config_value(arguments.settings, key) == 0:
            raise UserError(f"{key} is 0, which no factor changes; allowed to mutate: above 0")
    return arguments


def main(argv: Sequence[str]) -> int:
    """Runs the command; raises UserError for whatever the user can mend."""
    arguments = parse_evolve(argv, prog=PROG)
    if arguments.settings.game != "lost_cities":
        raise UserError(f"game is {arguments.settings.game}; allowed: lost_cities, as bots play it")
    records.append(arguments.registry)  # found out now, and not after the first round
    use_compile_cache()
    mesh = select_devices(arguments.settings.devices)
    if arguments.mutate:
        _evolve_networks(arguments, mesh)
    else:
        _evolve_bot(arguments, mesh)
    return 0


def _evolve_bot(arguments: EvolveArguments, mesh: Mesh) -> None:
    settings = arguments.settings

    def measure(bots: Sequence[BotParams], number: int) -> list[Score]:
        return measure_bots(
            settings.rules,
            bots,
            settings.evaluation.opponents,
            settings.evaluation.games,
            settings.traversal.batch_width,
            seed_of_round(settings.seed, number),
            mesh,
        )

    def plain(bot: BotParams) -> dict[str, float]:
        return {name: float(value) for name, value in bot.judgement._asdict().items()}

    mutate = functools.partial(mutate_bot, spread=arguments.spread)
    _search(arguments, BOTS[arguments.bot], mutate, measure, plain)


def _evolve_networks(arguments: EvolveArguments, mesh: Mesh) -> None:
    registry, settings = Registry(arguments.registry), with_pinned_rival(arguments.settings)
    trained: dict[Config, str] = {}

    def mutate(candidate: Candidate, random: np.random.Generator) -> Candidate:
        parent = trained.get(candidate.config)
        changed = mutate_config(candidate.config, arguments.mutate, arguments.spread, random)
        return Candidate(changed, parent)

    def measure(candidates: Sequence[Candidate], number: int) -> list[Score]:
        new = [one for one in candidates if one.config not in trained]
        outcomes = train_population([one.config for one in new], announce=_say) if new else []
        failures = {}
        for candidate, outcome in zip(new, outcomes, strict=True):
            if outcome.policy is None:
                failures[outcome.config] = Score(math.nan, math.nan, outcome.failures[-1].cause)
                continue
            metadata = metadata_of(outcome.config, outcome.policy)
            trained[outcome.config], _ = registry.register(
                outcome.policy, metadata, outcome.config, outcome.metrics, candidate.parent
            )
        return [
            failures.get(config)
            or measure_revision(
                registry, trained[config], settings, seed_of_round(settings.seed, number), mesh
            )
            for config in (one.config for one in candidates)
        ]

    def plain(candidate: Candidate) -> dict[str, Any]:
        values = {key: config_value(candidate.config, key) for key in arguments.mutate}
        return values | {"revision": trained.get(candidate.config), "parent": candidate.parent}

    _search(arguments, Candidate(settings), mutate, measure, plain)


def mutate_config(
    config: Config, keys: Sequence[str], spread: float, random: np.random.Generator
) -> Config:
    """The config with each of some numbers times e to a normal of standard deviation `spread`.

    Values that are not allowed are drawn again; those near the config's own always are.
    """
    while True:
        factors = np.exp(spread * random.normal(size=len(keys))).tolist()
        pairs = zip(keys, factors, strict=True)
        with contextlib.suppress(UserError):
            return with_values(config, {key: config_value(config, key) * f for key, f in pairs})


def seed_of_round(seed: int, number: int) -> int:
    """The seed of a round's deals: of its own, whatever the search's, and allowed as that is."""
    key = jax.random.fold_in(jax.random.key(seed), number)
    return int(jax.random.randint(key, (), 0, 2**31 - 1))


def measure_revision(
    registry: Registry, name: str, settings: Config, seed: int, mesh: Mesh
) -> Score:
    """Mean points of a revision, greedy, against the bots of `evaluation.opponents`."""
    agent, rules = registry.load(name).agent(), settings.rules
    results = [
        play_pair(
            rules,
            agent,
            bot_agent(rules, bot),
            settings.evaluation.games,
            settings.traversal.batch_width,
            seed,
            greedy=True,
            mesh=mesh,
        )
        for bot in settings.evaluation.opponents
    ]
    points = float(np.mean([result.score_difference for result in results]))
    # Every match is on the same deals, so errors may add up and not cancel.
    error = float(np.mean([result.score_difference_error for result in results]))
    return Score(points, error)


def _search(
    arguments: EvolveArguments,
    start: _T,
    mutate: Callable[[_T, np.random.Generator], _T],
    measure: Callable[[Sequence[_T], int], list[Score]],
    plain: Callable[[_T], dict[str, Any]],
) -> None:
    """Runs a search; says and records each round, and in the end who failed."""

    def told(number: int, one: Round[_T]) -> None:
        lines = [
            {
                "kind": "search",
                "round": number,
                "lane": lane,
                "survives": lane in one.survivors,
                "points": None if math.isnan(score.points) else score.points,
                "error": None if math.isnan(score.error) else score.error,
                "failure": score.failure,
                "values": plain(one.lanes[lane]),
            }
            for lane, score in enumerate(one.scores)
        ]
        records.append(arguments.registry, *lines)
        best = one.scores[one.survivors[0]]
        failed = sum(score.failure is not None for score in one.scores)
        _say(
            f"round {number}: best lane {one.survivors[0]}, {best.points:+.1f} ± {best.error:.1f} "
            f"points a game, {failed} of {len(one.lanes)} lanes failed"
        )

    rounds = evolve(
        start,
        mutate,
        measure,
        arguments.rounds,
        arguments.lanes,
        arguments.survivors,
        arguments.settings.seed,
        told,
    )
    last = rounds[-1]
    _report(arguments.registry, rounds, plain(last.lanes[last.survivors[0]]))


def _report(registry: pathlib.Path, rounds: Sequence[Round], best: Mapping[str, Any]) -> None:
    for lane, causes in failures_by_lane(rounds).items():
        print(f"lane {lane} failed in {'; '.join(causes)}")
    print(f"best: {json.dumps(best)}")
    print(f"records in {registry / records.FILE}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(run_command(main))
