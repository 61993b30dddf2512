"""The whole tree of a small game as flat arrays, to be swept level by level.

A strategy is a table float64[histories, A]. A *history* is an information set of a player
with perfect recall; an *info* is a packed info state, which may forget how it came about
and is all that a policy sees. A policy thus plays alike in all histories of an info, while a
best response need not: exploitability is measured against players who remember everything.

Letters beside those of `rules`: N nodes, A actions of the widest phase.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax.errors import UserError
from lostcities_jax.games.game import Game, GameState, Phase

NONE = -1
_BATCH = 2048  # states in one call: one shape, so that every phase is compiled once

Policy = Callable[[int, int, np.ndarray, np.ndarray], Any]


class Histories(NamedTuple):
    """Information sets of players who remember all they saw and did, by history id.

    Attributes:
      player: who decides. int8[histories].
      info: id of the packed info state. int32[histories].
      parent: the player's previous history, NONE at the first decision. int32[histories].
      action: what the player did there, NONE at the first decision. int32[histories].
      legal: bool[histories, A].
      levels: ids of the histories on each level; a parent is on an earlier one.
    """

    player: np.ndarray
    info: np.ndarray
    parent: np.ndarray
    action: np.ndarray
    legal: np.ndarray
    levels: tuple[slice, ...]


class Infos(NamedTuple):
    """Distinct packed info states, by info id.

    Attributes:
      player: who decides. int8[infos].
      head: head of the decision. int8[infos].
      packed: uint8[infos, I].
      legal: bool[infos, A].
    """

    player: np.ndarray
    head: np.ndarray
    packed: np.ndarray
    legal: np.ndarray


class GameTree(NamedTuple):
    """Decisions and ends of a game, in the order of the half-steps they come at.

    Attributes:
      name: the game's, for messages.
      head_sizes: actions of each head.
      parent: the decision before, NONE at a root. int32[N].
      action: what was done there, NONE at a root. int32[N].
      chance: probability of the deal at a root, 1 elsewhere. float64[N].
      player: who decides, NONE at an end. int8[N].
      history: history id, NONE at an end. int32[N].
      value: player 0's payoff at an end, 0 elsewhere. float64[N].
      levels: nodes of each half-step, all decided by one player.
      histories: what the players know.
      infos: what policies see.
    """

    name: str
    head_sizes: tuple[int, ...]
    parent: np.ndarray
    action: np.ndarray
    chance: np.ndarray
    player: np.ndarray
    history: np.ndarray
    value: np.ndarray
    levels: tuple[slice, ...]
    histories: Histories
    infos: Infos


class _Frontier(NamedTuple):
    """States to look at next, with the decision that led to each.

    Attributes:
      state: game states, batched.
      parent, action, chance: as in `GameTree`.
      last_history: each player's last history, NONE before the first. int32[n, P].
      last_action: what each player did there. int32[n, P].
    """

    state: GameState
    parent: np.ndarray
    action: np.ndarray
    chance: np.ndarray
    last_history: np.ndarray
    last_action: np.ndarray


class _Seen(NamedTuple):
    """What a phase finds in a batch of states."""

    over: np.ndarray
    decides: np.ndarray
    legal: np.ndarray
    packed: np.ndarray
    value: np.ndarray


class _Level(NamedTuple):
    """Nodes and histories of one half-step; fields as in `GameTree` and `Histories`."""

    parent: np.ndarray
    action: np.ndarray
    chance: np.ndarray
    player: np.ndarray
    history: np.ndarray
    value: np.ndarray
    history_key: np.ndarray  # player, head, previous history, action, packed info state
    history_legal: np.ndarray


def build_tree(game: Game) -> GameTree:
    """Plays every line of a game from every deal, breadth first.

    A player's memory is the chain of own histories and actions; the half-step is part of
    it, since the cycle turns in the open. Phases that do not decide leave no node.

    Raises:
      UserError: for a game with too many deals to list.
    """
    if game.all_deals is None:
        raise UserError(
            f"exact values of {game.name}; allowed: games with few enough deals to list"
        )
    deals = game.all_deals()
    count = len(deals.probability)
    nowhere = np.full((count, 2), NONE, np.int32)
    frontier = _Frontier(
        deals.states, nowhere[:, 0], nowhere[:, 0], deals.probability, nowhere, nowhere
    )
    looks, steps = _compiled(game)
    levels, nodes, histories = [], 0, 0
    for half_step in range(game.max_cycles * len(game.phases) + 1):
        k = half_step % len(game.phases)
        seen = _Seen(*_in_batches(looks[k], frontier.state))
        level = _make_level(game, k, frontier, seen, histories)
        frontier = _next_frontier(game, k, steps[k], frontier, seen, level, nodes)
        levels.append(level)
        nodes += len(level.parent)
        histories += len(level.history_legal)
        if not len(frontier.parent):
            return _assemble(game, levels)
    raise AssertionError(f"{game.name} goes on after {game.max_cycles} cycles")


def _compiled(game: Game) -> tuple[list[Callable], list[Callable]]:
    """For each phase, what it finds in states and how it moves them, over a batch."""

    def look(state: GameState, k: int) -> tuple[jax.Array, ...]:
        over = game.is_terminal(state)
        turn = game.is_turn(state, k) & ~over
        value = jnp.where(over, game.value(state), 0.0)
        return over, turn, game.legal(state, k), game.observe(state, k), value

    phases = range(len(game.phases))
    looks = [jax.jit(jax.vmap(lambda state, k=k: look(state, k))) for k in phases]
    steps = [jax.jit(jax.vmap(lambda state, a, k=k: game.step(state, k, a))) for k in phases]
    return looks, steps


def _in_batches(function: Callable, *arguments: Any) -> Any:
    """A batched function over any number of rows, in calls of one shape; NumPy."""
    rows = len(jax.tree.leaves(arguments)[0])
    parts = []
    for start in range(0, rows, _BATCH):
        taken = np.minimum(np.arange(start, start + _BATCH), rows - 1)
        parts.append(jax.device_get(function(*_take(arguments, taken))))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:rows], *parts)


def _take(tree: Any, rows: np.ndarray) -> Any:
    return jax.tree.map(lambda leaf: leaf[rows], tree)


def _make_level(game: Game, k: int, frontier: _Frontier, seen: _Seen, first: int) -> _Level:
    """Nodes of a half-step: the states that end or decide; histories are numbered on."""
    phase = game.phases[k]
    decides = seen.decides
    memory = [
        np.full((decides.sum(), 2), (phase.player, phase.head), np.int32),
        frontier.last_history[decides, phase.player, None],
        frontier.last_action[decides, phase.player, None],
        seen.packed[decides],
    ]
    keys, example, ids = np.unique(
        np.concatenate(memory, axis=-1), axis=0, return_index=True, return_inverse=True
    )
    history = np.full(len(decides), NONE, np.int32)
    history[decides] = first + ids.reshape(-1)
    nodes = decides | seen.over
    return _Level(
        parent=frontier.parent[nodes],
        action=frontier.action[nodes],
        chance=frontier.chance[nodes],
        player=np.where(decides, phase.player, NONE).astype(np.int8)[nodes],
        history=history[nodes],
        value=seen.value[nodes].astype(np.float64),
        history_key=keys,
        history_legal=_widened(game, phase, seen.legal[decides][example]),
    )


def _widened(game: Game, phase: Phase, legal: np.ndarray) -> np.ndarray:
    return np.pad(legal, ((0, 0), (0, game.max_actions - phase.num_actions)))


def _next_frontier(
    game: Game, k: int, step: Callable, frontier: _Frontier, seen: _Seen, level: _Level, first: int
) -> _Frontier:
    """States after every legal action, and those where the phase had nothing to decide."""
    nodes = seen.decides | seen.over
    numbers = np.full(len(nodes), NONE, np.int32)
    numbers[nodes] = first + np.arange(nodes.sum(), dtype=np.int32)
    row, action = (seen.legal & seen.decides[:, None]).nonzero()
    action = action.astype(np.int32)
    player = game.phases[k].player
    history = np.full(len(nodes), NONE, np.int32)
    history[nodes] = level.history
    moved = _take(frontier, row)
    last_history, last_action = moved.last_history.copy(), moved.last_action.copy()
    last_history[:, player], last_action[:, player] = history[row], action
    parts = [_take(frontier, (~nodes).nonzero()[0])]
    if len(row):
        after = _Frontier(
            state=_in_batches(step, moved.state, action),
            parent=numbers[row],
            action=action,
            chance=np.ones(len(row)),
            last_history=last_history,
            last_action=last_action,
        )
        parts.append(after)
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def _assemble(game: Game, levels: list[_Level]) -> GameTree:
    joined = _Level(*(np.concatenate(parts) for parts in zip(*levels, strict=True)))
    key, legal = joined.history_key, joined.history_legal
    views, example, info = np.unique(
        np.delete(key, (2, 3), axis=1), axis=0, return_index=True, return_inverse=True
    )
    histories = Histories(
        player=key[:, 0].astype(np.int8),
        info=info.reshape(-1).astype(np.int32),
        parent=key[:, 2],
        action=key[:, 3],
        legal=legal,
        levels=_slices([len(level.history_legal) for level in levels]),
    )
    infos = Infos(
        player=views[:, 0].astype(np.int8),
        head=views[:, 1].astype(np.int8),
        packed=views[:, 2:].astype(np.uint8),
        legal=legal[example],
    )
    return GameTree(
        name=game.name,
        head_sizes=game.head_sizes,
        parent=joined.parent,
        action=joined.action,
        chance=joined.chance,
        player=joined.player,
        history=joined.history,
        value=joined.value,
        levels=_slices([len(level.parent) for level in levels]),
        histories=histories,
        infos=infos,
    )


def _slices(counts: list[int]) -> tuple[slice, ...]:
    ends = np.cumsum(counts).tolist()
    return tuple(slice(end - count, end) for end, count in zip(ends, counts, strict=True))


def uniform_table(tree: GameTree) -> np.ndarray:
    """Equal probability for every legal action; float64[histories, A]."""
    legal = tree.histories.legal
    return legal / legal.sum(-1, keepdims=True)


def policy_table(tree: GameTree, policy: Policy) -> np.ndarray:
    """What a policy plays in every history; float64[histories, A].

    Args:
      tree: the game.
      policy: batched, `(player, head, info uint8[n, I], legal bool[n, A]) -> [n, A]`
        probabilities, where A are the actions of the head; called once for every player and
        head, with each packed info state once. Rows are scaled to sum to 1 in float64.
    """
    infos = tree.infos
    table = np.zeros(infos.legal.shape)
    for player, head in np.unique(np.stack([infos.player, infos.head], -1), axis=0).tolist():
        rows = ((infos.player == player) & (infos.head == head)).nonzero()[0]
        actions = tree.head_sizes[head]
        legal = infos.legal[rows, :actions]
        chosen = np.asarray(policy(player, head, infos.packed[rows], legal), np.float64)
        table[rows, :actions] = np.where(legal, chosen, 0.0)
    return (table / table.sum(-1, keepdims=True))[tree.histories.info]
