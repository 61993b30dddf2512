"""Lockstep play of whole games between two policies, for matches."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from lostcities_jax.games.game import Game, GameState
from lostcities_jax.lanes import (
    Decision,
    Lanes,
    any_active,
    deal_episodes,
    episode_keys,
    fill_lanes,
    play_cycle,
    refill,
)
from lostcities_jax.regret import sample_action

# (params, packed info uint8[B, I], legal bool[B, A], head) -> probabilities float32[B, A]
Policy = Callable[..., jax.Array]


class Player(NamedTuple):
    """A policy's data; the policy function itself is static.

    Attributes:
      params: what the policy function takes.
      greedy: take the most probable action instead of a sampled one. bool[] or bool[B].
    """

    params: Any
    greedy: jax.Array


class Played(NamedTuple):
    """Finished games, in the order of their indices.

    Attributes:
      final: final states, batched over games.
      marks: in each phase of the cycle, how often the marked actions were taken.
        int32[games, phases].
    """

    final: GameState
    marks: jax.Array


@dataclasses.dataclass(frozen=True)
class Match:
    """What is static in a batch of games.

    Attributes:
      policies: policy functions of player 0 and player 1.
      width: lanes, B.
      games: games to play.
      is_marked: `(head, action int32[B]) -> bool[B]`, which actions to count.
    """

    policies: tuple[Policy, Policy]
    width: int
    games: int
    is_marked: Callable[[int, jax.Array], jax.Array]


def play_match(
    game: Game,
    match: Match,
    players: tuple[Player, Player],
    key: jax.Array,
    first: jax.Array | int = 0,
    count: jax.Array | int | None = None,
) -> Played:
    """Plays games to their ends; game i depends on the key, i and the players alone.

    Args:
      game: the game; static.
      match: static sizes and functions.
      players: player 0 and player 1.
      key: deals and draws are folded from it and the index of the game. Not consumed.
      first: index of the first game.
      count: how many of them to play; all by default. The others are only dealt.
    """
    count = match.games if count is None else count
    initial = deal_episodes(game, key, first + jnp.arange(match.games))

    def cycle(carry: tuple[Lanes, jax.Array, Played]) -> tuple[Lanes, jax.Array, Played]:
        before, marks, played = carry

        def decide(decision: Decision) -> tuple[jax.Array, jax.Array]:
            phase = game.phases[decision.phase]
            policy, player = match.policies[phase.player], players[phase.player]
            action = act(policy, player, decision, phase.head)
            return action, decision.live & match.is_marked(phase.head, action)

        keys = episode_keys(key, first + before.episode)
        lanes, marked = play_cycle(game, before, keys, decide)
        marks = marks + jnp.stack(marked, axis=-1)
        ended = before.active & ~lanes.active
        at = jnp.where(ended, before.episode, match.games)
        played = jax.tree.map(
            lambda all_games, lane: all_games.at[at].set(lane, mode="drop"),
            played,
            Played(lanes.state, marks),
        )
        lanes = refill(lanes, initial, count)
        return lanes, jnp.where((lanes.cycle == 0)[:, None], 0, marks), played

    lanes = fill_lanes(initial, count, match.width)
    marks = jnp.zeros((match.width, len(game.phases)), jnp.int32)
    played = Played(initial, jnp.zeros((match.games, len(game.phases)), jnp.int32))
    return jax.lax.while_loop(lambda carry: any_active(carry[0]), cycle, (lanes, marks, played))[2]


def spread_match(
    game: Game,
    match: Match,
    mesh: Mesh,
    players: tuple[Player, Player],
    key: jax.Array,
    first: jax.Array | int = 0,
) -> Played:
    """`play_match` with its lanes and games divided among the devices of a mesh.

    No collective is in the program, so no device waits for another's games, however long they
    are. Cutting off what is behind the last game would be one: that is left to the host.

    Args:
      game: as of `play_match`, and so are the others.
      match: `width` and `games` of all devices together.
      mesh: one-dimensional; static.
      players: replicated over it.
      key: replicated too. Not consumed.
      first: index of the first game.

    Returns:
      the games, sharded in the order of their indices. As many for every device: behind the
      last of `match.games` there may be some that were only dealt.
    """
    (axis,) = mesh.axis_names
    games = -(-match.games // mesh.size)
    width = min(-(-match.width // mesh.size), games)
    share = dataclasses.replace(match, width=width, games=games)

    def on_device(players: tuple[Player, Player], key: jax.Array, first: jax.Array) -> Played:
        before = games * jax.lax.axis_index(axis)
        count = jnp.clip(match.games - before, 0, games)
        return play_match(game, share, players, key, first + before, count)

    return jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=PartitionSpec(),
        out_specs=PartitionSpec(axis),
        check_vma=False,
    )(players, key, jnp.int32(first))


def act(policy: Policy, player: Player, decision: Decision, head: int) -> jax.Array:
    """Each lane's action by a policy, sampled or greedy; int32[B]."""
    probabilities = policy(player.params, decision.info, decision.legal, head)
    greedy = jnp.broadcast_to(player.greedy, decision.live.shape)
    played = jnp.where(greedy[:, None], most_probable(probabilities), probabilities)
    return sample_action(played, decision.uniform)


def most_probable(probabilities: jax.Array) -> jax.Array:
    """All probability on the first of the most probable actions; float32[..., A]."""
    return jax.nn.one_hot(probabilities.argmax(-1), probabilities.shape[-1])
