"""One network in both seats: what it learns from, and that it learns."""

import dataclasses
import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from traversal_helpers import arbitrary_baselines, seats, table_policy

from lostcities_jax.devices import Machine, one_process, select_machine
from lostcities_jax.games.catalogue import make_game
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.games.utility import with_utility
from lostcities_jax.losses import clipped_surrogate, cross_entropy
from lostcities_jax.networks import make_network
from lostcities_jax.regret import masked_softmax, regret_matching, uniform_strategy
from lostcities_jax.rules import CARD_PHASE, DRAW_PHASE, MINI, Rules
from lostcities_jax.settings import (
    Config,
    CriticConfig,
    GradientConfig,
    LearnerConfig,
    MemoryConfig,
    NetworkConfig,
    SnapshotConfig,
    TraversalConfig,
)
from lostcities_jax.solvers.opponents import draw_places, fixed_policy, sparring_policy
from lostcities_jax.solvers.self_play import make_self_play
from lostcities_jax.traversal.lockstep import traverse
from lostcities_jax.traversal.plan import Plan
from lostcities_jax.traversal.samples import (
    Decisions,
    critic_advantage,
    policy_advantage,
    strategy,
)
from lostcities_jax.traversal.tape import Baseline, NodeValues, Rows, sweep

RULES = Rules(colors=3, ranks=5, wagers=1, hand=4, penalty=-10, bonus_cards=4, bonus=10)
LONG = dataclasses.replace(RULES, ranks=3, hand=3, max_turns=24)
CONFIG = Config(
    iterations=8,
    rules=RULES,
    network=NetworkConfig(kind="mlp", hidden=16, layers=1),
    traversal=TraversalConfig(batch_width=8, traversals=30),
    memory=MemoryConfig(advantage_capacity=5000, strategy_capacity=5000),
    learner=LearnerConfig(
        batch_size=64, advantage_steps=10, strategy_steps=10, accumulation="bootstrap"
    ),
    critic=CriticConfig(steps=10, capacity=5000),
    gradient=GradientConfig(steps=10),
)


@functools.cache
def make(config, devices=1):
    game = make_game(config.game, config.rules)
    network = make_network(game, **dataclasses.asdict(config.network))
    machine = one_process(jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("lane",)))
    return game, network, make_self_play(config, game, network, machine)


def with_traversal(config, **values):
    return dataclasses.replace(config, traversal=dataclasses.replace(config.traversal, **values))


def remembered(config, devices=1):
    """The memories after a first batch, in which every network plays the uniform policy."""
    _, _, steps = make(config, devices)
    state = steps.init()
    decisions, learners = 0, []
    for index in range(steps.batches):
        batch = steps.play(state, 1, index)
        decisions += int(steps.statistics(batch).nodes)
        learners.append(batch.learners)
        state = steps.remember(state, 1, index, batch)
    return jax.device_get(state.memories), decisions, learners


@pytest.mark.parametrize("game", ["leduc", pytest.param("lost_cities", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "solver", ["deep_cfr", pytest.param("policy_gradient", marks=pytest.mark.slow)]
)
def test_the_memories_do_not_depend_on_width_or_devices(solver, game):
    config = dataclasses.replace(CONFIG, solver=solver, game=game)
    narrow, decisions, _ = remembered(with_traversal(config, batch_width=2))
    wide, _, _ = remembered(with_traversal(config, batch_width=16), devices=3)
    for left, right in zip(jax.tree.leaves(narrow), jax.tree.leaves(wide), strict=True):
        # A network's sums may be rounded otherwise at another width; nothing else may differ.
        tolerance = 1e-4 if left.dtype == np.float32 else 0.0
        np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)
    # Both seats learn: every decision of the batch is there once.
    assert int(narrow.advantage.seen[0]) == int(narrow.critic.seen[0]) == decisions
    assert (narrow.strategy is None) == (solver == "policy_gradient")


def test_a_critic_fitted_on_a_device_of_its_own_is_that_of_one_device():
    config = dataclasses.replace(CONFIG, solver="policy_gradient", game="kuhn")
    critics = []
    for devices in (1, 2):
        _, _, steps = make(config, devices)
        state = steps.init()
        state = steps.remember(state, 1, 0, steps.play(state, 1, 0))
        state, losses = steps.fit_critic(state, 1)
        assert losses[1] < losses[0]
        assert {leaf.device for leaf in jax.tree.leaves(state)} == {jax.devices()[0]}
        critics.append(jax.device_get(state.critic.params))
    for left, right in zip(*map(jax.tree.leaves, critics), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-5)


def test_there_is_work_aside_where_another_device_is_like_home():
    cpu, gpu = (types.SimpleNamespace(platform=platform) for platform in ("cpu", "gpu"))

    def aside(home, *lanes):
        return Machine(types.SimpleNamespace(size=len(lanes), devices=np.array(lanes)), home).aside

    assert aside(gpu, cpu, cpu) is gpu
    one, two, three = jax.devices()[:3]
    assert aside(one, one) is one
    assert aside(one, one, two, three) is three
    shared = select_machine("cpu:2", "same")._replace(peers="the homes of all processes")
    assert shared.aside == shared.home  # its fits wait for those of the others


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize(
    ("game", "opponent"),
    [
        ("leduc", "league"),
        pytest.param("lost_cities", "discard-only", marks=pytest.mark.slow),
    ],
)
def test_against_an_opponent_only_the_own_decisions_are_learned_from(game, opponent):
    """The critic values the decisions of both."""
    config = dataclasses.replace(
        with_traversal(CONFIG, opponent=opponent),
        game=game,
        rules=MINI,
        snapshots=SnapshotConfig(every=1, slots=2),
    )
    memories, decisions, seatings = remembered(config)
    assert seatings == [(0,), (1,)]
    own = int(memories.advantage.seen[0])
    assert 0.3 * decisions < own < 0.7 * decisions
    assert int(memories.critic.seen[0]) == decisions


@pytest.mark.usefixtures("quick_compile")
def test_what_follows_the_games_compiles_once_for_all_devices(caplog):
    config = dataclasses.replace(CONFIG, solver="policy_gradient", game="kuhn", seed=5)
    _, _, steps = make(config, 4)
    state = steps.init()
    batch = steps.play(state, 1, 0)
    with jax.log_compiles():
        jax.block_until_ready(steps.remember(state, 1, 0, batch))
    said = [record.getMessage() for record in caplog.records]
    compiled = [text.split()[4] for text in said if text.startswith("Finished XLA compilation of")]
    assert compiled and len(compiled) == len(set(compiled)), compiled


@pytest.mark.usefixtures("quick_compile")
def test_a_league_plays_a_past_network_once_there_is_one():
    config = dataclasses.replace(
        with_traversal(CONFIG, opponent="league"),
        solver="policy_gradient",
        snapshots=SnapshotConfig(every=1, slots=2),
        league=dataclasses.replace(CONFIG.league, current=0.0, recent=1.0, older=0.0, anchor=0.0),
    )
    _, _, steps = make(config)
    state = steps.init()
    params = jax.tree.map(lambda leaf: leaf, state.policy.params)
    params["card_head"]["bias"] = params["card_head"]["bias"].at[: RULES.hand].set(-50.0)
    always_discards = state._replace(policy=state.policy._replace(params=params))
    kept = steps.keep_snapshot(always_discards, 1).snapshots
    first = steps.play(state._replace(snapshots=kept), 2, 0)
    rows = jax.device_get(first.tape.rows)
    opponent, own = rows[2], rows[0]
    assert (opponent.action[opponent.live] >= RULES.hand).all()
    assert (own.action[own.live] < RULES.hand).mean() > 0.2


@pytest.mark.usefixtures("quick_compile")
def test_bots_to_spar_with_add_a_batch_in_each_seat_and_are_not_learned_from():
    config = with_traversal(CONFIG, sparring=("discard-only",))
    memories, decisions, seatings = remembered(config)
    assert seatings == [(0, 1), (0,), (1,)]
    _, _, steps = make(config)
    state = steps.init()
    itself, first, second = (
        jax.device_get(steps.play(state, 1, index).tape.rows) for index in range(3)
    )
    for own, bot in ((first[0], first[2]), (second[2], second[0])):
        assert (bot.action[bot.live] == RULES.hand).all()
        assert (own.action[own.live] < RULES.hand).mean() > 0.2
    own = sum(
        int(rows[phase].live.sum())
        for rows, phases in ((itself, range(4)), (first, (0, 1)), (second, (2, 3)))
        for phase in phases
    )
    assert int(memories.advantage.seen[0]) == own < decisions == int(memories.critic.seen[0])


@pytest.mark.parametrize(("share", "games"), [(0.5, 15), (0.01, 1)])
def test_bots_to_spar_with_get_their_share_of_games_in_each_seat(share, games):
    _, _, steps = make(with_traversal(CONFIG, sparring=("discard-only",), sparring_share=share))
    state = steps.init()
    counts = [steps.statistics(steps.play(state, 1, index)) for index in range(3)]
    assert [int(batch.depth_histogram.sum()) for batch in counts] == [30, games, games]
    assert not any(int(batch.unfinished) for batch in counts)


def test_whom_the_network_meets_is_drawn_for_each_seat_and_iteration():
    keys = jax.random.split(jax.random.key(0), 900)
    drawn = np.stack(jax.vmap(functools.partial(draw_places, 3))(keys))
    pairs, counts = np.unique(drawn, axis=1, return_counts=True)
    assert pairs.T.tolist() == [[first, second] for first in range(3) for second in range(3)]
    np.testing.assert_allclose(counts, 100, atol=4 * (900 * 8 / 81) ** 0.5)


@pytest.mark.usefixtures("quick_compile")
def test_bots_to_spar_with_may_be_of_both_programs_and_play_as_themselves():
    names = ("noisy", "expert", "discard-only")
    config = with_traversal(CONFIG, opponent="random", traversals=8)
    game, _, steps = make(config)
    tape = jax.device_get(steps.play(steps.init(), 1, 0).tape)
    together = jax.jit(sparring_policy(game, names), static_argnums=3)
    for place, name in enumerate(names):
        alone = jax.jit(fixed_policy(game, name), static_argnums=3)
        for phase, head in ((2, CARD_PHASE), (3, DRAW_PHASE)):
            rows = jax.tree.map(np.concatenate, tape.rows[phase])
            info, legal = rows.info[rows.live], rows.legal[rows.live]
            expected, _ = alone(None, info, legal, head)
            strategy, _ = together(jnp.int32(place), info, legal, head)
            np.testing.assert_array_equal(strategy, expected)
            assert len(info) > 20


def test_the_weight_of_the_entropy_moves_in_a_line_from_the_first_iteration_to_the_last():
    """With advantages of 0 the loss is the entropy alone, of two equal actions log 2."""
    config = dataclasses.replace(
        CONFIG,
        solver="policy_gradient",
        game="kuhn",
        iterations=5,
        gradient=GradientConfig(steps=10, entropy=3.0, final_entropy=1.0),
    )
    _, _, steps = make(config)
    for iteration, weight in ((1, 3.0), (2, 2.5), (5, 1.0)):
        state = steps.init()
        state = steps.remember(state, 1, 0, steps.play(state, 1, 0))
        samples = state.memories.advantage.samples
        samples = samples._replace(target=samples.target.at[:, 0].set(0.0))
        advantage = state.memories.advantage._replace(samples=samples)
        state = state._replace(memories=state.memories._replace(advantage=advantage))
        _, losses = steps.fit_policy(state, iteration)
        np.testing.assert_allclose(losses[0], -weight * np.log(2), rtol=1e-4)


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize(
    ("solver", "network_config"),
    [
        pytest.param("deep_cfr", NetworkConfig(hidden=16, layers=2), marks=pytest.mark.slow),
        ("policy_gradient", CONFIG.network),
    ],
)
def test_cut_after_one_decision_it_learns_to_discard(solver, network_config):
    """With the score as the value after one decision, a play costs points, a discard none."""
    config = dataclasses.replace(
        with_traversal(CONFIG, batch_width=128, traversals=1024, max_depth=1, epsilon=0.5),
        solver=solver,
        network=network_config,
        learner=LearnerConfig(
            batch_size=256, advantage_steps=60, accumulation="bootstrap", learning_rate=5e-3
        ),
        gradient=GradientConfig(steps=60),
        critic=CriticConfig(steps=60, capacity=5000),
    )
    game, network, steps = make(config)
    state = steps.init()
    for iteration in range(1, config.iterations + 1):
        state = steps.remember(state, iteration, 0, steps.play(state, iteration, 0))
        state, _ = steps.fit_policy(state, iteration)
        state, _ = steps.fit_critic(state, iteration)
    deals = jax.vmap(game.deal)(jax.random.split(jax.random.key(99), 64))
    infos = jax.vmap(lambda s: game.observe(s, 0))(deals)
    outputs = network.apply(state.policy.params, infos, CARD_PHASE)
    legal = jnp.ones_like(outputs, bool)
    policy = masked_softmax(outputs, legal)
    if solver == "deep_cfr":
        policy, _ = regret_matching(outputs, legal, "argmax")
    assert float(policy[:, RULES.hand :].sum(-1).mean()) > 0.9


@pytest.mark.usefixtures("quick_compile")
def test_advantages_of_a_policy_gradient_average_to_those_of_its_critic_and_the_game():
    """Under the strategy, A(b) of the sampled action adds G - q(a) on average, and no more."""
    game, count = lost_cities(MINI), 20_000
    plan = Plan(width=512, quota=count, has_critic=True)
    both = tuple(seat._replace(epsilon=jnp.float32(0.0)) for seat in seats(0, 0.0))

    @jax.jit
    def run(key):
        start = game.deal(jax.random.key(5))
        initial = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], count, axis=0), start)
        policies = (table_policy, table_policy)
        tape, _ = traverse(game, policies, plan, both, key, jnp.int32(0), jnp.int32(count), initial)
        critics = arbitrary_baselines(tape)
        values = sweep(game, tape, critics)
        parts = jax.tree.map(lambda leaf: leaf, (tape.rows[0], values[0], critics[0]))
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), parts)
        first = flat[0].live & (flat[0].rank == 0)
        return policy_advantage(game, Decisions(*flat)).target, flat, first

    target, (rows, values, critic), first = jax.device_get(run(jax.random.key(1)))
    target, strategy = target[first, 0].astype(np.float64), target[first, 1].astype(np.float64)
    assert len(target) == count and (strategy == strategy[0]).all()
    # With a trace of 1, the return of each action is what its games came to in the end.
    returns, action = values.child_returns[first], rows.action[first]
    for a in np.flatnonzero(strategy[0]):
        mean_return = returns[action == a, a].mean()
        expected = mean_return - critic.of_node[first][0]
        error = target[:, a].std() / np.sqrt(count)
        assert abs(target[:, a].mean() - expected) < 4.5 * error


def test_samples_count_the_actions_that_policies_choose_among():
    """With six cards to draw and 24 turns, policies draw from the deck alone from turn 12 on: then
    no loss asks for anything, whatever the network says."""
    game = lost_cities(LONG)
    all_draws = [True, True, True, True, False, False]
    legal = jnp.array([[True] * 6, all_draws, all_draws])
    count = jnp.array([[True] * 6, all_draws, [True] + 5 * [False]])
    values, each = jnp.arange(18.0).reshape(3, 6), jnp.arange(3)
    losses = ((policy_advantage, clipped_surrogate(0.2, 1.0)), (strategy, cross_entropy))

    @jax.jit
    def counted_and_lost():
        cards = game.deal(jax.random.key(0))
        draws = game.step(cards, 0, jnp.int32(LONG.hand))
        infos = [
            game.observe(state._replace(turn=jnp.full_like(state.turn, turn)), k)
            for state, turn, k in ((cards, 12, 0), (draws, 10, 1), (draws, 12, 1))
        ]
        played = uniform_strategy(count)
        rows = Rows(jnp.stack(infos), legal, played, 0 * each, played[:, 0], each, each >= 0)
        critic = Baseline(values, values[:, 0])
        decisions = Decisions(rows, NodeValues(values, values[:, 0], values), critic)
        found = []
        for make_target, loss in losses:
            made = make_target(game, decisions)
            outputs = jnp.tile(jnp.arange(6.0), (3, 1))
            found.append((made.legal, loss(outputs, made.target, made.legal)))
        return found, critic_advantage(decisions).legal

    found, of_regrets = counted_and_lost()
    for counted, lost in found:
        np.testing.assert_array_equal(counted, count)
        assert (np.abs(lost) > 0.1).tolist() == [True, True, False]
    np.testing.assert_array_equal(of_regrets, legal)


def test_a_utility_pays_for_points_and_for_winning():
    game = lost_cities(MINI)
    mixed = with_utility(game, 0.5, 10.0)
    state = game.deal(jax.random.key(0))
    ahead = state._replace(expeditions=state.expeditions.at[1, 0].set(2))  # player 1: 2 - 4
    assert float(game.value(ahead)) == 2.0
    assert float(mixed.value(ahead)) == 0.5 * 2.0 + 10.0
    assert float(mixed.value(state)) == 0.0
    assert float(mixed.standing(game.observe(ahead, 2))) == -11.0  # player 1's view
    assert with_utility(game, 1.0, 0.0) is game
