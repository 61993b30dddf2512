"""Flax networks behind one `init` / `apply` pair: packed info states in, one row per action out.

The same parameters shape serves advantages and average-strategy logits. Last layers start
at zero, so an untrained network is the uniform policy.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax.arrays import along_last
from lostcities_jax.errors import UserError
from lostcities_jax.features import Features, encode
from lostcities_jax.games.game import Game, all_legal
from lostcities_jax.info_state import unpack
from lostcities_jax.rules import Rules


class Network(NamedTuple):
    """A network without its parameters.

    Attributes:
      init: `key -> params`; consumes the key.
      apply: `(params, packed uint8[B, I], head) -> float32[B, A]` with the actions of
        `head` (static): in Lost Cities 2H card actions or 1 + C draws.
      apply_heads: `(params, packed) -> (head 0, head 1, ...)`, all for every row.
      considered: the game's: which legal actions a policy of this network chooses among.
    """

    init: Callable[[jax.Array], Any]
    apply: Callable[..., jax.Array]
    apply_heads: Callable[..., tuple[jax.Array, ...]]
    considered: Callable[[jax.Array, jax.Array, int], jax.Array] = all_legal


class Mlp(nn.Module):
    """Dense layers over a game's features, with one output an action of each head."""

    game: Game
    hidden: int
    layers: int

    @nn.compact
    def __call__(self, features: jax.Array) -> tuple[jax.Array, ...]:
        x = features
        for _ in range(self.layers):
            x = nn.relu(nn.Dense(self.hidden)(x))
        return tuple(
            _zero_dense(size, f"{name}_head")(x)
            for name, size in zip(self.game.heads, self.game.head_sizes, strict=True)
        )


class ColorShared(nn.Module):
    """One network for every colour, mixed by mean pooling: permuting colours permutes outputs.

    The card head speaks of card types (face, and play or discard); each hand slot reads the
    row of the card it holds.
    """

    game: Game
    hidden: int
    layers: int

    @nn.compact
    def __call__(self, features: Features, slots: jax.Array) -> tuple[jax.Array, jax.Array]:
        rules = _rules_of(self.game)
        x = jnp.concatenate([features.cards, features.columns], axis=-1)
        shared = nn.Dense(self.hidden)(features.table)
        x = nn.relu(_dense(self.hidden, use_bias=False)(x) + shared[..., None, :])
        for _ in range(self.layers - 1):
            shared = nn.Dense(self.hidden)(x.mean(-2))
            x = nn.relu(_dense(self.hidden, use_bias=False)(x) + shared[..., None, :])
        deck = _zero_dense(1, "deck_head")(x.mean(-2))
        piles = _zero_dense(1, "pile_head")(x)[..., 0]
        by_type = _zero_dense(2 * rules.faces, "card_head")(x)
        return _by_slot(rules, by_type, slots), jnp.concatenate([deck, piles], axis=-1)


def _rules_of(game: Game) -> Rules:
    if game.rules is None:
        raise UserError(f"network.kind is color_shared; allowed for {game.name}: mlp")
    return game.rules


def _flat_inputs(game: Game, packed: jax.Array) -> tuple[jax.Array]:
    return (game.encode(packed),)


def _color_inputs(game: Game, packed: jax.Array) -> tuple[Features, jax.Array]:
    rules = _rules_of(game)
    info = unpack(rules, packed)
    return encode(rules, info), info.hand


class Kind(NamedTuple):
    """A kind of network.

    Attributes:
      module: the Flax module of `game`, `hidden` and `layers`.
      inputs: `(game, packed uint8[..., I]) -> arguments` of the module.
    """

    module: type[nn.Module]
    inputs: Callable[[Game, jax.Array], tuple]


KINDS = {"mlp": Kind(Mlp, _flat_inputs), "color_shared": Kind(ColorShared, _color_inputs)}


@functools.cache
def make_network(
    game: Game, kind: str, hidden: int, layers: int, precision: str = "float32"
) -> Network:
    """Builds the network of a configuration; `kind` is a key of `KINDS`.

    Parameters and outputs are float32; `precision` is that of the arithmetic in between.
    Cached, so that networks of one shape share compiled programs.

    Raises:
      UserError: for a network of colours and a game without any.
    """
    make_module, inputs = KINDS[kind]
    module = make_module(game=game, hidden=hidden, layers=layers)  # pyright: ignore[reportCallIssue]
    blank = np.zeros((1, game.info_size), np.uint8)
    jax.eval_shape(lambda: inputs(game, jnp.asarray(blank)))  # a kind may not know the game

    # One program instead of one for each operation: a start takes seconds less.
    @jax.jit
    def init(key: jax.Array) -> Any:
        return module.init(key, *inputs(game, jnp.asarray(blank)))["params"]

    def lowered(leaf: jax.Array) -> jax.Array:
        return leaf.astype(precision) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    def apply_heads(params: Any, packed: jax.Array) -> tuple[jax.Array, ...]:
        params, encoded = jax.tree.map(lowered, (params, inputs(game, packed)))
        heads: Any = module.apply({"params": params}, *encoded)
        return tuple(head.astype(jnp.float32) for head in heads)

    def apply(params: Any, packed: jax.Array, head: int) -> jax.Array:
        return apply_heads(params, packed)[head]

    return Network(init, apply, apply_heads, game.considered)


def _by_slot(rules: Rules, by_type: jax.Array, slots: jax.Array) -> jax.Array:
    """Reads plays and discards of card types at the hand's slots; float32[..., 2H]."""
    lanes, types = by_type.shape[:-2], rules.colors * rules.faces
    # A selection and not a gather, whose gradient is a scatter: slow on a CPU.
    all_types = along_last(np.arange(types, dtype=np.uint8), slots.ndim + 1)
    is_held = slots[..., None] == all_types
    plays, discards = jnp.split(by_type, 2, axis=-1)
    return jnp.concatenate(
        [
            jnp.where(is_held, head.reshape(*lanes, 1, types), 0.0).sum(-1)
            for head in (plays, discards)
        ],
        axis=-1,
    )


def _zero_dense(features: int, name: str) -> nn.Dense:
    return _dense(features, kernel_init=nn.initializers.zeros, name=name)


def _dense(features: int, **options: Any) -> nn.Dense:
    """A dense layer over the last axis whose products, gradients included, have two axes.

    Those of more axes run at a third of the speed on a CPU when gradients are taken.
    """

    def product(x: jax.Array, kernel: jax.Array, dimensions: Any, **options: Any) -> jax.Array:
        del dimensions
        flat = x.reshape(-1, x.shape[-1]) @ kernel
        return flat.reshape(*x.shape[:-1], kernel.shape[-1])

    return nn.Dense(features, dot_general=product, **options)
