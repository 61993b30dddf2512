"""What a traversal counts and records: ends, statistics, bytes, and what a critic is taught."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_traversal import SMALL, run
from traversal_helpers import arbitrary_baselines, seats, table_policy, uniform_policy

from lostcities_jax import reference
from lostcities_jax.engine import column_bits, scores
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.info_state import unpack
from lostcities_jax.rules import CLASSIC, Rules
from lostcities_jax.traversal.plan import Plan
from lostcities_jax.traversal.sharded import sharded_traverse
from lostcities_jax.traversal.statistics import tape_statistics
from lostcities_jax.traversal.tape import bytes_per_lane, sweep, value_bytes_per_lane

pytestmark = pytest.mark.usefixtures("quick_compile")


def test_every_started_traversal_is_finished_and_none_is_counted_twice():
    game, plan = lost_cities(CLASSIC), Plan(16, 50)
    tape, summary = run(game, uniform_policy, plan, 0)
    ended = np.asarray(tape.ends.traversal)[np.asarray(tape.ends.ended)]
    assert sorted(ended) == list(range(plan.quota))
    assert np.asarray(summary.finished).all()


def test_statistics_add_up():
    game, plan = lost_cities(CLASSIC), Plan(16, 50)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:3]), ("lane",))
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
    assert stats.rows == stats.half_steps * 6  # lanes of a device, for 16 on 3 of them
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


@pytest.mark.parametrize("trace", [0.0, 0.5, 1.0])
def test_the_critic_is_taught_the_retrace_returns_of_the_strategy(trace):
    """Its value of the next decision, and what came after in so far as the strategy would do it."""
    game = lost_cities(SMALL)
    tape, _ = run(game, table_policy, Plan(4, 4), 0)
    baselines = arbitrary_baselines(tape)
    found = jax.jit(lambda t: sweep(game, t, baselines, trace))(tape)
    tape, baselines, found = jax.device_get((tape, baselines, found))
    for lane in range(4):
        end = int(np.nonzero(tape.ends.ended[: tape.length, lane])[0][0])
        later = tape.ends.value[end, lane]  # from player 0's view
        for cycle, k in itertools.product(range(end, -1, -1), (3, 2, 1, 0)):
            row, critic = jax.tree.map(
                lambda leaf, at=(cycle, lane): leaf[at], (tape.rows[k], baselines[k])
            )
            if not row.live:
                continue
            sign = 1 if game.phases[k].player == 0 else -1
            came = found[k].child_returns[cycle, lane]
            assert came[row.action] == pytest.approx(sign * later, abs=1e-4)
            assert not np.delete(came, row.action).any()
            ratio = min(1.0, row.strategy[row.action] / row.probability)
            surprise = sign * later - critic.action_values[row.action]
            later = sign * (critic.of_node + trace * ratio * surprise)


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
