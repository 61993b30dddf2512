"""Pictures: what is on the table is in them, what is hidden is not."""

import dataclasses
import pathlib
import re
import xml.etree.ElementTree as ElementTree

import jax
import numpy as np
import pytest

import lostcities_jax as lc
from lostcities_jax.cards import EMPTY
from lostcities_jax.drawing.suits import SUITS
from lostcities_jax.drawing.table import Card, see_table
from lostcities_jax.positions import state_of
from lostcities_jax.recording import parse_game
from lostcities_jax.reference import Game
from lostcities_jax.replay import play_moves
from lostcities_jax.rules import CLASSIC, MINI, SIX_COLORS, Rules
from lostcities_jax.state import State

RECORDED = pathlib.Path(__file__).parent / "data" / "replays.jsonl"
GAMES = [parse_game(line) for line in RECORDED.read_text("utf-8").splitlines()]
RULE_SETS = [dataclasses.replace(CLASSIC, colors=colors) for colors in range(2, 7)]
RULE_SETS += [MINI, Rules(colors=1, hand=4), Rules(wagers=0), Rules(colors=6, hand=30)]


def swapped_unseen(game: Game, view: int) -> State:
    """The state with the other hand's unseen cards and the deck mixed anew."""
    state = state_of(game)
    other = 1 - view
    hand = state.hands[other].tolist()
    known = list(game.known[other].elements())
    unseen = [card for card in hand if card != EMPTY]
    for card in known:
        unseen.remove(card)
    pool = np.roll(np.array(unseen + game.deck), 1).tolist()
    mixed, deck = pool[: len(unseen)], pool[len(unseen) :]
    hands = state.hands.copy()
    cards = sorted(known + mixed)
    hands[other] = cards + [EMPTY] * (len(hand) - len(cards))
    drawn = game.rules.num_cards - len(deck)
    return state._replace(hands=hands, deck=np.array([EMPTY] * drawn + deck, np.uint8))


def texts_of(svg: str) -> list[str]:
    """All writing of an image, which must be well-formed."""
    root = ElementTree.fromstring(svg)
    return [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("number", range(0, len(GAMES), 5))
def test_recorded_scores_show_in_text_and_svg(number):
    record = GAMES[number]
    state = state_of(play_moves(record.rules, record.deck, record.moves))
    sums = next(
        line for line in lc.to_text(record.rules, state).splitlines() if line.startswith("sum")
    )
    assert [int(word) for word in sums.split()[1:]] == list(record.scores)
    writing = texts_of(lc.to_svg(record.rules, state))
    for player, points in enumerate(record.scores):
        assert f"player {player}: {points} points" in writing


def test_a_known_position_is_drawn_line_by_line():
    """Deck and moves by hand: cards in order, so that every figure can be counted."""
    rules = Rules(colors=2, ranks=4, lowest=2, wagers=1, hand=2, bonus=0)
    # Player 0 gets Y2, B2; player 1 gets Yx, B5; Y3 and others follow.
    deck = [1, 0, 6, 9, 2, 5, 3, 4, 7, 8]
    game = Game(rules, deck)
    game.step(0)  # player 0 plays Y2
    game.step(4)  # and draws Y3
    game.step(3)  # player 1 discards B5
    game.step(4)  # and draws Bx
    game.step(0)  # player 0 plays Y3
    game.step(6)  # and takes B5
    assert lc.to_text(rules, state_of(game), view=1).splitlines() == [
        "turn 4 of at most 200, 4 left in the deck, player 1 to play or discard",
        "",
        "          player 0       pile  player 1",
        "Y yellow  2 3       -15  -     -",
        "B blue    -              -     -",
        "sum                 -15                  0",
        "hand of player 0: 2 cards, among them B5",
        "hand of player 1: Yx Bx",
    ]


@pytest.mark.parametrize("rules", RULE_SETS, ids=str)
@pytest.mark.parametrize("view", [0, 1])
def test_hidden_cards_do_not_change_a_picture(rules, view, random_game):
    changed = 0
    for seed in range(12):
        game = random_game(rules, seed)
        state, other = state_of(game), swapped_unseen(game, view)
        changed += not np.array_equal(state.hands, other.hands)
        assert lc.to_text(rules, state, view) == lc.to_text(rules, other, view)
        assert lc.to_svg(rules, state, view) == lc.to_svg(rules, other, view)
    assert changed


@pytest.mark.parametrize("rules", RULE_SETS, ids=str)
def test_every_card_in_sight_is_in_the_image(rules, random_game):
    game = random_game(rules, 1)
    writing = texts_of(lc.to_svg(rules, state_of(game)))
    cards = [card for hand in game.hands for card in hand]
    for player in range(2):
        for color, faces in enumerate(game.expeditions[player]):
            cards += [color * rules.faces + face for face in faces]
    tops = [color * rules.faces + pile[-1] for color, pile in enumerate(game.piles) if pile]
    for color in range(rules.colors):
        # A card bears its letter twice; an empty pile has it once.
        letters = writing.count(SUITS[color].letter)
        held = [card for card in cards + tops if card // rules.faces == color]
        assert letters == 2 * len(held) + (not game.piles[color])


def test_a_view_shows_the_own_hand_and_cards_taken_from_piles(random_game):
    game = next(
        game
        for seed in range(100)
        if (game := random_game(CLASSIC, seed)).known[1] and game.known[0]
    )
    table = see_table(CLASSIC, state_of(game), 0)
    assert [card.color * 10 + max(card.number - 1, 0) for card in table.hands[0]] == game.hands[0]
    assert table.hands[1] is None
    assert table.hand_sizes[1] == len(game.hands[1])
    known = [Card(card // 10, card % 10 and card % 10 + 1) for card in game.known[1].elements()]
    assert sorted(table.known[1]) == sorted(known)


def test_states_of_the_engine_are_drawn_too():
    state = lc.deal(MINI, jax.random.key(0))
    text = lc.to_text(MINI, state)
    assert text.startswith("turn 1 of at most 4, 2 left in the deck, player 0 to play or discard")
    assert str(lc.picture(MINI, state)) == text
    assert lc.picture(MINI, state)._repr_svg_() == lc.to_svg(MINI, state)


def test_the_end_is_told(random_game):
    game = random_game(MINI, 0)
    while not game.is_over:
        game.step(game.legal_actions()[-1])
    assert lc.to_text(MINI, state_of(game)).startswith(f"over after {game.turn} turns")


def test_an_image_needs_nothing_from_outside():
    svg = lc.to_svg(SIX_COLORS, state_of(play_moves(GAMES[5].rules, GAMES[5].deck, ())))
    assert svg.count("http") == 1  # the name space
    assert "href" not in svg
    assert "script" not in svg


@pytest.mark.parametrize("view", [2, -1, "0"])
def test_another_view_is_refused(view):
    with pytest.raises(ValueError, match="allowed: 0, 1 or None"):
        lc.to_svg(MINI, state_of(Game(MINI, [0, 1, 2, 3, 4, 5])), view)


def test_lanes_and_other_rules_are_refused():
    state = state_of(Game(MINI, [0, 1, 2, 3, 4, 5]))
    lanes = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), state)
    with pytest.raises(ValueError, match=r"lanes \(2,\); allowed: one game"):
        lc.to_text(MINI, lanes)
    with pytest.raises(ValueError, match=r"allowed with these rules: \(2, 8\)"):
        lc.to_text(CLASSIC, state)


def luminance(color: str) -> float:
    """Relative luminance of #rrggbb (WCAG 2.2)."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def test_colours_have_letter_shape_and_readable_ink():
    assert len(SUITS) == 6
    for field in ("name", "letter", "shape", "fill"):
        assert len({getattr(suit, field) for suit in SUITS}) == 6
    for suit in SUITS:
        assert re.fullmatch(r"#[0-9a-f]{6}", suit.fill)
        dark, light = sorted([luminance(suit.fill), luminance(suit.ink)])
        assert (light + 0.05) / (dark + 0.05) >= 4.5, suit.name
