"""What the critic says of the decisions on a tape.

The critic is a network over open info states: it sees both hands, as a baseline may, and
the policies it helps to train never see what it says at play time. It values what is still
to come; the score as it stands is added to that.
"""

import functools

import jax
import jax.numpy as jnp

from lostcities_jax.games.game import Game
from lostcities_jax.networks import Network
from lostcities_jax.traversal.tape import Baseline, Rows, Tape


@jax.named_scope("critic")
def baselines(
    game: Game, critic: Network, params: object, tape: Tape, value_scale: float
) -> tuple[Baseline, ...]:
    """The critic's values of every decision on a tape, one entry a phase.

    Args:
      game: the game; static.
      critic: the network; its outputs times `value_scale` are points to come; static.
      params: its parameters.
      tape: a tape with open info states; only its written cycles are evaluated.
      value_scale: points that an output of 1 means; static.
    """
    return tuple(
        _phase_baseline(game, critic, params, tape, value_scale, k) for k in range(len(game.phases))
    )


def _phase_baseline(
    game: Game, critic: Network, params: object, tape: Tape, value_scale: float, k: int
) -> Baseline:
    rows, head = tape.rows[k], game.phases[k].head

    def evaluate(index: jax.Array, baseline: Baseline) -> Baseline:
        at = functools.partial(jax.lax.dynamic_index_in_dim, index=index, keepdims=False)
        row: Rows = jax.tree.map(at, rows)
        assert row.open_info is not None
        to_come = value_scale * critic.apply(params, row.open_info, head)
        values = game.standing(row.open_info)[:, None] + to_come
        action_values = jnp.where(row.legal, values, 0.0)
        new = Baseline(
            action_values=action_values,
            of_node=(row.strategy * action_values).sum(-1),
        )
        return jax.tree.map(
            lambda all_rows, one: jax.lax.dynamic_update_index_in_dim(all_rows, one, index, 0),
            baseline,
            new,
        )

    blank = Baseline(
        action_values=jnp.zeros(rows.strategy.shape, jnp.float32),
        of_node=jnp.zeros(rows.probability.shape, jnp.float32),
    )
    return jax.lax.fori_loop(0, tape.length, evaluate, blank)
