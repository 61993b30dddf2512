"""What a configuration is made of on a machine: the game, the network, the opponent, the solver."""

import dataclasses
import pathlib
from typing import NamedTuple

from lostcities_jax.devices import Machine
from lostcities_jax.evaluation.agents import Agent
from lostcities_jax.games.catalogue import make_game
from lostcities_jax.games.game import Game
from lostcities_jax.games.utility import with_utility
from lostcities_jax.networks import Network, make_network
from lostcities_jax.rivals import as_rival, load_rival
from lostcities_jax.settings import Config
from lostcities_jax.solvers.catalogue import make_solver
from lostcities_jax.solvers.feasibility import check_feasible, check_settings
from lostcities_jax.solvers.solver import Solver


class Assembly(NamedTuple):
    """The parts of a run.

    Attributes:
      game: the game, in points.
      network: the network.
      rival: the opponent to learn to beat; None in self-play.
      solver: what trains; close it in the end.
    """

    game: Game
    network: Network
    rival: Agent | None
    solver: Solver


def assemble(config: Config, machine: Machine, resumed: pathlib.Path | None = None) -> Assembly:
    """Checks a configuration against a machine and builds its parts; compiles nothing.

    Args:
      config: the configuration.
      machine: what it is to run on.
      resumed: folder of the run that goes on, which has its rival; None for a new one.

    Raises:
      UserError: for settings that do not go together or do not fit, or a rival that is none.
    """
    game = make_game(config.game, config.rules)
    check_settings(config, game)
    check_feasible(config, game, machine)
    network = make_network(game, **dataclasses.asdict(config.network))
    rival = load_rival(config, resumed)
    played_for = with_utility(game, config.utility.points, config.utility.win)
    solver = make_solver(config, played_for, network, machine, rival and as_rival(rival))
    return Assembly(game, network, rival, solver)
