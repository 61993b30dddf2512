"""The textbook scheduler: one traversal after the other, one row a network call.

The slowest of all, and the one with the least to go wrong: the others are compared with it.
"""

import jax

from lostcities_jax.games.game import Game
from lostcities_jax.schedulers.answers import Answers, Calls, Players, make_answer
from lostcities_jax.schedulers.collected import Collected, collect, traversal_keys
from lostcities_jax.schedulers.host_game import host_game
from lostcities_jax.schedulers.walk import walk
from lostcities_jax.traversal.plan import Plan


def run(
    game: Game, players: Players, plan: Plan, answers: Answers, key: jax.Array, trace: float = 1.0
) -> Collected:
    """Runs the traversals of a batch, `plan.quota` of them.

    Args:
      game: the game.
      players: the functions that answer.
      plan: branches, limits, quota, and whether there is a critic; its width does not matter.
      answers: how the players act, and the critic's parameters.
      key: key of the iteration and traverser; not consumed.
      trace: see `tape.sweep`.
    """
    compiled = host_game(game, plan.branches, plan.has_critic)
    answer = make_answer(game, players, plan.branches, plan.has_critic)
    walks, calls = [], 0
    for key_data in traversal_keys(key, plan.quota):
        traversal = walk(compiled, plan, trace, key_data)
        request = next(traversal)
        while True:
            calls += 1
            row = answer(answers, request.group, request.head, request.row[None])[0]
            try:
                request = traversal.send(row)
            except StopIteration as end:
                walks.append(end.value)
                break
    return collect(walks, Calls(calls, calls))
