"""Trees, values and exploitability against OpenSpiel, which shares no code with them."""

import copy
import functools

import numpy as np
import pytest

from lostcities_jax.exact.best_response import expected_value, nash_conv
from lostcities_jax.exact.cfr import run_cfr
from lostcities_jax.exact.tree import build_tree, policy_table, uniform_table
from lostcities_jax.games.catalogue import GAMES, make_game
from lostcities_jax.reference import Game as ReferenceGame
from lostcities_jax.rules import CARD_PHASE, MINI

pyspiel = pytest.importorskip("pyspiel")

from open_spiel.python.algorithms import cfr as spiel_cfr  # noqa: E402
from open_spiel.python.algorithms.expected_game_score import policy_value  # noqa: E402
from open_spiel.python.algorithms.exploitability import nash_conv as spiel_nash_conv  # noqa: E402

TOLERANCE = 1e-6
SPIEL_NAMES = {
    "kuhn": "kuhn_poker",
    "leduc": "leduc_poker",
    "lost_cities": "python_mini_lost_cities",
}


@functools.cache
def deals_of_mini():
    """The deals of the mini game as decks for the reference engine."""
    states = make_game("lost_cities", MINI).all_deals().states
    decks = []
    for hands, deck in zip(states.hands, states.deck, strict=True):
        in_turn = hands.T.reshape(-1)  # dealt one at a time, player 0 first
        decks.append([*in_turn.tolist(), *deck[len(in_turn) :].tolist()])
    return decks


class Position:
    """A position of the reference engine, with all that each player has seen and done.

    Positions never change, so that copies of a state may share them.
    """

    def __init__(self, game, seen):
        self.game = game
        self.seen = seen
        self.children = {}

    def __deepcopy__(self, memo):
        return self

    def legal(self):
        first = 0 if self.game.phase == CARD_PHASE else 2 * MINI.hand
        return [action - first for action in self.game.legal_actions()]

    def child(self, action):
        if action not in self.children:
            self.children[action] = self._after(action)
        return self.children[action]

    def _after(self, action):
        before, game = self.game, copy.deepcopy(self.game)
        mover = before.player
        if before.phase == CARD_PHASE:
            card = before.hands[mover][action % MINI.hand]
            public = f"{'plays' if action < MINI.hand else 'discards'} {card}"
            game.step(action)
        else:
            source = "deck" if action == 0 else f"pile {action - 1} {before.piles[action - 1][-1]}"
            public = f"draws {source}"
            game.step(2 * MINI.hand + action)
        seen = list(self.seen)
        for player in (0, 1):
            seen[player] += f"; {mover} {public}"
        seen[mover] += f" by {action}, holds {game.hands[mover]}"
        return Position(game, tuple(seen))


@functools.cache
def first_position(deal):
    game = ReferenceGame(MINI, deals_of_mini()[deal])
    return Position(game, tuple(f"{player} holds {game.hands[player]}" for player in (0, 1)))


GAME_TYPE = pyspiel.GameType(
    short_name="python_mini_lost_cities",
    long_name="Mini Lost Cities on the reference engine",
    dynamics=pyspiel.GameType.Dynamics.SEQUENTIAL,
    chance_mode=pyspiel.GameType.ChanceMode.EXPLICIT_STOCHASTIC,
    information=pyspiel.GameType.Information.IMPERFECT_INFORMATION,
    utility=pyspiel.GameType.Utility.ZERO_SUM,
    reward_model=pyspiel.GameType.RewardModel.TERMINAL,
    max_num_players=2,
    min_num_players=2,
    provides_information_state_string=True,
    provides_information_state_tensor=False,
    provides_observation_string=False,
    provides_observation_tensor=False,
)


class MiniGame(pyspiel.Game):
    """The mini game for OpenSpiel: one chance node draws the hands and the deck."""

    def __init__(self, params=None):
        info = pyspiel.GameInfo(
            num_distinct_actions=2 * MINI.hand,
            max_chance_outcomes=len(deals_of_mini()),
            num_players=2,
            min_utility=-100.0,
            max_utility=100.0,
            utility_sum=0.0,
            max_game_length=2 * MINI.max_turns,
        )
        super().__init__(GAME_TYPE, info, params or {})

    def new_initial_state(self):
        return MiniState(self)

    def make_py_observer(self, iig_obs_type=None, params=None):
        return MiniObserver()


class MiniState(pyspiel.State):
    """A state: nothing before the deal, then a position."""

    def __init__(self, game):
        super().__init__(game)
        self.position = None

    def current_player(self):
        if self.position is None:
            return pyspiel.PlayerId.CHANCE
        game = self.position.game
        return pyspiel.PlayerId.TERMINAL if game.is_over else game.player

    def _legal_actions(self, player):
        return self.position.legal()

    def chance_outcomes(self):
        count = len(deals_of_mini())
        return [(deal, 1 / count) for deal in range(count)]

    def _apply_action(self, action):
        deals = self.position is None
        self.position = first_position(action) if deals else self.position.child(action)

    def _action_to_string(self, player, action):
        return f"{player}:{action}"

    def is_terminal(self):
        return self.position is not None and self.position.game.is_over

    def returns(self):
        if not self.is_terminal():
            return [0.0, 0.0]
        first, second = self.position.game.scores()
        return [float(first - second), float(second - first)]

    def __str__(self):
        return "" if self.position is None else " | ".join(self.position.seen)


class MiniObserver:
    """Information states are all that a player has seen and done, in order."""

    def __init__(self):
        self.tensor = None
        self.dict = {}

    def set_from(self, state, player):
        pass

    def string_from(self, state, player):
        return state.position.seen[player]


pyspiel.register_game(GAME_TYPE, MiniGame)


@functools.cache
def tree_of(name):
    return build_tree(make_game(name, MINI))


@functools.cache
def spiel_game(name):
    return pyspiel.load_game(SPIEL_NAMES[name])


def chance_action(name, deal, state):
    """What OpenSpiel's chance does next in a deal: the poker games draw card by card."""
    if name == "lost_cities":
        return deal
    cards = make_game(name, MINI).all_deals().states[deal]
    drawn = sum(item.player == pyspiel.PlayerId.CHANCE for item in state.full_history())
    return int(cards[drawn])


@functools.cache
def history_ids(name):
    """Walks both trees at once: `(player, information state string) -> history id`."""
    tree = tree_of(name)
    children = np.full((len(tree.parent), tree.histories.legal.shape[-1]), -1)
    inner = tree.parent >= 0
    children[tree.parent[inner], tree.action[inner]] = inner.nonzero()[0]
    pairs = set()
    stack = [
        (spiel_game(name).new_initial_state(), node, deal)
        for deal, node in enumerate((~inner).nonzero()[0])
    ]
    while stack:
        state, node, deal = stack.pop()
        while state.is_chance_node():
            state.apply_action(chance_action(name, deal, state))
        if state.is_terminal():
            assert tree.player[node] == -1
            assert tree.value[node] == state.returns()[0]
            continue
        player, history = state.current_player(), int(tree.history[node])
        assert player == tree.player[node]
        assert state.legal_actions() == tree.histories.legal[history].nonzero()[0].tolist()
        pairs.add(((player, state.information_state_string()), history))
        for action in state.legal_actions():
            stack.append((state.child(action), int(children[node, action]), deal))
    ids = dict(pairs)
    # As many pairs as strings and as histories: each string is one history.
    assert len(pairs) == len(ids) == len(tree.histories.legal)
    return ids


class TablePolicy:
    """A table as OpenSpiel asks policies."""

    def __init__(self, name, table):
        self.ids = history_ids(name)
        self.table = table

    def action_probabilities(self, state, player_id=None):
        key = (state.current_player(), state.information_state_string())
        row = self.table[self.ids[key]]
        return {action: float(row[action]) for action in state.legal_actions()}


def random_policy(seed):
    def policy(player, head, info, legal):
        source = np.random.default_rng([seed, player, head])
        return np.where(legal, source.random(legal.shape) ** 3, 0.0)

    return policy


@pytest.mark.parametrize("name", GAMES)
def test_histories_are_the_information_states_of_open_spiel(name):
    assert len(history_ids(name)) == len(tree_of(name).histories.legal)


@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_packed_info_states_of_poker_are_the_information_states_of_open_spiel(name):
    tree = tree_of(name)
    assert len(np.unique(tree.infos.packed, axis=0)) == len(tree.infos.packed)
    assert len(np.unique(tree.histories.info)) == len(history_ids(name))


CASES = [(name, kind) for name in GAMES for kind in ("uniform", "random", "cfr")]
CASES += [(name, "another random") for name in ("kuhn", "leduc")]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_values_and_exploitability_agree_with_open_spiel(name, kind):
    tree = tree_of(name)
    if kind == "uniform":
        table = uniform_table(tree)
    elif kind == "cfr":
        table = run_cfr(tree, "cfr", 20)
    else:
        table = policy_table(tree, random_policy(len(kind)))
    policy = TablePolicy(name, table)
    value, _ = policy_value(spiel_game(name).new_initial_state(), [policy, policy])
    assert expected_value(tree, table) == pytest.approx(value, abs=TOLERANCE)
    expected = spiel_nash_conv(spiel_game(name), policy)
    assert nash_conv(tree, table) == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize("variant", ["cfr", "cfr_plus"])
@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_average_strategies_of_cfr_agree_with_open_spiel(name, variant):
    plus = variant == "cfr_plus"
    solver = spiel_cfr._CFRSolver(
        spiel_game(name),
        alternating_updates=plus,
        linear_averaging=plus,
        regret_matching_plus=plus,
    )
    for _ in range(4):
        solver.evaluate_and_update_policy()
    average = solver.average_policy()
    table = run_cfr(tree_of(name), variant, 4)
    for (_, string), history in history_ids(name).items():
        expected = np.zeros(table.shape[-1])
        chosen = average.policy_for_key(string)
        expected[: len(chosen)] = chosen
        np.testing.assert_allclose(table[history], expected, atol=1e-9, err_msg=string)
