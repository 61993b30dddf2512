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
from lostcities_jax.features import Features, encode
from lostcities_jax.info_state import packed_size, unpack
from lostcities_jax.rules import CARD_PHASE, DRAW_PHASE, Rules


class Network(NamedTuple):
    """A network without its parameters.

    Attributes:
      init: `key -> params`; consumes the key.
      apply: `(params, packed uint8[B, I], head) -> float32[B, A]` with the actions of
        `head` (static): 2H card actions or 1 + C draws.
      apply_heads: `(params, packed) -> (card actions, draws)`, both for every row.
    """

    init: Callable[[jax.Array], Any]
    apply: Callable[..., jax.Array]
    apply_heads: Callable[..., tuple[jax.Array, jax.Array]]


class Mlp(nn.Module):
    """Dense layers over the card counts of all colours, one output per hand slot or pile."""

    rules: Rules
    hidden: int
    layers: int

    @nn.compact
    def __call__(self, features: Features, slots: jax.Array) -> tuple[jax.Array, jax.Array]:
        del slots  # the outputs are already one per slot
        lanes = features.table.shape[:-1]
        x = jnp.concatenate([features.cards.reshape(*lanes, -1), features.table], axis=-1)
        for _ in range(self.layers):
            x = nn.relu(nn.Dense(self.hidden)(x))
        card = _zero_dense(self.rules.num_card_actions, "card_head")(x)
        return card, _zero_dense(self.rules.num_draw_actions, "draw_head")(x)


class ColorShared(nn.Module):
    """One network for every colour, mixed by mean pooling: permuting colours permutes outputs.

    The card head speaks of card types (face, and play or discard); each hand slot reads the
    row of the card it holds.
    """

    rules: Rules
    hidden: int
    layers: int

    @nn.compact
    def __call__(self, features: Features, slots: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = jnp.concatenate([features.cards, features.columns], axis=-1)
        shared = nn.Dense(self.hidden)(features.table)
        x = nn.relu(nn.Dense(self.hidden, use_bias=False)(x) + shared[..., None, :])
        for _ in range(self.layers - 1):
            shared = nn.Dense(self.hidden)(x.mean(-2))
            x = nn.relu(nn.Dense(self.hidden, use_bias=False)(x) + shared[..., None, :])
        deck = _zero_dense(1, "deck_head")(x.mean(-2))
        piles = _zero_dense(1, "pile_head")(x)[..., 0]
        by_type = _zero_dense(2 * self.rules.faces, "card_head")(x)
        return self._by_slot(by_type, slots), jnp.concatenate([deck, piles], axis=-1)

    def _by_slot(self, by_type: jax.Array, slots: jax.Array) -> jax.Array:
        """Reads plays and discards of card types at the hand's slots; float32[..., 2H]."""
        lanes, types = by_type.shape[:-2], self.rules.colors * self.rules.faces
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


KINDS = {"mlp": Mlp, "color_shared": ColorShared}


@functools.cache
def make_network(rules: Rules, kind: str, hidden: int, layers: int) -> Network:
    """Builds the network of a configuration; `kind` is a key of `KINDS`.

    Cached, so that networks of one shape share compiled programs.
    """
    module = KINDS[kind](rules=rules, hidden=hidden, layers=layers)

    def init(key: jax.Array) -> Any:
        packed = jnp.zeros((1, packed_size(rules)), jnp.uint8)
        info = unpack(rules, packed)
        return module.init(key, encode(rules, info), info.hand)["params"]

    def apply_heads(params: Any, packed: jax.Array) -> tuple[jax.Array, jax.Array]:
        info = unpack(rules, packed)
        card, draw = module.apply({"params": params}, encode(rules, info), info.hand)
        return card, draw

    def apply(params: Any, packed: jax.Array, head: int) -> jax.Array:
        card, draw = apply_heads(params, packed)
        return {CARD_PHASE: card, DRAW_PHASE: draw}[head]

    return Network(init, apply, apply_heads)


def _zero_dense(features: int, name: str) -> nn.Dense:
    return nn.Dense(features, kernel_init=nn.initializers.zeros, name=name)
