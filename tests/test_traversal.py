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
from lostcities_jax.engine import column_bits, scores
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.info_state import unpack
from lostcities_jax.rules import CLASSIC, MINI, Rules
from lostcities_jax.state import deal_from_deck
from lostcities_jax.traversal.lockstep import traverse
from lostcities_jax.traversal.plan import Plan
from lostcities_jax.traversal.sharded import sharded_traverse
from lostcities_jax.traversal.statistics import tape_statistics
from lostcities_jax.traversal.tape import bytes_per_lane, sweep, value_bytes_per_lane

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
    ("rules", "quota", "player"),
    [(SMALL, 70, 1), pytest.param(CLASSIC, 6, 0, marks=pytest.mark.slow)],
)
def test_a_traversal_yields_the_same_samples_at_widths_1_64_and_1024(rules, quota, player):
    game = lost_cities(rules)
    found = []
    for width in (1, 64, 1024):
        tape, summary = run(game, table_policy, Plan(width, quota), player)
        assert np.asarray(summary.finished).all()
        found.append(decisions(game, tape, player))
    assert len(found[0]["rank"]) == int(np.asarray(summary.decisions)[:, player].sum())
    assert_same(found[0], found[1])
    assert_same(found[0], found[2])


@pytest.mark.parametrize("devices", [4])
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
        assert shard.ends.ended.shape[1] == plan.width // devices
        parts.append(decisions(game, shard, 0))
        parts[-1]["traversal"] += index * share
    assert_same(one, {name: np.concatenate([part[name] for part in parts]) for name in one})
    assert int(np.asarray(summary.finished).sum()) == plan.quota


def test_every_started_traversal_is_finished_and_none_is_counted_twice():
    game, plan = lost_cities(CLASSIC), Plan(16, 50)
    tape, summary = run(game, uniform_policy, plan, 0)
    ended = np.asarray(tape.ends.traversal)[np.asarray(tape.ends.ended)]
    assert sorted(ended) == list(range(plan.quota))
    assert np.asarray(summary.finished).all()


def test_statistics_add_up():
    game, plan = lost_cities(CLASSIC), Plan(16, 50)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("lane",))
    tape, summary = sharded_traverse(game, (uniform_policy,) * 2, plan, mesh)(
        seats(0, 0.4), jax.random.key(0)
    )
    stats = jax.device_get(
        jax.jit(functools.partial(tape_statistics, game, plan.quota))(tape, summary)
    )
    live = sum(int(np.asarray(rows.live).sum()) for rows in tape.rows)
    assert stats.nodes == live == np.asarray(summary.decisions).sum()
    assert stats.terminals + stats.timeouts == plan.quota
    assert stats.cutoffs == stats.unfinished == 0
    assert stats.depth_histogram.sum() == plan.quota
    assert stats.half_steps == 4 * int(np.asarray(tape.length).sum())
    assert stats.rows == stats.half_steps * plan.width
    # Uniformly random games of this rule set are known to last about 287 plies.
    assert stats.nodes / plan.quota == pytest.approx(287, abs=5 * 80 / plan.quota**0.5)


def test_the_turn_limit_is_a_timeout_and_the_depth_limit_a_cutoff():
    short = Rules(max_turns=6)
    _, summary = run(lost_cities(short), uniform_policy, Plan(8, 20), 0)
    assert np.asarray(summary.timeout).all() and not np.asarray(summary.cut).any()
    assert (np.asarray(summary.decisions) == 6).all()
    game = lost_cities(CLASSIC)
    _, summary = run(game, uniform_policy, Plan(8, 20, max_depth=7), 0)
    assert np.asarray(summary.cut).all() and not np.asarray(summary.timeout).any()
    np.testing.assert_array_equal(np.asarray(summary.decisions), [[4, 3]] * 20)


FACES = [7, 5, 0, 3, 6, 3, 4, 0]
COLORS = [0, 1, 2, 0, 2, 1, 3, 4]
EXACT_VALUE = -10.75
EXACT_PLAY_REGRETS = {0: -29.25, 7: -2.25, 5: -4.25, 3: -6.25, 6: -3.25, 4: -5.25}
EXACT_DISCARD_REGRET = 10.75


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


def test_a_tape_is_long_enough_for_the_longest_games_in_every_lane():
    """A policy that never uses up the deck: every game lasts to the turn limit."""

    def pile_lover(params, info, legal, head):
        del params, info
        order = jnp.arange(legal.shape[-1], dtype=jnp.float32)
        best = jnp.argmax(jnp.where(legal, order + 1.0, 0.0), axis=-1)
        strategy = jax.nn.one_hot(best, legal.shape[-1]) if head == 1 else legal / 1.0
        return strategy / jnp.maximum(strategy.sum(-1, keepdims=True), 1.0), legal[..., 0] & False

    game = lost_cities(Rules(max_turns=31))
    plan = Plan(4, 9)
    _, summary = run(game, pile_lover, plan, 0, epsilon=0.0)
    assert np.asarray(summary.finished).all()
    assert np.asarray(summary.timeout).mean() > 0.5
    assert plan.cycles(game) == 16 * 3


def test_bytes_of_tape_follow_from_its_rows():
    game = lost_cities(CLASSIC)
    per_card_row = 113 + 16 + 16 * 4 + 1 + 4 + 4 + 1
    per_draw_row = 113 + 6 + 6 * 4 + 1 + 4 + 4 + 1
    per_cycle = 2 * (per_card_row + per_draw_row) + 4 + 1 + 4
    assert bytes_per_lane(game, 100) == 100 * per_cycle + 4


def test_bytes_of_values_are_those_of_the_arrays():
    game, plan = lost_cities(SMALL), Plan(4, 4)
    tape, _ = run(game, table_policy, plan, 0)
    critic = arbitrary_baselines(tape)
    for baselines in (None, critic):
        values = jax.eval_shape(lambda t, b=baselines: sweep(game, t, b), tape)
        arrays = jax.tree.leaves((values, baselines))
        size = sum(array.size * array.dtype.itemsize for array in arrays)
        assert size == 4 * value_bytes_per_lane(game, plan.cycles(game), baselines is not None)


def test_the_critic_is_taught_the_return_or_its_own_value_of_the_next_decision():
    """Trace 1 passes a game's result to every decision, trace 0 the next node's baseline."""
    game = lost_cities(SMALL)
    tape, _ = run(game, table_policy, Plan(4, 4), 0)
    length = int(tape.length)
    baselines = arbitrary_baselines(tape)
    full = jax.jit(lambda t: sweep(game, t, baselines, 1.0))(tape)
    none = jax.jit(lambda t: sweep(game, t, baselines, 0.0))(tape)
    ended = np.asarray(tape.ends.ended)
    for lane in range(4):
        end = int(np.nonzero(ended[:length, lane])[0][0])
        result = float(tape.ends.value[end, lane])
        for cycle in range(end + 1):
            for k, phase in enumerate(game.phases):
                if not bool(tape.rows[k].live[cycle, lane]):
                    continue
                sign = 1 if phase.player == 0 else -1
                action = int(tape.rows[k].action[cycle, lane])
                assert float(full[k].child_returns[cycle, lane, action]) == sign * result
                following = (cycle, k + 1) if k < 3 else (cycle + 1, 0)
                is_last = following[0] > end or not bool(
                    tape.rows[following[1]].live[following[0], lane]
                )
                if is_last:
                    expected = sign * result
                else:
                    same = game.phases[following[1]].player == phase.player
                    of_node = float(baselines[following[1]].of_node[following[0], lane])
                    expected = of_node if same else -of_node
                assert float(none[k].child_returns[cycle, lane, action]) == pytest.approx(expected)


def test_open_info_states_show_the_other_hand_and_the_cards_to_come():
    """Player 0 draws next: of the rest of the deck, every other card from the first is its own."""
    game = lost_cities(SMALL)
    state = game.deal(jax.random.key(0))
    position = reference.Game(SMALL, [int(card) for card in state.deck])
    open_info = unpack(SMALL, game.observe_open(state, 0))
    rest = [int(card) for card in state.deck[2 * SMALL.hand :]]
    for columns, cards in (
        (open_info.other_known, position.hands[1]),
        (open_info.own_known, rest[::2]),
    ):
        wagers, numbers = (np.asarray(bits) for bits in column_bits(SMALL, columns))
        for color in range(SMALL.colors):
            faces = sorted(c % SMALL.faces for c in cards if c // SMALL.faces == color)
            assert wagers[color].sum() == faces.count(0)
            assert (np.flatnonzero(numbers[color]) + 1).tolist() == [f for f in faces if f]
    assert unpack(SMALL, game.observe(state, 0)).own_known.sum() == 0


def test_the_standing_of_an_info_state_is_the_score_difference_of_its_mover():
    game = lost_cities(CLASSIC)
    state = game.deal(jax.random.key(1))
    for k, action in ((0, 3), (1, 0), (2, 5)):
        state = game.step(state, k, jnp.int32(action))
    points = scores(CLASSIC, state)
    assert float(game.standing(game.observe(state, 3))) == float(points[1] - points[0]) != 0
