"""The agents to play against, compiled for one game at a time."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from lostcities_jax.bots import BOTS
from lostcities_jax.evaluation.agents import Agent, Mixture
from lostcities_jax.evaluation.decisions import action_probabilities
from lostcities_jax.evaluation.loading import load_agents
from lostcities_jax.play.match import Round, position, start_match
from lostcities_jax.reference import Game
from lostcities_jax.rules import CARD_PHASE, DRAW_PHASE, Rules


class Opponents(NamedTuple):
    """Everybody who may be played against.

    Attributes:
      rules: the rules that all of them play by.
      agents: by name; the first one is the default.
    """

    rules: Rules
    agents: Mapping[str, Agent | Mixture]


def load_opponents(name: str, policy: str | None, rules: Rules | None) -> Opponents:
    """The agent of a name and all bots.

    Args:
      name: name of a bot, or path of a checkpoint.
      policy: "average", "iterates" or "current": which strategy a checkpoint plays.
      rules: the rules asked for; None for the checkpoint's own, or CLASSIC without one.

    Raises:
      UserError: for a name that is neither, or a checkpoint that cannot be played.
    """
    names = list(dict.fromkeys([name, *BOTS]))
    rules, agents = load_agents(names, policy, rules)
    return Opponents(rules, dict(zip(names, agents, strict=True)))


def compile_policies(opponents: Opponents) -> None:
    """Runs every policy once in both phases, so that no move has to wait for a compiler."""
    round_ = start_match(opponents.rules, "", 0, 0, 1).current
    game = position(round_)
    for _ in (CARD_PHASE, DRAW_PHASE):
        for name in opponents.agents:
            probabilities(opponents, name, round_, game)
        game.step(game.legal_actions()[0])


def probabilities(opponents: Opponents, name: str, round_: Round, game: Game) -> np.ndarray:
    """What an agent would do in the place of the player to act; float64[A], legal or 0.

    It sees the info state of that player alone. Of a mixture, the round's seed draws one.

    Args:
      opponents: the agents.
      name: one of them.
      round_: the round, for its seed.
      game: its position, not over.
    """
    agent = opponents.agents[name]
    if isinstance(agent, Mixture):
        (agent,) = agent.draw(1, sum(round_.seed))
    return action_probabilities(agent, game)


def choose(opponents: Opponents, name: str, round_: Round, game: Game) -> int:
    """The action an agent draws; the same round and number of moves give the same draw."""
    shares = probabilities(opponents, name, round_, game)
    generator = np.random.default_rng([*round_.seed, 2 * game.turn + game.phase])
    return int(generator.choice(len(shares), p=shares))
