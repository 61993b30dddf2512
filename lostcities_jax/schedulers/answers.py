"""Rows in, decided rows out: the one way in which every host scheduler asks a network.

A *group* is what answers a request: player 0's policy, player 1's, or the critic. Requests of
one group and head are answered together, padded to few widths so that few programs compile.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax.games.game import Game
from lostcities_jax.networks import Network
from lostcities_jax.regret import num_uniforms
from lostcities_jax.schedulers.host_game import make_layout
from lostcities_jax.traversal.lockstep import Seat, TraversalPolicy, decide

CRITIC_GROUP = 2  # behind the groups of player 0 and player 1

_LEAST_WIDTH = 8  # of a batch of more than one row

# (params, open info uint8[B, I], legal bool[B, A], head) -> action values float32[B, A]
CriticValues = Callable[..., jax.Array]


class Players(NamedTuple):
    """The functions that answer requests; their parameters are given with each batch.

    Attributes:
      policies: the policy functions of player 0 and player 1.
      critic_values: the critic's action values, 0 for illegal ones; None without a critic.
    """

    policies: tuple[TraversalPolicy, TraversalPolicy]
    critic_values: CriticValues | None = None


class Answers(NamedTuple):
    """Who answers in a batch of traversals.

    Attributes:
      seats: how player 0 and player 1 act.
      critic_params: the critic's parameters; None without one.
    """

    seats: tuple[Seat, Seat]
    critic_params: Any = None


class Request(NamedTuple):
    """A decision that waits for a policy, or for the critic.

    Attributes:
      group: a player, or CRITIC_GROUP.
      head: the network's output.
      row: what the call takes, see `Layout`. uint8[].
    """

    group: int
    head: int
    row: np.ndarray


class Calls(NamedTuple):
    """How requests were batched.

    Attributes:
      calls: network calls.
      rows: requests that they answered.
    """

    calls: int
    rows: int

    @property
    def realised_batch(self) -> float:
        """Mean rows of a call."""
        return self.rows / max(self.calls, 1)


@functools.cache
def make_critic_values(game: Game, critic: Network, value_scale: float) -> CriticValues:
    """The critic's action values as `traversal.critic.baselines` has them.

    Cached, so that equal critics share compiled programs.
    """

    def critic_values(params: Any, open_info: jax.Array, legal: jax.Array, head: int) -> jax.Array:
        to_come = value_scale * critic.apply(params, open_info, head)
        return jnp.where(legal, game.standing(open_info)[:, None] + to_come, 0.0)

    return critic_values


@functools.cache
def make_answer(
    game: Game, players: Players, branches: int, has_critic: bool
) -> Callable[[Answers, int, int, np.ndarray], np.ndarray]:
    """Builds `(answers, group, head, rows uint8[n, R]) -> float32[n, W]`, see `Layout`.

    Policies answer with strategy, explored, action, probability and whether they fell back;
    the critic with its action values.
    """
    layout = make_layout(game, branches, has_critic)

    def policy_answer(player: int, head: int, seat: Seat, rows: jax.Array) -> jax.Array:
        num_actions = game.head_sizes[head]
        uniforms, info, legal = layout.read_policy_rows(rows)
        strategy, choice, fell_back = decide(
            players.policies[player],
            branches,
            seat,
            info,
            legal[:, :num_actions],
            uniforms[:, : num_uniforms(branches, num_actions)],
            head,
        )
        padding = ((0, 0), (0, layout.num_actions - num_actions))
        columns = [choice.action, choice.probability, fell_back]
        wide = [jnp.pad(part, padding) for part in (strategy, choice.explored)]
        parts = [*wide, *(column[:, None] for column in columns)]
        # Whole numbers as small as an action are exact in float32.
        return jnp.concatenate([part.astype(jnp.float32) for part in parts], axis=-1)

    def critic_answer(head: int, params: Any, rows: jax.Array) -> jax.Array:
        assert players.critic_values is not None
        num_actions = game.head_sizes[head]
        open_info, legal = layout.read_critic_rows(rows)
        values = players.critic_values(params, open_info, legal[:, :num_actions], head)
        return jnp.pad(values, ((0, 0), (0, layout.answer_size - num_actions)))

    policy_program = jax.jit(policy_answer, static_argnums=(0, 1))
    critic_program = jax.jit(critic_answer, static_argnums=0)

    def answer(answers: Answers, group: int, head: int, rows: np.ndarray) -> np.ndarray:
        count = len(rows)
        padded = np.zeros((padded_width(count), layout.row_size), np.uint8)
        padded[:count, : rows.shape[1]] = rows
        if group == CRITIC_GROUP:
            found = critic_program(head, answers.critic_params, padded)
        else:
            found = policy_program(group, head, answers.seats[group], padded)
        return np.asarray(found)[:count]

    return answer


def padded_width(count: int) -> int:
    """Rows that a call of `count` is padded to: 1, 8, 16, 32, ..."""
    return 1 if count == 1 else max(_LEAST_WIDTH, 1 << (count - 1).bit_length())
