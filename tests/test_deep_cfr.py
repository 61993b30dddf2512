"""Whole iterations of Deep CFR: the same at any width and device count, and they learn."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lostcities_jax import memory
from lostcities_jax.bots import BOTS, batched_bot_policy
from lostcities_jax.devices import one_process
from lostcities_jax.games.catalogue import make_game
from lostcities_jax.games.leduc import CALL
from lostcities_jax.learner import make_learner
from lostcities_jax.losses import squared_error
from lostcities_jax.networks import make_network
from lostcities_jax.regret import masked_softmax
from lostcities_jax.rules import CARD_PHASE, MINI, Rules
from lostcities_jax.settings import (
    Config,
    LearnerConfig,
    MemoryConfig,
    NetworkConfig,
    TraversalConfig,
)
from lostcities_jax.solvers.deep_cfr import make_deep_cfr
from lostcities_jax.solvers.fits import advantage_fit

RULES = Rules(colors=3, ranks=5, wagers=1, hand=4, penalty=-10, bonus_cards=4, bonus=10)
CONFIG = Config(
    iterations=6,
    rules=RULES,
    network=NetworkConfig(kind="mlp", hidden=16, layers=1),
    traversal=TraversalConfig(batch_width=8, traversals=30),
    memory=MemoryConfig(advantage_capacity=300, strategy_capacity=300),
    learner=LearnerConfig(batch_size=64, advantage_steps=10, strategy_steps=10),
)
# Poker has the smaller programs; both memories are filled more than once.
POKER = dataclasses.replace(
    CONFIG, game="leduc", memory=MemoryConfig(advantage_capacity=20, strategy_capacity=20)
)
GAMES = [
    pytest.param(POKER, id="leduc"),
    pytest.param(CONFIG, id="lost_cities", marks=pytest.mark.slow),
]


@functools.cache
def make(config, devices=1, home=0):
    game = make_game(config.game, config.rules)
    network = make_network(game, **dataclasses.asdict(config.network))
    machine = one_process(jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("lane",)))
    machine = machine._replace(home=jax.devices()[home])
    return game, network, make_deep_cfr(config, game, network, machine)


def remembered(config, width, devices, opponent="current", home=0):
    """The memories after a first iteration, in which every network is the uniform policy."""
    sizes = dataclasses.replace(config.traversal, batch_width=width, opponent=opponent)
    _, _, solver = make(dataclasses.replace(config, traversal=sizes), devices, home)
    state = solver.init()
    for player in (0, 1):
        state = solver.remember(state, player, 1, solver.traverse(state, player, 1))
    assert {leaf.device for leaf in jax.tree.leaves(state)} == {jax.devices()[home]}
    return jax.device_get((*state.advantage_memories, state.strategy_memory))


@pytest.fixture(scope="module", params=GAMES)
def narrow(request):
    """A configuration, and its memories of two lanes on one device."""
    return request.param, remembered(request.param, 2, 1)


@pytest.mark.parametrize(
    ("width", "devices", "home"),
    [
        (16, 3, 3),
        pytest.param(16, 4, 0, marks=pytest.mark.slow),
        pytest.param(2, 1, 1, marks=pytest.mark.slow),
    ],
)
def test_the_memories_do_not_depend_on_width_devices_or_home(narrow, width, devices, home):
    config, expected = narrow
    found = remembered(config, width, devices, home=home)
    for left, right in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(left, right)
    assert int(expected[0].seen[0]) > config.memory.advantage_capacity  # slots were replaced


def test_an_untrained_average_strategy_is_the_same_opponent_as_an_untrained_current_one(narrow):
    config, expected = narrow
    found = remembered(config, 2, 1, "average")
    for left, right in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(left, right)


def test_the_average_strategy_plays_the_opponent_when_it_is_asked_to():
    """A strategy network that always calls: then the opponent neither folds nor raises."""
    sizes = dataclasses.replace(POKER.traversal, batch_width=2, opponent="average")
    game, _, solver = make(dataclasses.replace(POKER, traversal=sizes), 1, 0)
    state = solver.init()
    params = jax.tree.map(lambda leaf: leaf, state.strategy.params)
    params["bet_head"]["bias"] = params["bet_head"]["bias"].at[CALL].set(50.0)
    state = state._replace(strategy=state.strategy._replace(params=params))
    tape, _ = solver.traverse(state, 0, 1)
    own, opponent = (jax.device_get(tape.rows[game.phases_of(player)[0]]) for player in (0, 1))
    assert opponent.live.any() and (opponent.action[opponent.live] == CALL).all()
    assert (own.action[own.live] != CALL).mean() > 0.2


@pytest.mark.usefixtures("quick_compile")
def test_the_rate_falls_over_each_fit_that_begins_with_new_weights():
    """All ten steps of the first of six iterations, as with a schedule of ten steps."""
    settings = dataclasses.replace(POKER.learner, warm_start=False, final_rate=0.1)
    config, game = dataclasses.replace(POKER, learner=settings), make_game("kuhn", RULES)
    network = make_network(game, "mlp", 4, 1)
    samples = memory.Samples(
        info=jnp.zeros((20, game.info_size), jnp.uint8),
        legal=jnp.ones((20, game.max_actions), bool),
        target=jnp.tile(jnp.arange(20.0)[:, None], game.max_actions),
        iteration=jnp.ones(20, jnp.int32),
    )
    filled = memory.Memory(samples, jnp.array([20, 0], jnp.uint32))
    rate = optax.linear_schedule(settings.learning_rate, 0.1 * settings.learning_rate, 10)
    optimizer = optax.chain(
        optax.clip_by_global_norm(settings.max_grad_norm), optax.adamw(rate, weight_decay=0.0)
    )
    learner = make_learner(game, network, squared_error, optimizer, 10, 64, settings.target_scale)
    machine = one_process(jax.sharding.Mesh(np.array(jax.devices()[:1]), ("lane",)))
    fits = advantage_fit(config, game, network, machine)
    weights = jnp.ones(config.iterations + 1)
    key, new = jax.random.key(1), learner.init(jax.random.key(0))
    expected, _ = jax.jit(learner.fit)(new, filled, weights, jnp.copy(key))
    fitted, _ = fits.fit(new, filled, 1, key)
    for left, right in zip(*map(jax.tree.leaves, (fitted.params, expected.params)), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("quick_compile")
def test_a_rule_based_opponent_plays_by_its_rules_in_traversals():
    sizes = dataclasses.replace(CONFIG.traversal, opponent="aggressive")
    game, _, solver = make(dataclasses.replace(CONFIG, rules=MINI, traversal=sizes))
    tape, _ = solver.traverse(solver.init(), 1, 1)
    play = jax.jit(batched_bot_policy(MINI), static_argnums=3)
    for k in game.phases_of(0):
        rows = jax.device_get(tape.rows[k])
        assert rows.live.any()
        expected = play(
            BOTS["aggressive"], rows.info[rows.live], rows.legal[rows.live], game.phases[k].head
        )
        np.testing.assert_allclose(rows.strategy[rows.live], expected, rtol=1e-6, atol=1e-7)


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.slow
def test_cut_after_one_decision_it_learns_to_discard():
    """With the score as the value after one decision, a play costs points, a discard none."""
    config = dataclasses.replace(
        CONFIG,
        network=NetworkConfig(hidden=16, layers=2),
        traversal=TraversalConfig(
            batch_width=128, traversals=1024, max_depth=1, epsilon=0.5, estimator="critic"
        ),
        memory=MemoryConfig(advantage_capacity=20_000, strategy_capacity=20_000),
        learner=LearnerConfig(
            batch_size=256, advantage_steps=150, strategy_steps=300, target_scale=20.0
        ),
    )
    game, network, solver = make(config)
    state = solver.init()
    for iteration in range(1, config.iterations + 1):
        for player in (0, 1):
            state = solver.remember(
                state, player, iteration, solver.traverse(state, player, iteration)
            )
            state, _ = solver.fit_advantage(state, player, iteration)
            state, _ = solver.fit_critic(state, player, iteration)
    state, _ = solver.fit_strategy(state, config.iterations)
    deals = jax.vmap(game.deal)(jax.random.split(jax.random.key(99), 64))
    infos = jax.vmap(lambda s: game.observe(s, 0))(deals)
    logits = network.apply(state.strategy.params, infos, CARD_PHASE)
    average = masked_softmax(logits, jnp.ones_like(logits, bool))
    assert float(average[:, RULES.hand :].sum(-1).mean()) > 0.9
    advantages = network.apply(state.advantage[0].params, infos, CARD_PHASE)
    assert float(advantages[:, RULES.hand :].mean() - advantages[:, : RULES.hand].mean()) > 0.1
