"""Sampled worlds: all that a player knows holds in them, and the rest is uniformly random."""

import functools
import itertools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lostcities_jax.bots import BOTS, batched_bot_policy
from lostcities_jax.cards import EMPTY, all_cards
from lostcities_jax.evaluation.worlds import sample_world
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.info_state import observe, pack, unpack
from lostcities_jax.lanes import deal_episodes, episode_keys, fill_lanes, play_cycle
from lostcities_jax.reference import Game
from lostcities_jax.regret import sample_action
from lostcities_jax.rules import CARD_PHASE, DRAW_PHASE, PRESETS, Rules

pytestmark = pytest.mark.usefixtures("quick_compile")

TINY = Rules(colors=2, ranks=1, wagers=3, hand=3)
WORLDS = 4


@functools.partial(jax.jit, static_argnums=0)
def worlds_of(rules, infos, key):
    """`WORLDS` worlds of each packed info state; batched over [B, WORLDS]."""
    keys = jax.random.split(key, (len(infos), WORLDS))
    return jax.vmap(jax.vmap(functools.partial(sample_world, rules), (None, 0)))(
        unpack(rules, infos), keys
    )


@functools.partial(jax.jit, static_argnums=0)
def mover_views(rules, worlds):
    """What the mover of each world sees; uint8[B, WORLDS, I]."""

    def view(world):
        views = [pack(observe(world, player)) for player in (0, 1)]
        return jnp.where(world.turn % 2 == 0, *views)

    return jax.vmap(jax.vmap(view))(worlds)


@functools.partial(jax.jit, static_argnums=0)
def positions_of_play(rules, bot):
    """Info states of 16 games of a bot against itself, and whether the games still run."""
    game = lost_cities(rules)
    policy, keys = batched_bot_policy(rules), episode_keys(jax.random.key(5), jnp.arange(16))
    lanes = fill_lanes(deal_episodes(game, jax.random.key(6), jnp.arange(16)), 16, 16)

    def decide(decision):
        head = game.phases[decision.phase].head
        probabilities = policy(bot, decision.info, decision.legal, head)
        return sample_action(probabilities, decision.uniform), (decision.info, decision.live)

    def cycle(lanes, _):
        lanes, seen = play_cycle(game, lanes, keys, decide)
        return lanes, tuple(jnp.stack(part) for part in zip(*seen, strict=True))

    return jax.lax.scan(cycle, lanes, None, length=game.max_cycles)[1]


def positions(rules, random_game, packed_view):
    """Info states of movers: of reference games with random moves, and of games of a bot."""
    random_games = [random_game(rules, seed) for seed in range(40)]
    by_random = [packed_view(game, game.player) for game in random_games if not game.is_over]
    infos, live = map(np.asarray, positions_of_play(rules, BOTS["noisy"]))
    return np.concatenate([np.stack(by_random), infos[live][:: 1 + live.sum() // 400]])


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "classic" else pytest.mark.slow) for name in PRESETS],
)
def test_a_world_looks_to_the_mover_as_the_true_state_does(name, random_game, packed_view):
    rules = PRESETS[name]
    infos = positions(rules, random_game, packed_view)
    assert set(np.asarray(unpack(rules, infos).phase)) == {CARD_PHASE, DRAW_PHASE}
    assert set(np.asarray(unpack(rules, infos).turn) % 2) == {0, 1}
    worlds = worlds_of(rules, infos, jax.random.key(0))
    seen = np.asarray(mover_views(rules, worlds))
    np.testing.assert_array_equal(seen, np.broadcast_to(infos[:, None], seen.shape))

    worlds = jax.device_get(worlds)
    deck, hands = worlds.deck.reshape(-1, rules.num_cards), worlds.hands.reshape(-1, 2, rules.hand)
    assert (np.sort(deck) == all_cards(rules)).all(), "some card is missing"
    assert (np.sort(hands) == hands).all(), "a hand is not in order"
    left, turn = worlds.deck_left.reshape(-1), worlds.turn.reshape(-1)
    for row in range(len(deck)):
        other = hands[row, 1 - turn[row] % 2]
        assert (other != EMPTY).all()
        gone = deck[row][: rules.num_cards - left[row] - rules.hand]
        rest = [*gone, *other, *deck[row][rules.num_cards - left[row] :]]
        assert (np.sort(rest) == all_cards(rules)).all(), "the other hand is also in the deck"


def reference_position():
    """A reference game whose mover knows one card of the other hand."""
    number_of_color_1, wager_of_color_1 = 3, 2
    own = [number_of_color_1, wager_of_color_1, 0]
    other = [1, 0, wager_of_color_1]
    dealt = [card for pair in zip(own, other, strict=True) for card in pair]
    game = Game(TINY, [*dealt, 0, wager_of_color_1])
    discard, from_deck, from_pile = TINY.hand, 2 * TINY.hand, 2 * TINY.hand + 1
    for action in (discard + 2, from_deck, 1, from_pile + 1):
        game.step(action)
    assert game.known[1] == Counter({number_of_color_1: 1})
    return game


def test_every_consistent_world_is_as_likely_as_any_other(packed_view):
    game = reference_position()
    mover, other = game.player, 1 - game.player
    hidden = Counter(game.hands[other]) - game.known[other]
    cards = [*hidden.elements(), *game.deck]
    known = list(game.known[other].elements())
    unknown = TINY.hand - len(known)
    expected = Counter(
        (tuple(sorted([*known, *order[:unknown]])), order[unknown:])
        for order in itertools.permutations(cards)
    )
    assert set(expected.values()) == {2, 4}, "wagers are equal cards: ways to deal them differ"

    draws = 4000
    info = unpack(TINY, jnp.asarray(packed_view(game, mover)))
    keys = jax.random.split(jax.random.key(2), draws)
    sample = jax.jit(jax.vmap(functools.partial(sample_world, TINY, info)))
    worlds = jax.device_get(sample(keys))
    left = len(game.deck)
    found = Counter(
        (tuple(hand.tolist()), tuple(deck.tolist()))
        for hand, deck in zip(worlds.hands[:, other], worlds.deck[:, -left:], strict=True)
    )
    assert set(found) == set(expected)
    for world, ways in expected.items():
        share = ways / expected.total()
        error = np.sqrt(share * (1 - share) / draws)
        assert abs(found[world] / draws - share) < 4.5 * error
