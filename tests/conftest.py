"""Strict JAX settings for the whole suite, and games of the reference engine as states."""

import functools
import os
import tempfile

# JAX reads this when it is imported; a machine with an accelerator may choose otherwise.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Runs that repeat another's programs, in whichever worker, need not compile them again.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", tempfile.mkdtemp(prefix="lostcities-tests-"))

import random

import jax
import numpy as np
import pytest
from jax.experimental.key_reuse import _core as key_reuse

from lostcities_jax.cards import EMPTY, all_cards
from lostcities_jax.info_state import observe, pack
from lostcities_jax.reference import Game
from lostcities_jax.rules import DRAW_PHASE, Rules
from lostcities_jax.state import State

jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)
# `vmap` of a scan over keys transposes them. The checker does not know that operation and
# takes it for a use; it only passes the keys on.
key_reuse.key_reuse_signatures[jax.lax.transpose_p] = key_reuse.KeyReuseSignature(
    key_reuse.Forward(0, 0)
)


def _column_bits(rules: Rules, faces: list[int]) -> int:
    """Bits of a column as `cards` defines them: wagers from below, then a bit a number."""
    wagers = faces.count(0)
    numbers = sum(1 << (rules.wagers + face - 1) for face in faces if face)
    return (1 << wagers) - 1 + numbers


def _known_bits(rules: Rules, game: Game, player: int) -> list[int]:
    columns: list[list[int]] = [[] for _ in range(rules.colors)]
    for card in game.known[player].elements():
        color, face = divmod(card, rules.faces)
        columns[color].append(face)
    return [_column_bits(rules, faces) for faces in columns]


def _padded(values: list[int], length: int) -> list[int]:
    return values + [EMPTY] * (length - len(values))


def _state_of(game: Game) -> State:
    """The arrays of a reference game; of the deck, only the cards still in it."""
    rules = game.rules
    drawn = rules.num_cards - len(game.deck)
    return State(
        deck=np.array([EMPTY] * drawn + game.deck, np.uint8),
        deck_left=np.uint8(len(game.deck)),
        hands=np.array([_padded(hand, rules.hand) for hand in game.hands], np.uint8),
        expeditions=np.array(
            [[_column_bits(rules, faces) for faces in columns] for columns in game.expeditions],
            np.uint16,
        ),
        known=np.array([_known_bits(rules, game, player) for player in range(2)], np.uint16),
        piles=np.array([_padded(pile, rules.cards_per_color) for pile in game.piles], np.uint8),
        pile_sizes=np.array([len(pile) for pile in game.piles], np.uint8),
        barred=np.uint8(rules.colors if game.barred is None else game.barred),
        turn=np.uint16(game.turn),
        phase=np.uint8(game.phase),
    )


def _random_game(rules: Rules, seed: int) -> Game:
    """A game broken off after a random number of random actions, before its end."""
    source = random.Random(seed)
    deck = all_cards(rules).tolist()
    source.shuffle(deck)
    game = Game(rules, deck)
    for _ in range(source.randrange(4 * rules.deck_after_deal)):
        may_end = len(game.deck) == 1 or game.turn == rules.max_turns - 1
        if game.phase == DRAW_PHASE and may_end:
            break
        game.step(source.choice(game.legal_actions()))
    return game


@pytest.fixture(scope="session")
def state_of():
    """`reference game -> State` of NumPy arrays, converted without the engine."""
    return _state_of


@pytest.fixture(scope="session")
def random_game():
    """`(rules, seed) -> reference game` somewhere before its end."""
    return _random_game


@functools.cache
def _packed_observation(player: int):
    return jax.jit(lambda state: pack(observe(state, player)))


@pytest.fixture(scope="session")
def packed_view():
    """`(reference game, player) -> uint8[I]`, the player's packed info state."""
    return lambda game, player: np.asarray(_packed_observation(player)(_state_of(game)))
