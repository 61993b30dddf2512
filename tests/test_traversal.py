"""The lockstep traversal: unbiased targets, and samples that do not depend on scheduling."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from traversal_helpers import (
    arbitrary_baselines,
    decisions,
    phase_arrays,
    seats,
    table_policy,
    uniform_policy,
)

from lostcities_jax import reference
from lostcities_jax.cards import all_cards, card_type
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.rules import CLASSIC, MINI, Rules
from lostcities_jax.state import deal_from_deck
from lostcities_jax.traversal.lockstep import traverse
from lostcities_jax.traversal.plan import Plan
from lostcities_jax.traversal.sharded import sharded_traverse

SMALL = Rules(colors=3, ranks=5, wagers=1, hand=4, penalty=-10, bonus_cards=4, bonus=10)


def run(game, policy, plan, traverser, seed=0, epsilon=0.4, initial=None):
    step = jax.jit(functools.partial(traverse, game, (policy, policy), plan))
    count = jnp.int32(plan.quota)
    key = jax.random.key(seed)
    return step(seats(traverser, epsilon), key, jnp.int32(0), count, initial=initial)


def repeat_deck(deck, rules, quota):
    state = deal_from_deck(rules, jnp.asarray(deck, jnp.uint8))
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (quota, *leaf.shape)), state)


def deck_with_hand(rules, hand):
    """A deck that deals `hand` to player 0, in order."""
    rest = list(all_cards(rules))
    for card in hand:
        rest.remove(card)
    deck = []
    for card in hand:
        deck += [card, rest.pop()]
    return deck + rest


def assert_same(left, right):
    for name, values in left.items():
        np.testing.assert_array_equal(values, right[name], err_msg=name)


@pytest.mark.parametrize(
    ("rules", "quota", "player", "widths"),
    [
        (SMALL, 70, 1, (1, 64)),
        pytest.param(SMALL, 70, 1, (1, 1024), marks=pytest.mark.slow),
        pytest.param(CLASSIC, 6, 0, (1, 64, 1024), marks=pytest.mark.slow),
    ],
)
def test_a_traversal_yields_the_same_samples_at_any_width(rules, quota, player, widths):
    game = lost_cities(rules)
    found = []
    for width in widths:
        tape, summary = run(game, table_policy, Plan(width, quota), player)
        assert np.asarray(summary.finished).all()
        found.append(decisions(game, tape, player))
    assert len(found[0]["rank"]) == int(np.asarray(summary.decisions)[:, player].sum())
    for other in found[1:]:
        assert_same(found[0], other)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [3, 4])
def test_a_traversal_yields_the_same_samples_on_any_number_of_devices(devices):
    game, plan = lost_cities(SMALL), Plan(8, 30)
    one = decisions(game, run(game, table_policy, plan, 0)[0], 0)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("lane",))
    tape, summary = sharded_traverse(game, (table_policy,) * 2, plan, mesh)(
        seats(0, 0.4), jax.random.key(0)
    )
    share = -(-plan.quota // devices)
    parts = []
    for index in range(devices):
        shard = jax.tree.map(lambda leaf, i=index: leaf.addressable_shards[i].data, tape)
        shard = shard._replace(length=shard.length[0])
        assert shard.ends.ended.shape[1] == -(-plan.width // devices)
        parts.append(decisions(game, shard, 0))
        parts[-1]["traversal"] += index * share
    assert_same(one, {name: np.concatenate([part[name] for part in parts]) for name in one})
    assert int(np.asarray(summary.finished).sum()) == plan.quota


FACES = [7, 5, 0, 3, 6, 3, 4, 0]
COLORS = [0, 1, 2, 0, 2, 1, 3, 4]
EXACT_VALUE = -10.75
EXACT_PLAY_REGRETS = {0: -29.25, 7: -2.25, 5: -4.25, 3: -6.25, 6: -3.25, 4: -5.25}
EXACT_DISCARD_REGRET = 10.75


@pytest.mark.usefixtures("quick_compile")
def test_depth_one_targets_average_to_the_exact_regrets():
    """Zero networks, a fresh deal, values at the cut are the score difference."""
    game, quota = lost_cities(CLASSIC), 20_000
    hand = [
        card_type(CLASSIC, color, face and face - 1)
        for color, face in zip(COLORS, FACES, strict=True)
    ]
    initial = repeat_deck(deck_with_hand(CLASSIC, hand), CLASSIC, quota)
    plan = Plan(500, quota, max_depth=1)
    tape, summary = run(game, uniform_policy, plan, 0, epsilon=0.3, initial=initial)
    assert int(np.asarray(summary.decisions).sum()) == quota
    found = decisions(game, tape, 0)
    targets, values = found["target"], found["node_value"]
    printed = [0 if card % 10 == 0 else card % 10 + 1 for card in sorted(hand)]
    exact = [EXACT_PLAY_REGRETS[face] for face in printed] + [EXACT_DISCARD_REGRET] * 8
    error = targets.std(0, ddof=1) / np.sqrt(quota)
    assert (np.abs(targets.mean(0) - exact) < 4.5 * error).all()
    assert error.max() < 1.2
    assert abs(values.mean() - EXACT_VALUE) < 4.5 * values.std() / np.sqrt(quota)


def exact_values(game_rules, deck, policy, path):
    """Exact expected score difference of player 0 after `path`, by the reference engine."""
    position = reference.Game(game_rules, deck)
    for action in path:
        position.step(action)
    if position.is_over:
        scores = position.scores()
        return float(scores[0] - scores[1])
    probabilities = policy(path)
    return sum(
        probabilities[action] * exact_values(game_rules, deck, policy, (*path, action))
        for action in position.legal_actions()
    )


def policy_by_path(rules, deck):
    """The table policy's probabilities after a path of actions, from one engine walk."""
    game = lost_cities(rules)
    legal_of, observe_of, step_of = (
        [jax.jit(lambda *a, f=f, k=k: f(a[0], k, *a[1:])) for k in range(4)]
        for f in (game.legal, game.observe, game.step)
    )
    offset = [0, rules.num_card_actions] * 2

    @functools.cache
    def state_after(path):
        if not path:
            return deal_from_deck(rules, jnp.asarray(deck, jnp.uint8))
        k = (len(path) - 1) % 4
        return step_of[k](state_after(path[:-1]), jnp.int32(path[-1] - offset[k]))

    @functools.cache
    def policy(path):
        k, state = len(path) % 4, state_after(path)
        strategy, _ = table_policy(None, observe_of[k](state), legal_of[k](state), None)
        return {offset[k] + a: float(p) for a, p in enumerate(np.asarray(strategy))}

    return policy, lambda path: np.asarray(observe_of[len(path) % 4](state_after(path))).tobytes()


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize(("player", "has_baseline"), [(0, False), (1, True)])
def test_targets_average_to_the_exact_counterfactual_regrets(player, has_baseline):
    """Both seats of MINI to the end of the game, against values enumerated in plain Python.

    A baseline changes no expectation, also one that is plainly wrong.
    """
    rules, quota = MINI, 40_000
    game = lost_cities(rules)
    deck = [int(card) for card in np.random.default_rng(5).permutation(all_cards(rules))]
    policy, info_after = policy_by_path(rules, deck)
    plan = Plan(1000, quota)
    initial = repeat_deck(deck, rules, quota)
    tape, _ = run(game, table_policy, plan, player, epsilon=0.5, initial=initial)
    baselines = arbitrary_baselines(tape) if has_baseline else None
    found = phase_arrays(game, tape, game.phases_of(player)[0], baselines)
    infos = np.array([info.tobytes() for info in found["info"]])
    paths = [()]
    if player == 1:  # its first decision, after every turn of player 0 that the deck allows
        paths = [
            (card, draw)
            for card in policy(())
            if policy(())[card] > 0
            for draw in policy((card,))
            if policy((card,))[draw] > 0
        ]
    sign = 1.0 if player == 0 else -1.0
    checked = 0
    for path in paths:
        targets = found["target"][(found["rank"] == 0) & (infos == info_after(path))]
        probabilities = policy(path)
        value = {
            action: sign * exact_values(rules, deck, policy, (*path, action))
            for action, probability in probabilities.items()
            if probability > 0
        }
        node = sum(probabilities[action] * value[action] for action in value)
        exact = [value[action] - node if action in value else 0.0 for action in probabilities]
        error = targets.std(0, ddof=1) / np.sqrt(len(targets)) + 1e-6
        assert (np.abs(targets.mean(0) - exact) < 4.5 * error).all(), path
        checked += len(value)
    assert checked >= 4
