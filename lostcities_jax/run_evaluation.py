"""Measuring the policies of a run: matches against bots, and exact figures of small games."""

from collections.abc import Callable, Mapping
from typing import Any

from lostcities_jax.evaluation.agents import Agent, Mixture, bot_agent
from lostcities_jax.evaluation.exactness import exact_result
from lostcities_jax.evaluation.matches import evaluate
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
    ):
        """Takes what stays the same; `announce` is told what is being done."""
        self._config, self._game, self._network = config, game, network
        self._log, self._announce = log, announce
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
        settings, results = self._config.evaluation, []
        for name in settings.opponents:
            self._announce(f"evaluation, {name}")
            results += evaluate(
                self._config.rules,
                agent,
                [bot_agent(self._config.rules, name)],
                settings.games,
                self._config.traversal.batch_width,
                self._config.seed,
            )
        values: dict[str, Any] = {}
        for result in results:
            values |= result.metrics(section)
            self._log.write_file(str(result))
        if is_last:
            print_results(self._log.console, agent.name, results)
        return values

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
