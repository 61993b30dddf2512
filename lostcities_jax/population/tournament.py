"""Tournaments of revisions: a round robin with the bots, every pair on the same deals."""

import contextlib
from collections.abc import Callable, Sequence

from jax.sharding import Mesh

from lostcities_jax.errors import UserError
from lostcities_jax.evaluation.agents import bot_agent
from lostcities_jax.evaluation.rating import Standings, play_round_robin, rate
from lostcities_jax.population.revisions import Registry
from lostcities_jax.settings import EvaluationConfig


def play_tournament(
    registry: Registry,
    settings: EvaluationConfig,
    width: int,
    seed: int,
    announce: Callable[[str], None] = lambda text: None,
    mesh: Mesh | None = None,
) -> Standings:
    """Rates all revisions of a registry and some bots; the one in use stays so meanwhile.

    Revisions take their most probable actions.

    Args:
      registry: whose revisions.
      settings: the bots, and the games of each pair.
      width: games in lockstep.
      seed: seed of the deals and draws.
      announce: told of each pair that has played.
      mesh: the devices that games are divided among; JAX's default device without one.

    Raises:
      UserError: for fewer than two players, or revisions of other games or rules.
    """
    with contextlib.ExitStack() as in_flight:
        if registry.active() in registry.ids():  # its folder may be gone
            in_flight.enter_context(registry.pinned())
        revisions = [registry.load(name) for name in registry.ids()]
        if not revisions:
            raise UserError(f"registry {registry.path} has no revision; allowed: one or more")
        rules = revisions[0].metadata.rules
        for revision in revisions:
            if revision.metadata.game != "lost_cities" or revision.metadata.rules != rules:
                raise UserError(
                    f"revision {revision.id} plays another game than {revisions[0].id}; allowed "
                    f"in a tournament: Lost Cities by the same rules"
                )
        agents = [revision.agent() for revision in revisions]
        agents += [bot_agent(rules, name) for name in settings.opponents]
        names = [agent.name for agent in agents]
        meetings = []
        games = settings.games
        for meeting in play_round_robin(rules, agents, games, width, seed, True, mesh):
            meetings.append(meeting)
            announce(f"{names[meeting.first]} against {names[meeting.second]}")
        return rate(names, meetings, games)


def best_revision(standings: Standings, revisions: Sequence[str]) -> str:
    """The revision that is rated highest; bots do not count."""
    return next(rating.agent for rating in standings.ratings if rating.agent in revisions)
