"""The pieces of a lockstep cycle as functions of arrays, in the order the cycle does them."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.fixtures import Position, choosing_params, positions
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.lanes import Lanes, deal_episodes, decision_uniforms, episode_keys, refill
from lostcities_jax.networks import KINDS, Network, make_network
from lostcities_jax.regret import Choice, choose_actions
from lostcities_jax.rules import CARD_PHASE, DRAW_PHASE, Rules
from lostcities_jax.solvers.opponents import SeatParams, traversal_policy
from lostcities_jax.traversal import lockstep
from lostcities_jax.traversal.lockstep import Paths, Seat, Summary
from lostcities_jax.traversal.tape import Ends, Rows, Tape, append, blank_tape

_TAPE_CYCLES = 64  # written in a circle, more than a cache holds


@dataclasses.dataclass(frozen=True)
class Piece:
    """A part of a cycle.

    Attributes:
      name: the phases of a piece share it.
      function: takes `args`.
      args: arrays.
      per_cycle: how often a cycle does it.
      carries: whether the result is the next turn's first argument, changed in place.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    per_cycle: int = 1
    carries: bool = False


@dataclasses.dataclass(frozen=True)
class Shape:
    """What the pieces depend on.

    Attributes:
      rules: rules of the game.
      kind: a key of KINDS.
      hidden: units of a hidden layer.
      layers: hidden layers.
      width: lanes, B.
      quota: traversals of the batch that the lanes are a part of.
      seed: seed of networks and games.
    """

    rules: Rules
    kind: str
    hidden: int
    layers: int
    width: int
    quota: int
    seed: int

    @property
    def network(self) -> Network:
        """The network of both seats."""
        return make_network(lost_cities(self.rules), self.kind, self.hidden, self.layers)


@functools.cache
def make_seats(shape: Shape) -> tuple[Seat, Seat]:
    """An exploring traverser and its opponent, each with a network of its own."""
    params = [
        SeatParams(choosing_params(shape.network, shape.seed + player), jnp.asarray(False))
        for player in (0, 1)
    ]
    return (
        Seat(params[0], jnp.float32(0.3), jnp.asarray(True)),
        Seat(params[1], jnp.float32(0), jnp.asarray(False)),
    )


def make_pieces(shape: Shape) -> list[Piece]:
    """All pieces, those of the card and of the draw phase one after the other."""
    found = positions(lost_cities(shape.rules), shape.width, shape.seed)
    pieces, rows = [], []
    for k in (CARD_PHASE, DRAW_PHASE):
        phase_pieces, row = _phase_pieces(shape, k, found[k])
        pieces += phase_pieces
        rows.append(row)
    return pieces + _cycle_pieces(shape, found[0], (*rows, *rows))


def _phase_pieces(shape: Shape, k: int, at: Position) -> tuple[list[Piece], Rows]:
    """What a half-step of phase `k` does, and its tape row."""
    game = lost_cities(shape.rules)
    params, epsilon, _ = make_seats(shape)[0]
    make_module, inputs = KINDS[shape.kind]
    module: Any = make_module(game=game, hidden=shape.hidden, layers=shape.layers)  # pyright: ignore
    encode_rows = functools.partial(inputs, game)
    encoded = jax.jit(encode_rows)(at.info)
    keys = episode_keys(jax.random.key(shape.seed), jnp.arange(shape.width))
    depth = jnp.arange(shape.width, dtype=jnp.int32)
    uniform = decision_uniforms(keys, depth)
    # Its parameters are its outputs: what is left of the policy is regret matching.
    identity = Network(lambda key: None, lambda outputs, *_: outputs, lambda outputs, _: outputs)
    policy = traversal_policy(identity, "argmax")

    # A piece is repeated with the same keys on purpose, so it takes their words.
    def draw(words: jax.Array, depth: jax.Array) -> jax.Array:
        return decision_uniforms(jax.random.wrap_key_data(words), depth)

    def forward(network_params: Any, encoded: tuple) -> Any:
        return module.apply({"params": network_params}, *encoded)[k]

    def match(outputs: jax.Array, legal: jax.Array) -> Any:
        return policy(params._replace(network=outputs), at.info, legal, k)

    def sample(strategy: jax.Array, legal: jax.Array, uniform: jax.Array) -> Choice:
        is_traverser = jnp.asarray(True)
        return choose_actions(0, strategy, legal, epsilon, is_traverser, uniform[:, None])

    outputs = jax.jit(forward)(params.network, encoded)
    strategy, _ = jax.jit(match)(outputs, at.legal)
    choice = jax.jit(sample)(strategy, at.legal, uniform)
    row = Rows(
        info=at.info,
        legal=at.legal,
        strategy=strategy,
        action=choice.action,
        probability=choice.probability,
        rank=depth,
        live=jnp.ones((shape.width,), bool),
    )
    parts = {
        "random numbers": (draw, jax.random.key_data(keys), depth),
        "observe, pack": (jax.vmap(lambda state: game.observe(state, k)), at.state),
        "legal": (jax.vmap(lambda state: game.legal(state, k)), at.state),
        "unpack, encode": (encode_rows, at.info),
        "forward": (forward, params.network, encoded),
        "regret matching": (match, outputs, at.legal),
        "explore, sample": (sample, strategy, at.legal, uniform),
        "engine step": (jax.vmap(lambda s, a: game.step(s, k, a)), at.state, at.action),
    }
    # Both players do each phase once in a cycle.
    return [Piece(name, part[0], part[1:], per_cycle=2) for name, part in parts.items()], row


def _cycle_pieces(shape: Shape, at: Position, rows: tuple[Rows, ...]) -> list[Piece]:
    """What a cycle does once."""
    game, width = lost_cities(shape.rules), shape.width
    key = jax.random.key(shape.seed)
    episode = jnp.arange(width, dtype=jnp.int32)
    # About as many lanes end in a cycle as in the middle of a batch.
    active = episode % 64 > 0
    lanes = Lanes(at.state, episode, episode, active, jnp.int32(width))
    initial = deal_episodes(game, key, jnp.arange(shape.quota))
    fallbacks = [jnp.int32(0) for _ in game.phases]

    counts = jnp.zeros((width,), jnp.int32)
    paths = Paths(active, counts, jnp.stack([counts, counts], -1), counts, None)

    def summarise(summary: Summary, lanes: Lanes, paths: Paths) -> Summary:
        ended = ~lanes.active
        return lockstep._summarise(game, summary, lanes, paths, fallbacks, ended, ended)

    def write(tape: Tape, rows: tuple[Rows, ...], ends: Ends) -> Tape:
        return append(tape._replace(length=tape.length % _TAPE_CYCLES), rows, ends)

    value = jax.vmap(game.value)
    ends = Ends(episode, ~active, value(at.state))
    tape = blank_tape(game, width, _TAPE_CYCLES)
    summary = lockstep._blank(shape.quota)
    return [
        Piece("episode keys", lambda episode: episode_keys(key, episode), (episode,)),
        Piece("value", value, (at.state,)),
        Piece("summary", summarise, (summary, lanes, paths), carries=True),
        Piece("tape write", write, (tape, rows, ends), carries=True),
        Piece("refill", refill, (lanes, initial, jnp.int32(shape.quota))),
    ]
