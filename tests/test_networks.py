"""Networks: shapes for any rules, colours alike where promised, uniform before training."""

import copy
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.networks import KINDS, Network, make_network
from lostcities_jax.reference import Game
from lostcities_jax.regret import FALLBACKS, masked_softmax, regret_matching
from lostcities_jax.rules import CARD_PHASE, CLASSIC, DRAW_PHASE, MINI, SIX_COLORS, Rules

RULE_SETS = {
    "classic": CLASSIC,
    "six colours": SIX_COLORS,
    "mini": MINI,
    "no wagers": Rules(colors=3, wagers=0, hand=5),
    "15 wagers": Rules(colors=2, ranks=1, wagers=15, hand=6),
    "1 colour": Rules(colors=1, hand=1),
}
PHASES = [CARD_PHASE, DRAW_PHASE]
ROWS = 16
# Sums of float32 in another order differ by some units of the last place.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def games_in(random_game, rules: Rules, phase: int) -> list[Game]:
    """Always equally many, so that tests share compiled programs."""
    games = (random_game(rules, seed) for seed in itertools.count())
    return list(itertools.islice((game for game in games if game.phase == phase), ROWS))


@functools.cache
def network_of(rules: Rules, kind: str) -> tuple[Network, jax.stages.Wrapped]:
    network = make_network(lost_cities(rules), kind, hidden=16, layers=3)
    return network, jax.jit(network.apply, static_argnums=2)


def random_params(network: Network, seed: int):
    """Parameters without a zero: heads and biases start as zeros and would hide differences."""
    leaves, tree = jax.tree.flatten(jax.eval_shape(network.init, jax.random.key(0)))
    source = np.random.default_rng(seed)
    return tree.unflatten([source.normal(0, 0.3, leaf.shape).astype(np.float32) for leaf in leaves])


def movers_views(games: list[Game], packed_view) -> np.ndarray:
    return np.stack([packed_view(game, game.player) for game in games])


def legal_of(games: list[Game], phase: int) -> np.ndarray:
    rules = games[0].rules
    legal = np.zeros((len(games), rules.num_actions), bool)
    for row, game in zip(legal, games, strict=True):
        row[game.legal_actions()] = True
    cards = rules.num_card_actions
    return legal[:, :cards] if phase == CARD_PHASE else legal[:, cards:]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RULE_SETS)
def test_outputs_are_one_row_per_action_and_uniform_before_training(
    name, kind, random_game, packed_view
):
    rules = RULE_SETS[name]
    network, apply = network_of(rules, kind)
    untrained = network.init(jax.random.key(1))
    for phase in PHASES:
        games = games_in(random_game, rules, phase)
        packed = movers_views(games, packed_view)
        outputs = apply(random_params(network, 0), packed, phase)
        num_actions = 2 * rules.hand if phase == CARD_PHASE else 1 + rules.colors
        assert outputs.shape == (ROWS, num_actions)
        assert outputs.dtype == jnp.float32
        assert np.isfinite(outputs).all()
        assert np.std(outputs) > 1e-3

        legal = legal_of(games, phase)
        uniform = legal / legal.sum(-1, keepdims=True)
        outputs = apply(untrained, packed, phase)
        for fallback in FALLBACKS:
            strategy, _ = regret_matching(outputs, legal, fallback)
            np.testing.assert_allclose(strategy, uniform, atol=1e-6)
        np.testing.assert_allclose(masked_softmax(outputs, legal), uniform, atol=1e-6)


def recolored(game: Game, new_color: list[int]) -> Game:
    """The same game with colour c called `new_color[c]`."""
    faces, anew = game.rules.faces, copy.deepcopy(game)

    def card(old: int) -> int:
        return new_color[old // faces] * faces + old % faces

    def by_color(columns: list) -> list:
        return [columns[new_color.index(color)] for color in range(len(new_color))]

    anew.deck = [card(old) for old in game.deck]
    anew.hands = [sorted(card(old) for old in hand) for hand in game.hands]
    anew.known = [
        type(known)({card(old): count for old, count in known.items()}) for known in game.known
    ]
    anew.expeditions = [by_color(columns) for columns in game.expeditions]
    anew.piles = by_color(game.piles)
    anew.barred = None if game.barred is None else new_color[game.barred]
    return anew


def outputs_under_recoloring(kind: str, rules: Rules, phase: int, random_game, packed_view):
    """Outputs for the actions of games, and for the same actions in other colours."""
    network, apply = network_of(rules, kind)
    params, source = random_params(network, 2), np.random.default_rng(3)
    games = games_in(random_game, rules, phase)
    new_colors = [source.permutation(rules.colors).tolist() for _ in games]
    others = [recolored(game, colors) for game, colors in zip(games, new_colors, strict=True)]
    before, after = (
        np.asarray(apply(params, movers_views(side, packed_view), phase))
        for side in (games, others)
    )
    actions = [
        same_actions(game, other, colors, phase)
        for game, other, colors in zip(games, others, new_colors, strict=True)
    ]
    return before, np.take_along_axis(after, np.array(actions), axis=-1)


def same_actions(game: Game, other: Game, new_color: list[int], phase: int) -> list[int]:
    """Where the recoloured game has each action of the game."""
    if phase == DRAW_PHASE:
        return [0, *[1 + color for color in new_color]]
    hand, faces = game.rules.hand, game.rules.faces
    slots = [
        other.hands[game.player].index(new_color[card // faces] * faces + card % faces)
        for card in game.hands[game.player]
    ]
    return [*slots, *[hand + slot for slot in slots]]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", ["classic", "six colours", "15 wagers"])
def test_color_shared_outputs_follow_a_permutation_of_the_colors(
    name, phase, random_game, packed_view
):
    before, after = outputs_under_recoloring(
        "color_shared", RULE_SETS[name], phase, random_game, packed_view
    )
    np.testing.assert_allclose(after, before, **TOLERANCE)
    assert before.std(-1).min() > 1e-3


@pytest.mark.parametrize("phase", PHASES)
def test_mlp_outputs_do_not_follow_so_the_check_can_fail(phase, random_game, packed_view):
    before, after = outputs_under_recoloring("mlp", CLASSIC, phase, random_game, packed_view)
    assert np.abs(after - before).max() > 0.1


def test_color_shared_gives_equal_cards_equal_outputs(random_game, packed_view):
    network, apply = network_of(CLASSIC, "color_shared")
    games = games_in(random_game, CLASSIC, CARD_PHASE)
    outputs = apply(random_params(network, 5), movers_views(games, packed_view), CARD_PHASE)
    hands = np.array([game.hands[game.player] for game in games])
    equal = hands[:, 1:] == hands[:, :-1]
    assert equal.any()
    for of_slots in np.split(np.asarray(outputs), 2, axis=-1):
        assert (of_slots[:, 1:][equal] == of_slots[:, :-1][equal]).all()
        assert (of_slots[:, 1:][~equal] != of_slots[:, :-1][~equal]).any()


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_does_not_depend_on_the_other_rows(kind, phase, random_game, packed_view):
    network, apply = network_of(CLASSIC, kind)
    params = random_params(network, 4)
    packed = movers_views(games_in(random_game, CLASSIC, phase), packed_view)
    together = np.asarray(apply(params, packed, phase))
    in_reverse = np.asarray(apply(params, packed[::-1], phase))[::-1]
    np.testing.assert_allclose(in_reverse, together, **TOLERANCE)
    for row in range(4):
        alone = apply(params, packed[row : row + 1], phase)[0]
        np.testing.assert_allclose(alone, together[row], **TOLERANCE)
        among_others = np.repeat(packed[-1:], ROWS, axis=0)
        among_others[row] = packed[row]
        replaced = apply(params, among_others, phase)[row]
        np.testing.assert_allclose(replaced, together[row], **TOLERANCE)


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_is_the_precision_of_all_products_and_of_nothing_outside(kind):
    exact, _ = network_of(MINI, kind)
    lowered = make_network(lost_cities(MINI), kind, 16, 3, precision="bfloat16")
    params = random_params(exact, 0)
    packed = np.zeros((ROWS, lost_cities(MINI).info_size), np.uint8)
    text = str(jax.make_jaxpr(lowered.apply_heads)(params, packed))
    products = [line for line in text.splitlines() if "dot_general[" in line]
    assert products and all("bf16[" in line for line in products)
    for one, other in zip(
        lowered.apply_heads(params, packed), exact.apply_heads(params, packed), strict=True
    ):
        assert one.dtype == np.float32
        size = np.abs(other).max()
        np.testing.assert_allclose(one, other, atol=0.05 * size)
        assert (np.asarray(one) != np.asarray(other)).any()
