"""The engine against the reference engine, recorded games and positions known by hand.

ENGINE_TRANSITIONS says how many random transitions of each large rule set are compared, by
programs that are compiled for it as users have them:

    ENGINE_TRANSITIONS=3500000 python -m pytest -n auto --dist load tests/test_engine.py -k half
"""

import functools
import itertools
import os
import pathlib
import struct
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify

from lostcities_jax import engine
from lostcities_jax.cards import EMPTY, all_cards
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.recording import parse_game
from lostcities_jax.reference import Game, column_score
from lostcities_jax.replay import move_action
from lostcities_jax.rules import CARD_PHASE, CLASSIC, DRAW_PHASE, MINI, SIX_COLORS, Rules
from lostcities_jax.state import State, deal, deal_from_deck, shuffled_deck

if "ENGINE_TRANSITIONS" not in os.environ:
    pytestmark = pytest.mark.usefixtures("quick_compile")
# Random transitions compared for each rule set: the large ones in CHUNKS tests, so that
# several processes can share them.
TRANSITIONS = int(os.environ.get("ENGINE_TRANSITIONS", "350_000"))
CHUNKS = 8
HOSTILE_TRANSITIONS = 10_000
PUBLIC_TRANSITIONS = 50_000

SMALL = Rules(colors=3, ranks=5, wagers=1, hand=4, penalty=-7, bonus_cards=4, bonus=9, max_turns=21)
LARGE_RULES = {"classic": CLASSIC, "six colours": SIX_COLORS, "small": SMALL}
HOSTILE_RULES = {
    "no wagers": Rules(wagers=0),
    "hand 1": Rules(colors=3, hand=1, max_turns=100),
    "16 ranks": Rules(colors=4, ranks=16, wagers=0, max_turns=120),
    "15 wagers": Rules(colors=3, ranks=1, wagers=15, hand=10, max_turns=80),
    "1 colour and 1 card to draw": Rules(colors=1, ranks=2, wagers=1, hand=1, max_turns=9),
    "96 cards and hand 40": Rules(colors=6, wagers=7, hand=40, max_turns=60),
    "7 turns": Rules(max_turns=7),
}
# The others have a hand of one card too, columns of 16 bits and ends by the turn limit.
SLOW_RULES = ("hand 1", "16 ranks", "15 wagers", "7 turns")
REPLAYS = pathlib.Path(__file__).parent / "data" / "replays.jsonl"
REPLAYED = [parse_game(line) for line in REPLAYS.read_text("utf-8").splitlines()]


class View(NamedTuple):
    """What is compared of a state; leading axes are lanes and half-steps."""

    state: State  # without its deck
    legal: jax.Array
    scores: jax.Array
    is_terminal: jax.Array
    is_timeout: jax.Array


class Record(NamedTuple):
    """Random games, one a lane, on host arrays."""

    decks: np.ndarray  # uint8[B, N]
    before: View  # [B, T]
    actions: np.ndarray  # int32[B, T]
    last: View  # [B], after all actions
    final_decks: np.ndarray  # uint8[B, N]


def view(rules: Rules, state: State, legal: jax.Array) -> View:
    return View(
        state=state._replace(deck=None),
        legal=legal,
        scores=engine.scores(rules, state),
        is_terminal=engine.is_terminal(rules, state),
        is_timeout=engine.is_timeout(rules, state),
    )


def legal_at(rules: Rules, state: State, k: int) -> jax.Array:
    """Legal actions of phase `k` of the game that solvers run, in the form of `legal_mask`."""
    game = lost_cities(rules)
    legal = game.legal(state, k) & ~game.is_terminal(state)
    is_card = game.phases[k].head == CARD_PHASE
    return jnp.pad(legal, (0, rules.num_draw_actions) if is_card else (rules.num_card_actions, 0))


def random_legal(legal: jax.Array, noise: jax.Array) -> jax.Array:
    return jnp.argmax(jnp.where(legal, noise, -1.0))


def half_steps(rules: Rules, deck: jax.Array, key: jax.Array):
    """One random game by the half-steps of `games.lost_cities`, and no-ops after its end."""
    game = lost_cities(rules)

    def cycle(state: State, noise: jax.Array):
        records = []
        for k, phase in enumerate(game.phases):
            legal = legal_at(rules, state, k)
            action = random_legal(legal, noise[k])
            records.append((state, legal, action))
            local = action - rules.num_card_actions if phase.head == DRAW_PHASE else action
            state = game.step(state, k, local)
        return state, jax.tree.map(lambda *steps: jnp.stack(steps), *records)

    noise = jax.random.uniform(key, (game.max_cycles, len(game.phases), rules.num_actions))
    last, records = jax.lax.scan(cycle, deal_from_deck(rules, deck), noise)
    states, legal, actions = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), records)
    before = jax.vmap(functools.partial(view, rules))(states, legal)
    return before, actions, view(rules, last, legal_at(rules, last, 0)), last.deck


def public_steps(rules: Rules, deck: jax.Array, key: jax.Array):
    """One random game by `engine.step`; every fourth action on average is any number."""
    plies = 2 * rules.max_turns
    noise_key, pick_key, any_key = jax.random.split(key, 3)
    noise = jax.random.uniform(noise_key, (plies, rules.num_actions))
    is_any = jax.random.bernoulli(pick_key, 0.25, (plies,))
    anything = jax.random.randint(any_key, (plies,), -3, rules.num_actions + 3)

    def ply(state: State, inputs):
        noise, is_any, anything = inputs
        legal = engine.legal_mask(rules, state)
        action = jnp.where(is_any, anything, random_legal(legal, noise))
        return engine.step(rules, state, action), (state, legal, action)

    start = deal_from_deck(rules, deck)
    last, (states, legal, actions) = jax.lax.scan(ply, start, (noise, is_any, anything))
    before = jax.vmap(functools.partial(view, rules))(states, legal)
    return before, actions, view(rules, last, engine.legal_mask(rules, last)), last.deck


@functools.partial(jax.jit, static_argnums=(0, 1, 3))
def play_lanes(rules: Rules, play: Callable, key: jax.Array, lanes: int):
    deck_key, play_key = jax.random.split(key)
    decks = jax.vmap(functools.partial(shuffled_deck, rules))(jax.random.split(deck_key, lanes))
    games = jax.vmap(functools.partial(play, rules))(decks, jax.random.split(play_key, lanes))
    return decks, *games


def record_games(rules: Rules, play: Callable, seed: int, lanes: int) -> Record:
    return Record(*jax.device_get(play_lanes(rules, play, jax.random.key(seed), lanes)))


def row_type(rules: Rules) -> np.dtype:
    """One state as a row of bytes, so that a whole state is compared at once."""
    columns = ("<u2", (2, rules.colors))
    return np.dtype(
        [
            ("hands", "u1", (2, rules.hand)),
            ("expeditions", *columns),
            ("known", *columns),
            ("piles", "u1", (rules.colors, rules.cards_per_color)),
            ("pile_sizes", "u1", (rules.colors,)),
            ("legal", "?", (rules.num_actions,)),
            ("deck_left", "u1"),
            ("barred", "u1"),
            ("phase", "u1"),
            ("turn", "<u2"),
            ("is_terminal", "?"),
            ("is_timeout", "?"),
            ("scores", "<i4", (2,)),
        ]
    )


def engine_rows(rules: Rules, seen: View) -> np.ndarray:
    rows = np.empty(seen.is_terminal.shape, row_type(rules))
    for name in rows.dtype.names:
        rows[name] = getattr(seen.state if hasattr(seen.state, name) else seen, name)
    return rows


def column_code(rules: Rules, faces) -> int:
    """Bits of an expedition, by the definition in `cards`: card by card, wagers from below."""
    wagers = 0
    bits = 0
    for face in faces:
        bits |= 1 << (rules.wagers + face - 1 if face else wagers)
        wagers += face == 0
    return bits


def reference_encoder(rules: Rules) -> Callable[[Game, bytes, bytes], bytes]:
    """`(game, its legal actions, its scores) -> row`; small parts are encoded once."""
    hand, pile = rules.hand, rules.cards_per_color
    small = struct.Struct("<BBBHBB")

    @functools.cache
    def column(faces: bytes) -> bytes:
        return column_code(rules, faces).to_bytes(2, "little")

    @functools.cache
    def mask(actions: bytes) -> bytes:
        return bytes(action in actions for action in range(rules.num_actions))

    # A column is 16 bits of one large number for all colours.
    known_bits = {
        (color * rules.faces + face, count): column_code(rules, [face] * count) << 16 * color
        for color in range(rules.colors)
        for face in range(rules.faces)
        for count in range(1, 1 + (1 if face else rules.wagers))
    }

    def known(cards: Counter) -> bytes:
        return sum(map(known_bits.__getitem__, cards.items())).to_bytes(2 * rules.colors, "little")

    def row(game: Game, legal: bytes, scores: bytes) -> bytes:
        first, second = game.hands
        is_over = game.is_over
        return b"".join(
            (
                bytes(first).ljust(hand, b"\xff"),
                bytes(second).ljust(hand, b"\xff"),
                *[column(bytes(faces)) for faces in game.expeditions[0]],
                *[column(bytes(faces)) for faces in game.expeditions[1]],
                known(game.known[0]),
                known(game.known[1]),
                *[bytes(faces).ljust(pile, b"\xff") for faces in game.piles],
                bytes(map(len, game.piles)),
                mask(legal),
                small.pack(
                    len(game.deck),
                    rules.colors if game.barred is None else game.barred,
                    game.phase,
                    game.turn,
                    is_over,
                    game.timed_out,
                ),
                scores,
            )
        )

    return row


def reference_rows(rules: Rules, record: Record) -> tuple[np.ndarray, int]:
    """The same games on the reference engine: rows [B, T + 1], and actions taken.

    Actions that the reference refuses change nothing, which is what the engine promises.
    """
    encode = reference_encoder(rules)
    rows, taken = [], 0
    for deck, actions in zip(record.decks.tolist(), record.actions.tolist(), strict=True):
        game = Game(rules, deck)
        scores = struct.pack("<2i", *game.scores())
        legal = bytes(game.legal_actions())
        row = encode(game, legal, scores)
        rows.append(row)
        for action in actions:
            if 0 <= action < 256 and action in legal:
                game.step(action)
                taken += 1
                if action < rules.hand:
                    scores = struct.pack("<2i", *game.scores())
                legal = bytes(game.legal_actions())
                row = encode(game, legal, scores)
            rows.append(row)
    table = np.frombuffer(b"".join(rows), row_type(rules))
    return table.reshape(len(record.decks), -1), taken


def compare(rules: Rules, record: Record) -> int:
    """Asserts that all fields are equal in all states; returns the number of transitions."""
    expected, taken = reference_rows(rules, record)
    before, last = engine_rows(rules, record.before), engine_rows(rules, record.last)
    actual = np.concatenate([before, last[:, None]], axis=1)
    if actual.tobytes() != expected.tobytes():
        differing = {
            name: (actual[name] != expected[name]).reshape(*actual.shape, -1).any(-1)
            for name in actual.dtype.names
        }
        where = {name: np.argwhere(at)[0].tolist() for name, at in differing.items() if at.any()}
        counts = {name: int(at.sum()) for name, at in differing.items() if at.any()}
        raise AssertionError(f"mismatches {counts}, first at [game, ply] {where}")
    assert (record.final_decks == record.decks).all()
    return taken


def play_and_compare(rules: Rules, play: Callable, transitions: int, seed: int) -> list[Record]:
    """Plays and compares batches of games until there are enough transitions."""
    lanes = max(4, 32_768 // (2 * rules.max_turns))
    records, done = [], 0
    for batch in itertools.count():
        records.append(record_games(rules, play, 1000 * seed + batch, lanes))
        done += compare(rules, records[-1])
        if done >= transitions:
            return records
    raise AssertionError("unreachable")


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("name", LARGE_RULES)
def test_half_steps_equal_the_reference(name, chunk):
    play_and_compare(LARGE_RULES[name], half_steps, TRANSITIONS // CHUNKS, chunk)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in SLOW_RULES else ())
        for name in HOSTILE_RULES
    ],
)
def test_half_steps_equal_the_reference_under_hostile_rules(name):
    play_and_compare(HOSTILE_RULES[name], half_steps, HOSTILE_TRANSITIONS, 0)


@pytest.fixture(scope="module")
def small_record() -> Record:
    return record_games(SMALL, half_steps, 1, 256)


def test_random_games_end_by_the_deck_and_by_the_turn_limit(small_record):
    last = small_record.last
    by_deck = last.state.deck_left == 0
    at_limit = last.state.turn == SMALL.max_turns
    assert (last.is_timeout == ~by_deck).all()
    assert (by_deck | at_limit).all()
    # The last card of the deck in the last turn is no timeout.
    assert (by_deck & ~at_limit).any()
    assert (by_deck & at_limit).any()
    assert (~by_deck & at_limit).any()


@pytest.mark.parametrize(
    ("rules", "transitions"),
    [
        pytest.param(CLASSIC, PUBLIC_TRANSITIONS, id="classic"),
        pytest.param(MINI, HOSTILE_TRANSITIONS, id="mini", marks=pytest.mark.slow),
    ],
)
def test_step_equals_the_reference_and_ignores_what_is_illegal_or_too_late(rules, transitions):
    records = play_and_compare(rules, public_steps, transitions, 0)
    actions = np.concatenate([record.actions for record in records])
    legal, is_terminal = (
        np.concatenate([getattr(record.before, name) for record in records])
        for name in ("legal", "is_terminal")
    )
    in_range = (actions >= 0) & (actions < rules.num_actions)
    chosen = np.take_along_axis(legal, np.clip(actions, 0, rules.num_actions - 1)[..., None], -1)
    illegal = ~(chosen[..., 0] & in_range)
    assert (illegal & in_range & ~is_terminal).sum() > 100
    assert (illegal & ~in_range & ~is_terminal).sum() > 100
    assert is_terminal.sum() > 100


def test_the_checked_step_moves_as_the_step_and_names_an_illegal_action():
    both = checkify.checkify(functools.partial(engine.checked_step, MINI))
    step = jax.jit(jax.vmap(both))
    deals = jax.jit(jax.vmap(functools.partial(deal, MINI)))
    states = deals(jax.random.split(jax.random.key(0), 4))
    legal = jax.jit(jax.vmap(functools.partial(engine.legal_mask, MINI)))(states).argmax(-1)
    error, moved = step(states, legal)
    error.throw()
    expected = jax.jit(jax.vmap(functools.partial(engine.step, MINI)))(states, legal)
    jax.tree.map(np.testing.assert_array_equal, moved, expected)
    for action in (-1, MINI.num_actions, MINI.num_card_actions):  # the last is a draw
        error, moved = step(states, legal.at[2].set(action))
        with pytest.raises(checkify.JaxRuntimeError, match=f"action {action} is not legal in turn"):
            error.throw()
        same = jax.tree.map(lambda new, old: (new[2] == old[2]).all(), moved, states)
        assert all(jax.tree.leaves(same))


def card_multisets(rules: Rules, decks: np.ndarray, seen: View) -> np.ndarray:
    """Every card of the table, hands and deck in ascending order, EMPTY behind; [..., X]."""
    state, colors = seen.state, np.arange(rules.colors)
    lanes = seen.is_terminal.shape
    in_deck = np.arange(rules.num_cards) >= rules.num_cards - state.deck_left[..., None]
    bits = (state.expeditions[..., None] >> np.arange(rules.cards_per_color)) & 1
    faces = np.array([0] * rules.wagers + list(range(1, rules.faces)))
    places = [
        np.where(in_deck, decks[:, None], EMPTY),
        state.hands,
        np.where(bits == 1, colors[:, None] * rules.faces + faces, EMPTY),
        np.where(state.piles == EMPTY, EMPTY, colors[:, None] * rules.faces + state.piles),
    ]
    return np.sort(np.concatenate([x.reshape(*lanes, -1) for x in places], axis=-1), axis=-1)


def test_no_card_is_lost_or_doubled_at_any_step(small_record):
    cards = card_multisets(SMALL, small_record.decks, small_record.before)
    assert (cards[..., : SMALL.num_cards] == all_cards(SMALL)).all()
    assert (cards[..., SMALL.num_cards :] == EMPTY).all()


def test_expeditions_only_grow_and_by_one_card_a_turn(small_record):
    columns = small_record.before.state.expeditions
    before, after = columns[:, :-1], columns[:, 1:]
    assert (before & after == before).all()
    grown = np.bitwise_count(after ^ before).sum((-1, -2))
    assert set(np.unique(grown)) == {0, 1}
    mover = small_record.before.state.turn[:, :-1] % 2
    other = np.take_along_axis(after ^ before, (1 - mover)[..., None, None], axis=-2)
    assert not other.any()


def test_every_state_but_a_last_one_has_a_legal_action_of_its_phase_alone(small_record):
    seen = small_record.before
    card, draw = np.split(seen.legal, [SMALL.num_card_actions], axis=-1)
    assert (seen.legal.any(-1) == ~seen.is_terminal).all()
    assert not (card.any(-1) & draw.any(-1)).any()
    assert (draw.any(-1) == (~seen.is_terminal & (seen.state.phase == DRAW_PHASE))).all()


@pytest.mark.parametrize("rules", [CLASSIC, SMALL, Rules(ranks=10, wagers=0, bonus_cards=3)])
def test_every_column_scores_as_in_the_reference(rules):
    columns = [
        [0] * wagers + list(numbers)
        for wagers in range(rules.wagers + 1)
        for size in range(rules.ranks + 1)
        for numbers in itertools.combinations(range(1, rules.faces), size)
    ]
    assert len(columns) == (rules.wagers + 1) * 2**rules.ranks
    bits = np.array([column_code(rules, faces) for faces in columns], np.uint16)
    expected = [column_score(rules, faces) for faces in columns]
    np.testing.assert_array_equal(engine.column_scores(rules, bits), expected)


def recorded_actions(game) -> list[int]:
    """Action ids of a recorded game, found on the reference engine."""
    reference, actions = Game(game.rules, game.deck), []
    for move in game.moves:
        actions.append(move_action(reference, move))
        reference.step(actions[-1])
    return actions


@functools.partial(jax.jit, static_argnums=0)
def replay_lanes(rules: Rules, decks: jax.Array, actions: jax.Array):
    """Last states, and whether each action was legal; bool[B, T]."""

    def ply(states: State, actions: jax.Array):
        legal = jax.vmap(functools.partial(engine.legal_mask, rules))(states)
        chosen = jnp.arange(rules.num_actions)[None] == actions[:, None]
        states = jax.vmap(functools.partial(engine.step, rules))(states, actions)
        return states, (legal & chosen).any(-1)

    start = jax.vmap(functools.partial(deal_from_deck, rules))(decks)
    last, is_legal = jax.lax.scan(ply, start, actions.T)
    legal = jax.vmap(functools.partial(engine.legal_mask, rules))(last)
    return jax.vmap(functools.partial(view, rules))(last, legal), is_legal.T


@pytest.mark.parametrize("rules", list(dict.fromkeys(game.rules for game in REPLAYED)))
def test_recorded_games_end_with_the_recorded_scores(rules):
    games = [game for game in REPLAYED if game.rules == rules]
    length = max(len(game.moves) for game in games)
    actions = np.full((len(games), length), -1, np.int32)
    for row, game in zip(actions, games, strict=True):
        row[: len(game.moves)] = recorded_actions(game)
    last, is_legal = jax.device_get(
        replay_lanes(rules, np.array([game.deck for game in games], np.uint8), actions)
    )
    assert (is_legal == (actions >= 0)).all()
    assert last.scores.tolist() == [list(game.scores) for game in games]
    assert last.is_terminal.tolist() == [game.finished for game in games]
    assert last.legal.any(-1).tolist() == [not game.finished for game in games]


def stacked(trees):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


@pytest.mark.parametrize("name", LARGE_RULES)
def test_value_is_the_difference_of_scores_and_turns_with_the_seats(name, random_game, state_of):
    rules = LARGE_RULES[name]
    value = jax.vmap(lost_cities(rules).value)
    games = [random_game(rules, seed) for seed in range(50)]
    states = stacked(map(state_of, games))
    swapped = states._replace(expeditions=states.expeditions[:, ::-1])
    expected = [game.scores()[0] - game.scores()[1] for game in games]
    assert len(set(expected)) > 10
    assert value(states).tolist() == expected
    assert value(swapped).tolist() == [-difference for difference in expected]


def test_slot_0_discards_and_deck_draws_end_after_88_plies_without_points_in_one_trace():
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=1)
    def step(state: State, action: jax.Array) -> State:
        return engine.step(CLASSIC, state, action)

    state = deal_from_deck(CLASSIC, jnp.asarray(all_cards(CLASSIC)))
    plies = 0
    while not engine.is_terminal(CLASSIC, state):
        discard, from_deck = CLASSIC.hand, CLASSIC.num_card_actions
        state = step(state, jnp.int32(from_deck if plies % 2 else discard))
        plies += 1
    assert plies == 88
    assert state.turn == 44
    assert engine.scores(CLASSIC, state).tolist() == [0, 0]
    assert not engine.is_timeout(CLASSIC, state)


@pytest.mark.parametrize("transform", ["none", "jit", "vmap"])
def test_functions_give_the_reference_values_with_and_without_transforms(
    transform, random_game, state_of
):
    def everything(state: State, action: jax.Array):
        seen = view(SMALL, state, engine.legal_mask(SMALL, state))
        return seen, engine.current_player(state), engine.step(SMALL, state, action)

    games = [random_game(SMALL, seed) for seed in range(3 if transform == "none" else 8)]
    before = [state_of(game) for game in games]
    expected = [(game.legal_actions(), game.scores(), game.player) for game in games]
    actions = [legal[-1] for legal, _, _ in expected]
    for game, action in zip(games, actions, strict=True):
        game.step(action)
    after = stacked(map(state_of, games))

    if transform == "vmap":
        results = jax.jit(jax.vmap(everything))(stacked(before), jnp.asarray(actions))
    else:
        function = jax.jit(everything) if transform == "jit" else everything
        results = stacked(map(function, jax.tree.map(jnp.asarray, before), jnp.asarray(actions)))
    seen, player, moved = jax.device_get(results)
    for index, (legal, scores, mover) in enumerate(expected):
        assert np.flatnonzero(seen.legal[index]).tolist() == legal
        assert seen.scores[index].tolist() == scores
        assert player[index] == mover
    for name in State._fields[1:]:
        np.testing.assert_array_equal(getattr(moved, name), getattr(after, name), name)
