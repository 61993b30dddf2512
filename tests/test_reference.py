"""The oracle against the rules of the game: one test for each rule, and every score known."""

import dataclasses
import itertools
import random
from collections import Counter

import pytest

from lostcities_jax.cards import all_cards, card_type, face_of_printed
from lostcities_jax.reference import Game, column_score
from lostcities_jax.rules import CARD_PHASE, CLASSIC, DRAW_PHASE, MINI, SIX_COLORS, Rules

HAND = CLASSIC.hand
DECK = 2 * HAND


def card(color, printed, rules=CLASSIC):
    return card_type(rules, color, face_of_printed(rules, printed))


def pile(color, rules=CLASSIC):
    return 2 * rules.hand + 1 + color


def deal(hand0, hand1, draws=(), rules=CLASSIC):
    """A game whose players hold at least these cards; each filled up with the highest colours."""
    rest = Counter(all_cards(rules).tolist()) - Counter([*hand0, *hand1, *draws])
    rest = sorted(rest.elements())
    hands = [list(hand0), list(hand1)]
    for hand in hands:
        while len(hand) < rules.hand:
            hand.append(rest.pop())
    dealt = [dealt_card for pair in zip(*hands, strict=True) for dealt_card in pair]
    return Game(rules, [*dealt, *draws, *rest])


def shuffled(rules, seed):
    deck = all_cards(rules).tolist()
    random.Random(seed).shuffle(deck)
    return Game(rules, deck)


def play(game, played):
    game.step(game.hands[game.player].index(played))


def discard(game, discarded):
    game.step(game.rules.hand + game.hands[game.player].index(discarded))


def draw(game, color=None):
    game.step(2 * game.rules.hand if color is None else pile(color, game.rules))


def idle(game):
    """A whole turn that touches only the highest colour."""
    discard(game, game.hands[game.player][-1])
    draw(game)


def playable(game):
    return {game.hands[game.player][action] for action in game.legal_actions() if action < HAND}


def column(rules, wagers, printed):
    return [0] * wagers + [face_of_printed(rules, number) for number in printed]


def every_column(rules):
    for wagers in range(rules.wagers + 1):
        for size in range(rules.ranks + 1):
            for numbers in itertools.combinations(range(1, rules.faces), size):
                yield [0] * wagers + list(numbers)


@pytest.mark.parametrize(
    ("wagers", "printed", "points"),
    [
        (0, [], 0),
        (1, [], -40),
        (2, [], -60),
        (3, [], -80),
        (0, [2], -18),
        (0, [10], -10),
        (0, [5, 6], -9),
        (0, [9, 10], -1),
        (0, [2, 4, 6], -8),
        (0, [5, 6, 9], 0),
        (0, [6, 8, 9], 3),
        (0, range(2, 9), 15),
        (0, range(2, 10), 44),
        (0, range(2, 11), 54),
        (1, [6], -28),
        (1, [5, 10], -10),
        (1, [8, 9], -6),
        (1, [2, 3, 4, 5, 6, 8, 9], 54),
        (1, range(4, 11), 78),
        (1, range(2, 11), 88),
        (2, [2, 3, 4], -33),
        (2, [6, 8, 10], 12),
        (2, range(2, 7), 0),
        (2, [4, 7, 8, 9, 10], 54),
        (2, [2, 3, 4, 7, 9, 10], 65),
        (3, [10], -40),
        (3, range(2, 6), -24),
        (3, range(2, 7), 20),
        (3, range(6, 11), 100),
        (3, range(2, 11), 156),
    ],
)
def test_known_column_scores(wagers, printed, points):
    assert column_score(CLASSIC, column(CLASSIC, wagers, printed)) == points


def test_every_column_lies_between_the_known_extremes():
    columns = list(every_column(CLASSIC))
    scores = [column_score(CLASSIC, faces) for faces in columns]
    assert len(columns) == 4 * 512
    assert min(scores) == -80
    assert max(scores) == 156
    assert [columns[i] for i, score in enumerate(scores) if score == -80] == [[0, 0, 0]]
    assert [columns[i] for i, score in enumerate(scores) if score == 156] == [
        [0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    ]


def test_every_column_of_eight_cards_gets_the_bonus_once():
    without = dataclasses.replace(CLASSIC, bonus=0)
    gains = Counter(
        (len(faces) >= 8, column_score(CLASSIC, faces) - column_score(without, faces))
        for faces in every_column(CLASSIC)
    )
    # 10 columns without a wager, 46 with one, 130 with two, 256 with three.
    assert gains == {(True, 20): 442, (False, 0): 2048 - 442}


def test_scores_use_the_rules_own_numbers():
    rules = Rules(colors=2, ranks=3, lowest=1, wagers=1, hand=2, penalty=-3, bonus_cards=3, bonus=5)
    assert column_score(rules, [1, 2, 3]) == 1 + 2 + 3 - 3 + 5
    assert column_score(rules, [0, 1, 3]) == (1 + 3 - 3) * 2 + 5


def test_scores_sum_the_columns_of_each_player():
    game = deal([card(0, 0), card(0, 6), card(1, 5)], [card(2, 10)])
    for played in (card(0, 0), card(2, 10), card(0, 6)):
        play(game, played)
        draw(game)
    assert game.scores() == [-28, -10]


def test_deal_is_one_card_at_a_time_player_0_first():
    deck = all_cards(CLASSIC).tolist()
    game = Game(CLASSIC, deck)
    assert game.hands == [deck[0:16:2], deck[1:16:2]]
    assert game.deck == deck[16:]
    assert (game.player, game.phase, game.turn, game.barred) == (0, CARD_PHASE, 0, None)


def test_hands_stay_sorted():
    game = shuffled(CLASSIC, 1)
    generator = random.Random(1)
    while not game.is_over:
        assert all(hand == sorted(hand) for hand in game.hands)
        game.step(generator.choice(game.legal_actions()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda deck: deck[:-1], "59 cards; allowed: 60"),
        (lambda deck: [*deck, 0], "61 cards; allowed: 60"),
        (lambda deck: [*deck[:-1], deck[0]], "4 of card type 0 .colour 0, printed 0.; allowed: 3"),
        (lambda deck: [255, *deck[1:]], "1 of card type 255 .*; allowed: 0"),
    ],
)
def test_deck_must_be_the_cards_of_the_game(change, message):
    with pytest.raises(ValueError, match=message):
        Game(CLASSIC, change(all_cards(CLASSIC).tolist()))


def test_slot_0_discards_and_deck_draws_end_after_88_plies_without_points():
    game = shuffled(CLASSIC, 0)
    plies = 0
    while not game.is_over:
        game.step(HAND if game.phase == CARD_PHASE else DECK)
        plies += 1
    assert (plies, game.turn, game.scores(), game.timed_out) == (88, 44, [0, 0], False)


def test_turn_is_one_card_action_then_one_draw():
    game = shuffled(CLASSIC, 2)
    for turn, player in enumerate([0, 1, 0, 1]):
        assert (game.turn, game.player, game.phase) == (turn, player, CARD_PHASE)
        assert all(action < DECK for action in game.legal_actions())
        game.step(HAND)
        assert (game.turn, game.player, game.phase) == (turn, player, DRAW_PHASE)
        assert all(action >= DECK for action in game.legal_actions())
        game.step(DECK)


def test_every_card_may_open_an_expedition_and_be_discarded():
    game = shuffled(CLASSIC, 3)
    assert game.legal_actions() == list(range(2 * HAND))


def test_numbers_ascend_strictly():
    game = deal([card(0, 4), card(0, 5), card(0, 6)], [])
    play(game, card(0, 5))
    draw(game)
    idle(game)
    assert card(0, 4) not in playable(game)
    assert card(0, 6) in playable(game)


def test_colours_and_players_have_their_own_expeditions():
    game = deal([card(0, 9), card(1, 2)], [card(0, 3)])
    play(game, card(0, 9))
    draw(game)
    assert card(0, 3) in playable(game)
    idle(game)
    assert card(1, 2) in playable(game)


def test_wager_only_before_numbers():
    game = deal([card(0, 0), card(0, 0), card(0, 2), card(0, 0)], [])
    for played in (card(0, 0), card(0, 0), card(0, 2)):
        assert card(0, 0) in playable(game)
        play(game, played)
        draw(game)
        idle(game)
    assert card(0, 0) not in playable(game)
    assert game.expeditions[0][0] == [0, 0, 1]


def test_wagers_of_a_colour_are_identical_and_each_legal():
    game = deal([card(0, 0)] * 3, [])
    assert game.hands[0][:3] == [0, 0, 0]
    assert {0, 1, 2, HAND, HAND + 1, HAND + 2} <= set(game.legal_actions())
    after = []
    for slot in range(3):
        other = deal([card(0, 0)] * 3, [])
        other.step(slot)
        after.append((other.hands, other.expeditions))
    assert after[0] == after[1] == after[2]


def test_discarding_is_always_legal():
    game = shuffled(CLASSIC, 4)
    generator = random.Random(4)
    while not game.is_over:
        legal = game.legal_actions()
        if game.phase == CARD_PHASE:
            assert set(range(HAND, 2 * HAND)) <= set(legal)
        game.step(generator.choice(legal))


def test_own_discard_is_barred_for_that_draw_only():
    game = deal([card(0, 2)], [card(1, 2)])
    discard(game, card(0, 2))
    assert game.barred == 0
    assert game.legal_actions() == [DECK]
    draw(game)
    assert game.barred is None
    discard(game, card(1, 2))
    assert game.legal_actions() == [DECK, pile(0)]
    draw(game)
    play(game, game.hands[0][0])
    assert game.legal_actions() == [DECK, pile(0), pile(1)]


def test_cards_below_an_own_discard_are_barred_too():
    game = deal([card(0, 2)], [card(0, 3)])
    discard(game, card(0, 2))
    draw(game)
    discard(game, card(0, 3))
    assert game.legal_actions() == [DECK]


def test_playing_bars_no_pile():
    game = deal([card(0, 2)], [card(0, 3)])
    discard(game, card(0, 2))
    draw(game)
    play(game, card(0, 3))
    assert game.legal_actions() == [DECK, pile(0)]


def test_draw_takes_the_top_of_a_pile():
    game = deal([card(0, 2)], [card(0, 3)])
    discard(game, card(0, 2))
    draw(game)
    discard(game, card(0, 3))
    draw(game)
    play(game, game.hands[0][-1])
    before = len(game.deck)
    draw(game, 0)
    assert card(0, 3) in game.hands[0]
    assert game.piles[0] == [1]
    assert len(game.deck) == before


def test_no_draw_from_an_empty_pile():
    game = shuffled(CLASSIC, 5)
    play(game, game.hands[0][0])
    assert game.legal_actions() == [DECK]
    with pytest.raises(ValueError, match=r"action 17 in the draw phase; allowed: \[16\]"):
        draw(game, 0)


def test_draw_from_a_pile_that_was_emptied_is_illegal():
    game = deal([card(0, 2)], [])
    discard(game, card(0, 2))
    draw(game)
    play(game, game.hands[1][-1])
    draw(game, 0)
    play(game, game.hands[0][-1])
    assert pile(0) not in game.legal_actions()


def test_deck_draw_is_always_legal():
    game = shuffled(CLASSIC, 6)
    generator = random.Random(6)
    while not game.is_over:
        legal = game.legal_actions()
        if game.phase == DRAW_PHASE:
            assert DECK in legal
        game.step(generator.choice(legal))


def test_last_deck_card_ends_the_game_at_once():
    game = shuffled(CLASSIC, 7)
    while len(game.deck) > 1:
        idle(game)
    assert not game.is_over
    discard(game, game.hands[game.player][0])
    assert not game.is_over
    draw(game)
    assert game.is_over
    assert not game.timed_out
    assert game.legal_actions() == []


def test_max_turns_ends_the_game_as_a_timeout():
    game = shuffled(dataclasses.replace(CLASSIC, max_turns=3), 8)
    for _ in range(3):
        assert not game.is_over
        idle(game)
    assert game.is_over
    assert game.timed_out
    assert game.legal_actions() == []
    assert len(game.deck) == 41


def test_last_deck_card_in_the_last_turn_is_no_timeout():
    game = shuffled(dataclasses.replace(CLASSIC, max_turns=44), 9)
    while not game.is_over:
        idle(game)
    assert game.turn == 44
    assert not game.timed_out


def test_pile_draws_alone_run_into_max_turns():
    game = deal([card(0, 2), card(1, 2)], [card(2, 2), card(3, 2)])
    for opening in (card(0, 2), card(2, 2), card(1, 2), card(3, 2)):
        discard(game, opening)
        draw(game)
    left = len(game.deck)
    while not game.is_over:
        oldest = [0, 2, 1, 3][game.turn % 4]
        other = next(c for c in game.hands[game.player] if c // CLASSIC.faces != oldest)
        discard(game, other)
        draw(game, next(c for c in range(5) if game.piles[c] and c != game.barred))
    assert game.timed_out
    assert (game.turn, len(game.deck)) == (CLASSIC.max_turns, left)


@pytest.mark.parametrize("action", [-1, DECK, pile(0), pile(5), 10**9, "0", None])
def test_illegal_action_names_the_action_and_what_is_allowed(action):
    game = shuffled(CLASSIC, 10)
    with pytest.raises(ValueError) as caught:
        game.step(action)
    assert str(caught.value) == (
        f"action {action!r} in the card phase; allowed: {list(range(2 * HAND))}"
    )


def test_illegal_action_changes_nothing():
    game = deal([card(0, 0), card(0, 5)], [])
    play(game, card(0, 5))
    draw(game)
    idle(game)
    before = (list(game.hands[0]), list(game.expeditions[0][0]), game.phase, game.turn)
    with pytest.raises(ValueError, match="action 0 in the card phase"):
        play(game, card(0, 0))
    assert before == (game.hands[0], game.expeditions[0][0], game.phase, game.turn)


def test_step_after_the_end_is_an_error():
    game = shuffled(dataclasses.replace(CLASSIC, max_turns=1), 11)
    idle(game)
    with pytest.raises(ValueError, match="action 8; allowed: none, the game is over"):
        game.step(HAND)


def test_card_taken_from_a_pile_is_known_until_it_leaves_the_hand():
    game = deal([card(0, 2)], [])
    discard(game, card(0, 2))
    draw(game)
    play(game, game.hands[1][-1])
    draw(game, 0)
    assert game.known == [{}, {card(0, 2): 1}]
    idle(game)
    discard(game, card(0, 2))
    assert game.known == [{}, {}]


def test_card_drawn_from_the_deck_is_not_known():
    game = shuffled(CLASSIC, 12)
    idle(game)
    assert game.known == [{}, {}]


def test_known_cards_are_counted_by_type():
    game = deal([card(0, 0), card(0, 0)], [card(0, 0)])
    for _ in range(2):
        discard(game, card(0, 0))
        draw(game)
        discard(game, game.hands[1][-1])
        draw(game, 0)
    assert game.hands[1].count(card(0, 0)) == 3
    assert game.known[1] == {card(0, 0): 2}
    # Of the three equal wagers, the known ones are taken to leave first.
    for left in ({card(0, 0): 1}, {}, {}):
        idle(game)
        play(game, card(0, 0))
        assert game.known[1] == left
        draw(game)


@pytest.mark.parametrize("rules", [CLASSIC, SIX_COLORS, MINI])
@pytest.mark.parametrize("seed", range(5))
def test_random_games_keep_every_card(rules, seed):
    game = shuffled(rules, seed)
    generator = random.Random(seed)
    cards = Counter(all_cards(rules).tolist())
    plies = 0
    while not game.is_over:
        game.step(generator.choice(game.legal_actions()))
        plies += 1
        table = [
            card_type(rules, color, face)
            for columns in (*game.expeditions, game.piles)
            for color, faces in enumerate(columns)
            for face in faces
        ]
        assert Counter([*game.deck, *game.hands[0], *game.hands[1], *table]) == cards
        assert all(game.known[p] <= Counter(game.hands[p]) for p in (0, 1))
    assert plies == 2 * game.turn <= 2 * rules.max_turns
    assert game.timed_out == bool(game.deck)
