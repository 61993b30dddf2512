"""Measuring the policies of a run: matches against bots, and exact figures of small games."""

from collections.abc import Callable, Mapping
from typing import Any

from lostcities_jax.devices import select_devices
from lostcities_jax.evaluation.agents import Agent, Mixture, bot_agent
from lostcities_jax.evaluation.exactness import exact_result
from lostcities_jax.evaluation.matches import MatchResult, evaluate
from lostcities_jax.evaluation.strategies import strategies
from lostcities_jax.evaluation.tables import print_exact, print_results
from lostcities_jax.exact.tree import GameTree, build_tree
from lostcities_jax.games.game import Game
from lostcities_jax.networks import Network
from lostcities_jax.settings import Config
from lostcities_jax.tracking import RunLog

_SECTIONS = {"average": "eval", "iterates": "eval_iterates", "current": "eval_current"}


class RunEvaluation:
    """Evaluates a run's policies; keeps the tree of a small game from one time to the next."""

    def __init__(
        self,
        config: Config,
        game: Game,
        network: Network,
        log: RunLog,
        announce: Callable[[str], None],
        rival: Agent | None = None,
    ):
        """Takes what stays the same; `announce` is told what is being done. A rival is met
        beside the bots."""
        self._config, self._game, self._network = config, game, network
        self._log, self._announce, self._rival = log, announce, rival
        self._mesh = select_devices(config.devices)
        self._tree: GameTree | None = None

    def measure(self, policy: Mapping[str, Any], is_last: bool) -> Mapping[str, float]:
        """Metrics of a solver's policy; the last evaluation is shown as tables."""
        values: dict[str, float] = {}
        weighting, fallback = self._config.learner.weighting, self._config.traversal.fallback
        found = strategies(self._network, policy, weighting, fallback)
        agents = {_SECTIONS[name]: agent for name, agent in found.items()}
        if self._game.rules is not None:
            for section, agent in agents.items():
                values |= self._matches(section, agent, is_last)
        if self._game.all_deals is not None:
            values |= self._exact(agents, is_last)
        return values

    def _matches(self, section: str, agent: Agent | Mixture, is_last: bool) -> dict[str, Any]:
        settings, rules, results = self._config.evaluation, self._config.rules, []
        opponents = [bot_agent(rules, name) for name in settings.opponents]
        if self._rival is not None:
            opponents.append(self._rival)
        for opponent in opponents:
            self._announce(f"evaluation, {opponent.name}")
            results += evaluate(
                rules,
                agent,
                [opponent],
                settings.games,
                self._config.traversal.batch_width,
                self._config.seed,
                self._mesh,
            )
        values: dict[str, Any] = {}
        for result in results:
            values |= result.metrics(section)
            self._log.write_file(str(result))
        if is_last and results:
            print_results(self._log.console, agent.name, results)
            self._say_gain(results)
        return values

    def _say_gain(self, results: list[MatchResult]) -> None:
        """What an exploiter comes to; both seats of every deal make the fair value 0.

        That is greedy, always: the better of two measurements would be above what either way of
        playing comes to, and so no lower bound. (What has no choice was measured once.)
        """
        if self._rival is None:
            return
        met = [result for result in results if result.opponent == self._rival.name]
        one = next((result for result in met if result.greedy), met[0])
        self._log.write(
            f"gains {one.score_difference:+.2f} ± {one.score_difference_error:.2f} points a "
            f"game against {one.opponent}: a lower bound of its exploitability"
        )

    def _exact(self, agents: Mapping[str, Agent | Mixture], is_last: bool) -> dict[str, float]:
        self._announce("exact evaluation")
        self._tree = self._tree or build_tree(self._game)
        values, results = {}, []
        for section, agent in agents.items():
            result = exact_result(self._tree, agent)
            values |= result.metrics(section)
            self._log.write_file(str(result))
            results.append(result)
        if is_last:
            print_exact(self._log.console, self._game.name, results)
        return values
