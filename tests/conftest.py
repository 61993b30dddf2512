"""Strict JAX settings for the whole suite, and games of the reference engine as states."""

import functools
import os
import tempfile
from pathlib import Path

# JAX reads this when it is imported; a machine with an accelerator may choose otherwise.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Runs that repeat another's programs, in whichever worker, need not compile them again.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", tempfile.mkdtemp(prefix="lostcities-tests-"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")

import random

import jax
import numpy as np
import pytest
from jax.experimental.key_reuse import _core as key_reuse

from lostcities_jax import assembly
from lostcities_jax.cards import all_cards
from lostcities_jax.info_state import observe, pack
from lostcities_jax.positions import state_of as _state_of
from lostcities_jax.reference import Game
from lostcities_jax.rules import DRAW_PHASE, Rules

jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)
# `vmap` of a scan over keys transposes them. The checker does not know that operation and
# takes it for a use; it only passes the keys on.
key_reuse.key_reuse_signatures[jax.lax.transpose_p] = key_reuse.KeyReuseSignature(
    key_reuse.Forward(0, 0)
)

# Files that take longest, first, so that no worker is left with one of them in the end.
LONGEST = [
    "notebooks",
    "train",
    "faults",
    "processes",
    "self_play",
    "deep_cfr",
    "branching",
    "schedulers",
    "adapters",
    "engine",
    "search",
    "rating",
    "traversal_records",
    "revisions",
    "stopping",
    "traversal",
    "bots",
    "benchmarks",
    "solvers",
    "compile_cache",
    "evolution",
    "server",
    "population",
    "networks",
    "play_page",
    "tabular",
]


def pytest_collection_modifyitems(items):
    missing = [name for name in LONGEST if not (Path(__file__).parent / f"test_{name}.py").exists()]
    assert not missing, f"LONGEST names files that are not there: {missing}"
    places = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


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


@pytest.fixture(scope="module")
def quick_compile():
    """Programs of a module, and of the processes it starts, compile fast and run slowly.

    From the first test on that asks for it: those that do not come before it.

    For what is tried at sizes so small that compiling well costs more than it saves. What is
    compared bit for bit between programs is left to compile as users have it.
    """
    jax.config.update("jax_disable_most_optimizations", True)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    yield
    del os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"]
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()


@pytest.fixture(scope="module")
def compiled_once():
    """Runs of one config in this process share a solver and so its compiled programs."""
    solvers, make_solver = {}, assembly.make_solver

    def shared(config, *rest):
        if config not in solvers:
            solvers[config] = make_solver(config, *rest)
        return solvers[config]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "make_solver", shared)
        yield
