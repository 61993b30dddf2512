"""Adapters pass the tests of the libraries they adapt to, and pay what the game pays."""

import dataclasses
import functools
import importlib
import itertools
import sys
from collections import Counter

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pyspiel
import pytest
from gymnasium.utils.env_checker import check_env
from open_spiel.python.algorithms.external_sampling_mccfr import AverageType, ExternalSamplingSolver
from pettingzoo.test import api_test, render_test, seed_test
from pgx._src import api_test as pgx_api

from lostcities_jax.adapters import gymnasium_env, openspiel, pettingzoo_env, pgx_style
from lostcities_jax.adapters.views import largest_difference
from lostcities_jax.cards import all_cards
from lostcities_jax.errors import UserError
from lostcities_jax.exact.best_response import expected_value, nash_conv
from lostcities_jax.exact.tree import build_tree, uniform_table
from lostcities_jax.games.catalogue import make_game
from lostcities_jax.reference import Game
from lostcities_jax.rules import CLASSIC, MINI, Rules

LONG_MINI = dataclasses.replace(MINI, max_turns=1000)


# pgx


@pytest.fixture(scope="module")
def compiled():
    """`rules -> (init, step)` of the environment in the style of pgx."""

    @functools.cache
    def make(rules):
        env = pgx_style.LostCities(rules)
        return jax.jit(env.init), jax.jit(env.step)

    return make


def reference_of(state):
    return Game(state._rules, np.asarray(state._game.deck).tolist())


def first_legal(state, source):
    return int(source.choice(np.flatnonzero(state.legal_action_mask)))


def test_pgx_finds_nothing_wrong(monkeypatch):
    # pgx knows its own games by name, and picks actions along an axis that one game lacks.
    monkeypatch.setattr(pgx_api, "get_args", lambda _: (pgx_style.ENV_ID,))
    sample = jax.jit(lambda key, mask: jax.random.categorical(key, jnp.log(mask), axis=-1))
    monkeypatch.setattr(pgx_api, "act_randomly", sample)
    pgx_api.api_test(pgx_style.LostCities(LONG_MINI), num=3)


@pytest.mark.parametrize(("rules", "seed"), [(MINI, 0), (MINI, 1), (LONG_MINI, 2), (LONG_MINI, 3)])
def test_a_pgx_game_goes_as_the_reference_game(compiled, rules, seed):
    init, step = compiled(rules)
    source = np.random.default_rng(seed)
    state = init(jax.random.key(seed))
    game = reference_of(state)
    steps = 0
    while not game.is_over:
        assert not state.terminated and not state.truncated and not state.rewards.any()
        assert state.current_player == game.player
        assert np.flatnonzero(state.legal_action_mask).tolist() == game.legal_actions()
        action = first_legal(state, source)
        state = step(state, jnp.int32(action))
        game.step(action)
        steps += 1
    first, second = game.scores()
    assert state.rewards.tolist() == [first - second, second - first]
    assert (bool(state.terminated), bool(state.truncated)) == (not game.timed_out, game.timed_out)
    assert state._step_count == steps
    assert state.legal_action_mask.all()


def test_pgx_arrays_have_the_shapes_and_types_that_pgx_promises(compiled):
    env, (init, step) = pgx_style.LostCities(MINI), compiled(MINI)
    dealt = init(jax.random.key(0))
    assert dealt.observation.shape == env.observation_shape
    assert dealt.observation.dtype == jnp.float32
    assert dealt.rewards.shape == (env.num_players,)
    assert dealt.rewards.dtype == jnp.float32
    assert dealt.legal_action_mask.shape == (env.num_actions,) == (MINI.num_actions,)
    after = step(dealt, dealt.legal_action_mask.argmax())
    assert jax.tree.map(jnp.shape, dealt) == jax.tree.map(jnp.shape, after)
    types = [jax.tree.map(lambda leaf: leaf.dtype, state) for state in (dealt, after)]
    assert types[0] == types[1]


def ended(compiled, rules, seed=0):
    init, step = compiled(rules)
    source = np.random.default_rng(seed)
    state = init(jax.random.key(seed))
    while not state.terminated and not state.truncated:
        state = step(state, jnp.int32(first_legal(state, source)))
    return state


def test_a_step_of_a_finished_pgx_game_changes_nothing_and_pays_nothing(compiled):
    _, step = compiled(MINI)
    state = ended(compiled, MINI)
    for action in range(MINI.num_actions):
        after = step(state, jnp.int32(action))
        assert not after.rewards.any()
        same = jax.tree.map(np.array_equal, after.replace(rewards=state.rewards), state)
        assert jax.tree.all(same)


@pytest.mark.parametrize("action", [2 * MINI.hand, MINI.num_actions, -1])
def test_an_illegal_pgx_action_ends_the_game_at_the_movers_cost(compiled, action):
    init, step = compiled(MINI)
    state = step(init(jax.random.key(0)), jnp.int32(action))
    assert state.terminated and not state.truncated
    assert state.rewards.tolist() == [-24, 24]
    assert state.legal_action_mask.all()
    assert not step(state, jnp.int32(0)).rewards.any()


def test_auto_reset_deals_the_next_game_and_keeps_the_last_rewards(compiled):
    env = pgx_style.LostCities(MINI)
    init, _ = compiled(MINI)
    step = jax.jit(pgx_style.auto_reset(env.step, env.init))
    source = np.random.default_rng(0)
    state = init(jax.random.key(0))
    game = reference_of(state)
    while not game.is_over:
        action = first_legal(state, source)
        game.step(action)
        state = step(state, jnp.int32(action), jax.random.key(100 + game.turn))
    lead = game.scores()[0] - game.scores()[1]
    assert state.rewards.tolist() == [lead, -lead]
    assert state.terminated or state.truncated
    dealt = init(jax.random.key(100 + game.turn))
    assert jax.tree.all(jax.tree.map(np.array_equal, state._game, dealt._game))
    assert np.array_equal(state.legal_action_mask, dealt.legal_action_mask)
    after = step(state, dealt.legal_action_mask.argmax(), jax.random.key(0))
    assert not after.terminated and not after.truncated and not after.rewards.any()
    assert after._step_count == 1


def test_an_observation_hides_the_other_hand_and_the_deck(compiled):
    state = compiled(MINI)[0](jax.random.key(0))
    observe = jax.jit(pgx_style.LostCities(MINI).observe)
    game = state._game
    seen = np.asarray(observe(state, 0))
    assert np.array_equal(seen, state.observation)
    unseen = np.concatenate([game.hands[1], game.deck[2 * MINI.hand :]]).tolist()
    others = set()
    for hand in itertools.combinations(sorted(unseen), MINI.hand):
        hands = jnp.stack([game.hands[0], jnp.array(hand, jnp.uint8)])
        other = state.replace(_game=game._replace(hands=hands, deck=game.deck[::-1]))
        assert np.array_equal(observe(other, 0), seen)
        others.add(np.asarray(observe(other, 1)).tobytes())
    assert len(others) == 6  # hands of two cards out of four


def test_pgx_lanes_are_single_games(compiled):
    env, (init, step) = pgx_style.LostCities(MINI), compiled(MINI)
    lanes = jax.jit(jax.vmap(env.init))(jax.random.split(jax.random.key(7), 3))
    lanes = jax.jit(jax.vmap(env.step))(lanes, lanes.legal_action_mask.argmax(-1))
    one = init(jax.random.split(jax.random.key(7), 3)[1])
    one = step(one, one.legal_action_mask.argmax())
    of_lane = jax.tree.map(lambda leaf: leaf[1], lanes)
    assert jax.tree.all(jax.tree.map(np.array_equal, of_lane, one))
    assert lanes.to_svg().count("<svg ") == 4 and one.to_svg().count("<svg ") == 1


# PettingZoo


# What PettingZoo says of its own games too, and excuses them by name: observations that are a
# dict for the sake of the mask, and a mask without an action when the game is over.
DICT_OBSERVATIONS = [
    pytest.mark.filterwarnings(f"ignore:{text}:UserWarning")
    for text in (
        "Observation is not a NumPy array",
        "Observation space for each agent probably should be",
        "Action mask numpy array is all zeros",
    )
]


@pytest.fixture(params=[MINI, CLASSIC], ids=["mini", "classic"])
def zoo(request):
    return functools.partial(pettingzoo_env.env, request.param)


def as_pettingzoo_excuses(test):
    for mark in DICT_OBSERVATIONS:
        test = mark(test)
    return test


@as_pettingzoo_excuses
def test_pettingzoo_finds_nothing_wrong(zoo):
    api_test(zoo(), num_cycles=60)


def test_pettingzoo_games_follow_from_their_seed(zoo):
    seed_test(zoo, num_cycles=60)


def test_pettingzoo_finds_the_pictures(zoo):
    render_test(zoo, {"svg": lambda result: result.startswith("<svg ")})


@pytest.mark.parametrize("seed", range(4))
def test_pettingzoo_pays_the_difference_in_points_once(seed):
    env = pettingzoo_env.env(MINI)
    env.reset(seed=seed)
    total = Counter()
    source = np.random.default_rng(seed)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, _ = env.last()
        total[agent] += reward
        if terminated or truncated:
            env.step(None)
            continue
        mask = observation["action_mask"]
        other = "player_1" if agent == "player_0" else "player_0"
        assert mask.any() and not env.observe(other)["action_mask"].any()
        env.step(int(source.choice(np.flatnonzero(mask))))
    game = env.unwrapped._game
    first, second = game.scores()
    assert (total["player_0"], total["player_1"]) == (first - second, second - first)
    assert truncated == game.timed_out and terminated != truncated


def test_an_illegal_action_ends_a_pettingzoo_game_and_is_refused_without_wrappers():
    env = pettingzoo_env.env(MINI)
    env.reset(seed=0)
    env.step(2 * MINI.hand)
    assert env.terminations == {"player_0": True, "player_1": True}
    assert env.rewards == {"player_0": -largest_difference(MINI), "player_1": 0}
    raw = pettingzoo_env.raw_env(MINI)
    raw.reset(seed=0)
    with pytest.raises(UserError, match=r"^action 4 is not legal now; allowed: 0, 1, 2, 3$"):
        raw.step(2 * MINI.hand)


# Gymnasium


@pytest.mark.parametrize(
    "options", [{"rules": MINI, "opponent": "random", "reward": "dense"}, {"seat": 1}]
)
def test_gymnasium_finds_nothing_wrong(options):
    check_env(gymnasium.make(gymnasium_env.ENV_ID, **options).unwrapped)


def play_out(env, seed):
    """Rewards of a game of random actions, and the environment's last answers."""
    source = np.random.default_rng(seed)
    observation, info = env.reset(seed=seed)
    rewards, over = [], False
    while not over:
        assert np.array_equal(info["action_mask"], observation["action_mask"])
        action = int(source.choice(np.flatnonzero(info["action_mask"])))
        observation, reward, terminated, truncated, info = env.step(action)
        rewards.append(reward)
        over = terminated or truncated
    return rewards, terminated, truncated


@pytest.mark.parametrize(("seat", "seed"), [(0, 0), (0, 1), (1, 2), (1, 3), (None, 4)])
def test_gymnasium_pays_the_difference_in_points_at_the_end_or_bit_by_bit(seat, seed):
    env = gymnasium_env.LostCitiesEnv("noisy", MINI, seat)
    rewards, terminated, truncated = play_out(env, seed)
    points = env._game.scores()
    assert rewards == [0] * (len(rewards) - 1) + [points[env.seat] - points[1 - env.seat]]
    assert (terminated, truncated) == (not env._game.timed_out, env._game.timed_out)
    dense, *_ = play_out(gymnasium_env.LostCitiesEnv("noisy", MINI, seat, reward="dense"), seed)
    assert sum(dense) == sum(rewards) and len(dense) == len(rewards)


def test_the_opponent_of_gymnasium_only_moves_in_its_own_seat():
    env = gymnasium_env.LostCitiesEnv("discard-only", MINI, seat=1)
    for seed in range(4):
        env.reset(seed=seed)
        assert (env._game.player, env._game.turn) == (1, 1)
        play_out(env, seed)
        assert not any(env._game.expeditions[0])  # the bot never plays a card


def test_an_illegal_gymnasium_action_costs_more_than_any_game_and_is_named():
    for reward in ("end", "dense"):
        env = gymnasium_env.LostCitiesEnv("random", MINI, seat=0, reward=reward)
        _, info = env.reset(seed=0)
        _, first, *_ = env.step(int(info["action_mask"].argmax()))
        _, last, terminated, truncated, info = env.step(0)
        assert first + last == -largest_difference(MINI)
        assert terminated and not truncated
        assert info["illegal"].startswith("action 0 is not legal; allowed: 4")
        with pytest.raises(UserError, match="the game is over; allowed: reset"):
            env.step(0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: gymnasium_env.LostCitiesEnv("balancd"),
            "'balancd' is neither a bot nor .*'balanced'",
        ),
        (lambda: gymnasium_env.LostCitiesEnv(seat=2), "seat is 2; allowed: 0, 1, None"),
        (lambda: gymnasium_env.LostCitiesEnv(reward="dens"), "reward is 'dens'.*mean 'dense'"),
        (lambda: gymnasium_env.LostCitiesEnv(render_mode="svgs"), "render_mode is 'svgs'.*'svg'"),
        (lambda: pettingzoo_env.env(render_mode="text"), "render_mode is 'text'; allowed: human"),
    ],
)
def test_a_mistake_in_an_environment_is_named_in_one_line(make, message):
    with pytest.raises(UserError, match=f"^{message}") as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_gymnasium_action_outside_the_space_is_refused():
    env = gymnasium_env.LostCitiesEnv("random", MINI, seat=0)
    env.reset(seed=0)
    for action in (-1, MINI.num_actions, 0.5, "0"):
        with pytest.raises(UserError, match=r"^action is .*; allowed: 0 to 6$"):
            env.step(action)


def test_gymnasium_shows_the_agents_hand_alone():
    env = gymnasium_env.LostCitiesEnv("random", MINI, seat=1, render_mode="ansi")
    env.reset(seed=0)
    assert "hand of player 0: 2 cards" in env.render()


# OpenSpiel


@pytest.fixture(scope="module")
def spiel_mini():
    return pyspiel.load_game(openspiel.GAME_TYPE.short_name, dataclasses.asdict(MINI))


@pytest.fixture(scope="module")
def tree():
    return build_tree(make_game("lost_cities", MINI))


@pytest.mark.parametrize("parameters", [dataclasses.asdict(MINI), {"colors": 3, "max_turns": 30}])
def test_open_spiel_finds_nothing_wrong_in_random_games(parameters):
    game = pyspiel.load_game(openspiel.GAME_TYPE.short_name, parameters)
    pyspiel.random_sim_test(game, num_sims=2, serialize=True, verbose=False)


def test_parameters_of_open_spiel_are_the_rules():
    game = pyspiel.load_game("python_lost_cities(colors=3,hand=5,penalty=-10)")
    assert game.rules == Rules(colors=3, hand=5, penalty=-10)
    assert pyspiel.load_game("python_lost_cities").rules == CLASSIC
    with pytest.raises(ValueError, match=r"^rules\.hand is 50; allowed: 1 to 40$"):
        pyspiel.load_game("python_lost_cities(hand=50)")


def test_open_spiel_deals_hands_by_the_hypergeometric_law():
    rules = Rules(colors=2, ranks=2, wagers=2, hand=3)
    game = pyspiel.load_game("python_lost_cities", dataclasses.asdict(rules))
    dealt = Counter()

    def deal(state, probability, cards):
        if len(cards) == rules.hand:
            dealt[cards] += probability
            return
        for card, share in state.chance_outcomes():
            deal(state.child(card), probability * share, (*cards, card))

    deal(game.new_initial_state(), 1.0, ())
    hands = Counter(itertools.combinations(all_cards(rules).tolist(), rules.hand))
    total = sum(hands.values())
    assert dealt == pytest.approx({hand: count / total for hand, count in hands.items()})


def test_what_cannot_be_is_refused_by_open_spiel_states(spiel_mini):
    state = spiel_mini.new_initial_state()
    with pytest.raises(ValueError, match=r"^card 9 cannot come next; allowed: \[0, 1, 2, 3, 4\]$"):
        state.apply_action(9)
    for card in (0, 1, 2, 4):
        state.apply_action(card)
    with pytest.raises(ValueError, match=r"^action 4 in the card phase; allowed: \[0, 1, 2, 3\]$"):
        state.apply_action(4)


def next_cards(game, deal):
    """Cards of a deal of the exact tree in the order in which chance names them here."""
    hands, deck = game.all_deals().states.hands[deal], game.all_deals().states.deck[deal]
    return [*hands.reshape(-1).tolist(), *deck[hands.size :].tolist()]


@pytest.fixture(scope="module")
def history_ids(spiel_mini, tree):
    """`(player, information state string) -> history id`, from a walk through both trees."""
    children = np.full((len(tree.parent), tree.histories.legal.shape[-1]), -1)
    inner = tree.parent >= 0
    children[tree.parent[inner], tree.action[inner]] = inner.nonzero()[0]
    game = make_game("lost_cities", MINI)
    cards = [next_cards(game, deal) for deal in range(len((~inner).nonzero()[0]))]
    pairs, tensors = set(), set()
    recall = pyspiel.IIGObservationType(perfect_recall=True)
    observer = spiel_mini.make_py_observer(recall)
    stack = [
        (spiel_mini.new_initial_state(), node, tuple(cards[deal]))
        for deal, node in enumerate((~inner).nonzero()[0])
    ]
    while stack:
        state, node, coming = stack.pop()
        while state.is_chance_node():
            state.apply_action(coming[0])
            coming = coming[1:]
        if state.is_terminal():
            assert tree.player[node] == -1 and tree.value[node] == state.returns()[0]
            continue
        player, history = state.current_player(), int(tree.history[node])
        assert player == tree.player[node]
        actions = state.legal_actions()
        first = 0 if actions[0] < MINI.num_card_actions else MINI.num_card_actions
        local = [action - first for action in actions]
        assert local == tree.histories.legal[history].nonzero()[0].tolist()
        pairs.add(((player, state.information_state_string()), history))
        observer.set_from(state, player)
        tensors.add((observer.tensor.tobytes(), history))
        for action in actions:
            child = int(children[node, action - first])
            stack.append((state.child(action), child, coming))
    ids = dict(pairs)
    assert len(pairs) == len(ids) == len(dict(tensors)) == len(tensors)
    return ids


def test_information_states_of_open_spiel_remember_all_and_no_more(history_ids, tree):
    assert len(history_ids) == len(tree.histories.legal)


def test_uniform_play_is_worth_and_loses_the_same_to_open_spiel(spiel_mini, tree):
    uniform = pyspiel.UniformRandomPolicy(spiel_mini)
    table = uniform_table(tree)
    value, _ = pyspiel.expected_returns(spiel_mini.new_initial_state(), uniform, -1, False)
    assert value == pytest.approx(expected_value(tree, table), abs=1e-6)
    exploitability = pyspiel.exploitability(spiel_mini, uniform)
    assert exploitability == pytest.approx(nash_conv(tree, table) / 2, abs=1e-6)


def test_mccfr_of_open_spiel_learns_the_game(spiel_mini, tree, history_ids):
    np.random.seed(0)
    solver = ExternalSamplingSolver(spiel_mini, AverageType.SIMPLE)
    found = [nash_conv(tree, uniform_table(tree))]
    for iterations in (100, 500):
        for _ in range(iterations):
            solver.iteration()
        found.append(nash_conv(tree, average_table(solver, tree, history_ids)))
    assert found[2] < 0.6 * found[1] < 0.6 * found[0]


def average_table(solver, tree, history_ids):
    """The average strategy of an OpenSpiel solver, uniform where it has not been."""
    table = uniform_table(tree)
    for (_, string), history in history_ids.items():
        if string in solver._infostates:
            sums = np.asarray(solver._infostates[string][1])
            table[history, tree.histories.legal[history]] = sums / sums.sum()
    return table


# What they share


@pytest.mark.parametrize(
    ("module", "package"),
    [("pettingzoo_env", "pettingzoo"), ("gymnasium_env", "gymnasium"), ("openspiel", "pyspiel")],
)
def test_an_import_without_the_extra_names_it_in_one_line(module, package, monkeypatch):
    name = f"lostcities_jax.adapters.{module}"
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError) as caught:
        importlib.import_module(name)
    text = f"this adapter needs {package}: pip install 'lostcities_jax[adapters]'"
    assert str(caught.value) == text


def test_the_price_of_an_illegal_action_exceeds_every_game():
    # All cards of five colours, 156 points each, against three wagers each, -80.
    assert largest_difference(CLASSIC) == 5 * (156 + 80)
    # (2 + 3 - 4) * 2 + 2 = 4 against -4 * 2 in two colours.
    assert largest_difference(MINI) == 2 * (4 + 8)
