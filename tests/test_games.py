"""Every game keeps to the protocol: turns, ends, secrets and the chances of the deal."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lostcities_jax.cards import EMPTY
from lostcities_jax.errors import UserError
from lostcities_jax.games.catalogue import GAMES, make_game
from lostcities_jax.rules import CLASSIC, MINI

LANES = 4000


@functools.cache
def batched(name, function, k=None):
    """A function of a game over lanes, compiled; `k` for those that take a phase."""
    one = getattr(make_game(name, MINI), function)
    if function == "step":
        return jax.jit(jax.vmap(lambda state, action: one(state, k, action)))
    return jax.jit(jax.vmap(one if k is None else lambda state: one(state, k)))


def look(name, states, k):
    """What phase `k` finds: terminal, deciding, legal and packed info states, as NumPy."""
    over = np.asarray(batched(name, "is_terminal")(states))
    decides = ~over
    if make_game(name, MINI).is_turn is not None:
        decides = np.asarray(batched(name, "is_turn", k)(states))
    legal = np.asarray(batched(name, "legal", k)(states))
    return over, decides, legal, np.asarray(batched(name, "observe", k)(states))


@functools.cache
def playout(name, seed=0):
    """Random games as rows `(k, states, over, decides, legal, info)`, then the last states."""
    game = make_game(name, MINI)
    source = np.random.default_rng(seed)
    states = jax.device_get(batched(name, "deal")(jax.random.split(jax.random.key(seed), LANES)))
    rows = []
    for k in list(range(len(game.phases))) * game.max_cycles:
        over, decides, legal, info = look(name, states, k)
        rows.append((k, states, over, decides, legal, info))
        # The last of the largest random numbers among the legal ones; any action elsewhere.
        action = (legal + source.random(legal.shape)).argmax(-1).astype(np.int32)
        moved = jax.device_get(batched(name, "step", k)(states, action))
        states = select(decides, moved, states)
    return rows, states


def select(mask, new, old):
    def choose(a, b):
        return np.where(mask.reshape(mask.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(choose, new, old)


def equal_rows(left, right):
    """Lanes in which all leaves are equal."""
    same = [
        (a == b).reshape(len(a), -1).all(-1)
        for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    ]
    return np.all(same, axis=0)


def dealt(name, states):
    """What chance fixed, without the order inside a hand."""
    if name != "lost_cities":
        return np.asarray(states)
    deck = states.deck[:, MINI.num_cards - MINI.deck_after_deal :]
    return np.concatenate([states.hands.reshape(len(deck), -1), deck], axis=-1)


def with_other_secrets(name, states, player, source):
    """The same games with other cards where `player` cannot see, and which lanes have them."""
    lanes = np.arange(LANES)
    other = 1 - player
    if name == "lost_cities":
        next_card = MINI.num_cards - states.deck_left.astype(int)
        may = (states.deck_left > 0) & (states.known[:, other] == 0).all(-1)
        next_card = np.minimum(next_card, MINI.num_cards - 1)
        hands, deck = states.hands.copy(), states.deck.copy()
        deck[lanes, next_card] = np.where(may, states.hands[:, other, 0], deck[lanes, next_card])
        hands[:, other, 0] = np.where(may, states.deck[lanes, next_card], hands[:, other, 0])
        may &= states.hands[:, other, 0] != EMPTY
        return states._replace(hands=np.sort(hands, axis=-1), deck=deck), may
    # The poker games: put the other's card and, while it is hidden, the public one elsewhere.
    cards = 3 if name == "kuhn" else 6
    shuffled = source.permuted(np.tile(np.arange(cards, dtype=np.uint8), (LANES, 1)), axis=-1)
    hidden = 1 if name == "kuhn" else 1 + (states[:, 3] < 8)
    changed = states.copy()
    changed[:, other] = shuffled[:, 0]
    taken = [changed[:, other] == states[:, player]]
    if name == "leduc":
        changed[:, 2] = np.where(hidden == 2, shuffled[:, 1], states[:, 2])
        taken += [changed[:, 2] == changed[:, seat] for seat in (0, 1)]
    return changed, ~np.any(taken, axis=0)


@pytest.mark.parametrize("name", GAMES)
def test_random_games_end_within_the_longest_and_not_before(name):
    rows, last = playout(name)
    assert np.asarray(batched(name, "is_terminal")(last)).all()
    # Some game needs the last cycle, so `max_cycles` is exact.
    cycle = len(make_game(name, MINI).phases)
    assert not np.all(rows[-cycle][2])


@pytest.mark.parametrize("name", GAMES)
def test_a_finished_game_stays_as_it_is(name):
    game = make_game(name, MINI)
    _, last = playout(name)
    for k, phase in enumerate(game.phases):
        for action in range(phase.num_actions):
            actions = np.full(LANES, action, np.int32)
            after = jax.device_get(batched(name, "step", k)(last, actions))
            assert equal_rows(after, last).all()


@pytest.mark.parametrize("name", GAMES)
def test_who_decides_has_a_legal_action_and_nobody_else(name):
    game = make_game(name, MINI)
    for k, states, over, decides, legal, _ in playout(name)[0]:
        assert legal.shape == (LANES, game.phases[k].num_actions)
        assert not np.any(over & decides)
        assert np.all(legal[decides].any(-1))
        if name != "lost_cities":
            assert not np.any(legal[~decides])
        assert np.all(np.asarray(batched(name, "is_timeout")(states)) <= over)


def test_an_action_out_of_turn_changes_nothing():
    idle = 0
    for k, states, over, decides, legal, _ in playout("leduc")[0]:
        for action in range(legal.shape[-1]):
            actions = np.full(LANES, action, np.int32)
            after = jax.device_get(batched("leduc", "step", k)(states, actions))
            assert equal_rows(after, states)[~decides].all()
        idle += np.sum(~decides & ~over)
    assert idle > 0


@pytest.mark.parametrize("name", GAMES)
def test_info_states_do_not_tell_hidden_cards(name):
    game = make_game(name, MINI)
    source = np.random.default_rng(1)
    told = 0
    for k, states, _, decides, legal, info in playout(name)[0]:
        changed, may = with_other_secrets(name, states, game.phases[k].player, source)
        _, _, other_legal, other_info = look(name, changed, k)
        differs = may & decides & ~equal_rows(changed, states)
        np.testing.assert_array_equal(other_info[differs], info[differs])
        np.testing.assert_array_equal(other_legal[differs], legal[differs])
        told += differs.sum()
    assert told > LANES / 2


@pytest.mark.parametrize("name", GAMES)
def test_the_open_view_adds_the_other_hand_and_no_order_of_the_cards_to_come(name):
    game = make_game(name, MINI)
    for k, states, _, decides, _, info in playout(name)[0]:
        opened = np.asarray(batched(name, "observe_open", k)(states))
        changed = np.any(opened != info, axis=-1)
        if name == "lost_cities":
            deck = states.deck.copy()  # the next two cards of either player change places
            for lane, left in enumerate(states.deck_left):
                own = deck[lane, len(deck[lane]) - left :: 2]
                own[:2] = own[:2][::-1].copy()
            later = states._replace(deck=deck)
        else:
            player = game.phases[k].player
            np.testing.assert_array_equal(opened[:, 1], states[:, 1 - player])
            assert changed.all()
            later = states.copy()
            if name == "leduc":
                later[:, 2] = np.where(states[:, 3] < 8, 17, states[:, 2])
        reopened = np.asarray(batched(name, "observe_open", k)(later))
        np.testing.assert_array_equal(reopened[decides], opened[decides])


@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_features_tell_the_info_states_apart(name):
    game = make_game(name, MINI)
    rows = [row[-1][row[3]] for row in playout(name)[0]]
    info = np.unique(np.concatenate(rows), axis=0)
    features = np.asarray(game.encode(info))
    assert features.dtype == np.float32
    # Suits mean nothing in Leduc poker, and its features leave them out.
    kinds = info.copy()
    if name == "leduc":
        kinds[:, :3] //= 2
    assert len(np.unique(features, axis=0)) == len(np.unique(kinds, axis=0))


@pytest.mark.parametrize("name", GAMES)
def test_functions_of_info_states_take_any_leading_lanes(name):
    game = make_game(name, MINI)
    info = jnp.asarray(np.concatenate([row[-1][:10] for row in playout(name)[0]]))
    for function, dtype in (
        (game.encode, np.float32),
        (game.head_of, np.uint8),
        (game.standing, np.float32),
    ):
        function = jax.jit(function)
        flat = np.asarray(function(info))
        assert flat.dtype == dtype
        np.testing.assert_array_equal(function(info[None]), flat[None])
        np.testing.assert_array_equal(function(info[0]), flat[0])
    of_phase = np.repeat([game.phases[row[0]].head for row in playout(name)[0]], 10)
    decides = np.concatenate([row[3][:10] for row in playout(name)[0]])
    np.testing.assert_array_equal(np.asarray(game.head_of(info))[decides], of_phase[decides])


@pytest.mark.parametrize("name", GAMES)
def test_deals_come_as_often_as_listed(name):
    game = make_game(name, MINI)
    listed = game.all_deals()
    kinds = dealt(name, listed.states)
    assert len(np.unique(kinds, axis=0)) == len(kinds) == len(listed.probability)
    np.testing.assert_allclose(listed.probability.sum(), 1.0, atol=1e-12)
    count = 20_000
    states = jax.device_get(batched(name, "deal")(jax.random.split(jax.random.key(7), count)))
    together = np.concatenate([kinds, dealt(name, states)])
    _, ids = np.unique(together, axis=0, return_inverse=True)
    ids = ids.reshape(-1)
    assert ids.max() < len(kinds)  # nothing is dealt that is not listed
    frequency = np.bincount(ids[len(kinds) :], minlength=len(kinds))[ids[: len(kinds)]] / count
    error = np.sqrt(listed.probability * (1 - listed.probability) / count)
    assert np.all(np.abs(frequency - listed.probability) < 4.5 * error)


def test_shapes_and_settings_of_the_catalogue():
    for name in GAMES:
        game = make_game(name, CLASSIC)
        state = jax.eval_shape(game.deal, jax.random.key(0))
        for k, phase in enumerate(game.phases):
            info = jax.eval_shape(functools.partial(game.observe, k=k), state)
            assert info.shape == (game.info_size,)
            assert info.dtype == jnp.uint8
            assert game.head_sizes[phase.head] == phase.num_actions
        assert make_game(name, CLASSIC) is game
    assert make_game("lost_cities", MINI).rules == MINI
    with pytest.raises(UserError, match=r"'leduk'; allowed: .*mean 'leduc'"):
        make_game("leduk", MINI)


def play(name, cards, actions):
    """Player 0's payoff and how many cycles a line of play takes, from its legal actions."""
    game = make_game(name, MINI)
    deals = game.all_deals().states
    state = jnp.asarray(deals[(deals[:, : len(cards)] == cards).all(-1)][0])
    left = list(actions)
    for cycle in range(game.max_cycles):
        for k in range(2):
            turn = ~game.is_terminal(state) if game.is_turn is None else game.is_turn(state, k)
            if turn:
                action = left.pop(0)
                assert game.legal(state, k)[action]
                state = game.step(state, k, jnp.int32(action))
        if game.is_terminal(state):
            assert not left
            return float(game.value(state)), cycle + 1
    raise AssertionError("the game goes on")


@pytest.mark.parametrize(
    ("cards", "actions", "expected"),
    [
        ((2, 1), (0, 0), (1, 1)),
        ((0, 1), (1, 0), (1, 1)),
        ((0, 1), (1, 1), (-2, 1)),
        ((2, 1), (0, 1, 0), (-1, 2)),
        ((2, 1), (0, 1, 1), (2, 2)),
    ],
)
def test_payoffs_of_kuhn_poker(cards, actions, expected):
    assert play("kuhn", cards, actions) == expected


@pytest.mark.parametrize(
    ("cards", "actions", "expected"),
    [
        ((4, 2, 0), (2, 0), (1, 1)),  # a raise and a fold: the ante
        ((4, 2, 0), (1, 2, 2, 0), (3, 2)),  # the fold loses the ante and the first raise
        ((4, 2, 3), (1, 1, 1, 1), (-1, 2)),  # the pair beats the higher rank
        ((4, 5, 0), (2, 2, 1, 1, 1), (0, 3)),  # equal ranks share
        ((4, 2, 0), (1, 2, 2, 1, 1, 2, 2, 1), (13, 4)),  # every raise of both rounds
        ((4, 2, 0), (2, 1, 2, 2, 0), (-7, 3)),  # player 0 folds in the second round
        ((4, 2, 0), (2, 2, 1, 1, 2, 0), (-5, 4)),  # player 1's phase idles in between
    ],
)
def test_payoffs_of_leduc_poker(cards, actions, expected):
    assert play("leduc", cards, actions) == expected
