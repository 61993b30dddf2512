"""Info states and features against the reference engine: all a player knows, and no more."""

import copy
import random
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lostcities_jax.cards import EMPTY, all_cards, card_type, face_of_printed, printed_face
from lostcities_jax.features import encode, feature_sizes
from lostcities_jax.info_state import InfoState, observe, pack, packed_size, pile_tops, unpack
from lostcities_jax.reference import Game, column_score
from lostcities_jax.rules import CARD_PHASE, CLASSIC, DRAW_PHASE, MINI, SIX_COLORS, Rules

RULE_SETS = {
    "classic": CLASSIC,
    "six colours": SIX_COLORS,
    "mini": MINI,
    "no wagers": Rules(wagers=0),
    "16 ranks": Rules(colors=3, ranks=16, wagers=0, hand=5),
    "15 wagers": Rules(colors=2, ranks=1, wagers=15, hand=6),
    "1 colour": Rules(colors=1, hand=1),
}
GAMES = 40


def packed_type(rules: Rules) -> np.dtype:
    """The packed layout, written down a second time: stored samples depend on it."""
    columns = ("<u2", (rules.colors,))
    return np.dtype(
        [
            ("hand", "u1", (rules.hand,)),
            ("own_known", *columns),
            ("other_known", *columns),
            ("own_expeditions", *columns),
            ("other_expeditions", *columns),
            ("piles", "u1", (rules.colors, rules.cards_per_color)),
            ("barred", "u1"),
            ("deck_left", "u1"),
            ("phase", "u1"),
            ("turn", "<u2"),
        ]
    )


def fields(rules: Rules, packed: np.ndarray) -> np.void:
    (row,) = packed.view(packed_type(rules))
    return row


def differing(rules: Rules, packed: np.ndarray, other: np.ndarray) -> set[str]:
    first, second = fields(rules, packed), fields(rules, other)
    return {name for name in first.dtype.names if (first[name] != second[name]).any()}


def faces_of(rules: Rules, column: int) -> list[int]:
    """Cards of a column in ascending order, from its bits as `cards` defines them."""
    wagers, numbers = int(column) & ((1 << rules.wagers) - 1), int(column) >> rules.wagers
    assert wagers & (wagers + 1) == 0, "wagers fill the low bits"
    faces = [rank + 1 for rank in range(rules.ranks) if numbers >> rank & 1]
    return [0] * wagers.bit_count() + faces


def cards_of(rules: Rules, columns: np.ndarray) -> Counter:
    return Counter(
        card_type(rules, color, face)
        for color, column in enumerate(columns)
        for face in faces_of(rules, column)
    )


def random_games(random_game, rules: Rules) -> list[Game]:
    return [random_game(rules, seed) for seed in range(GAMES)]


def hidden_cards_dealt_anew(game: Game, player: int, seed: int) -> Game:
    """The game with all that a player cannot see in another order."""
    other, anew = 1 - player, copy.deepcopy(game)
    known = game.known[other]
    unknown = list((Counter(game.hands[other]) - known).elements())
    hidden = unknown + game.deck
    random.Random(seed).shuffle(hidden)
    anew.hands[other] = sorted([*known.elements(), *hidden[: len(unknown)]])
    anew.deck = hidden[len(unknown) :]
    return anew


@pytest.mark.parametrize(
    ("rules", "size"), [(CLASSIC, 113), (SIX_COLORS, 133), (MINI, 29)], ids=["113", "133", "29"]
)
def test_packed_info_state_takes_about_100_bytes(rules, size, random_game, packed_view):
    assert packed_size(rules) == size
    assert packed_view(random_game(rules, 0), 0).shape == (size,)


@pytest.mark.parametrize("name", RULE_SETS)
def test_every_field_is_what_the_reference_says(name, random_game, packed_view):
    rules = RULE_SETS[name]
    for game in random_games(random_game, rules):
        for player, other in ((0, 1), (1, 0)):
            seen = fields(rules, packed_view(game, player))
            hand = game.hands[player]
            assert seen["hand"].tolist() == hand + [EMPTY] * (rules.hand - len(hand))
            assert cards_of(rules, seen["own_known"]) == game.known[player]
            assert cards_of(rules, seen["other_known"]) == game.known[other]
            for field, owner in (("own_expeditions", player), ("other_expeditions", other)):
                columns = [faces_of(rules, column) for column in seen[field]]
                assert columns == game.expeditions[owner]
            piles = [[face for face in pile if face != EMPTY] for pile in seen["piles"].tolist()]
            assert piles == game.piles
            assert seen["barred"] == (rules.colors if game.barred is None else game.barred)
            assert seen["deck_left"] == len(game.deck)
            assert seen["phase"] == game.phase
            assert seen["turn"] == game.turn


@pytest.mark.parametrize("name", RULE_SETS)
def test_unpack_is_the_inverse_of_pack_with_any_leading_lanes(
    name, random_game, state_of, packed_view
):
    rules = RULE_SETS[name]
    games = random_games(random_game, rules)[:6]
    packed = np.stack([packed_view(game, 1) for game in games]).reshape(2, 3, -1)
    expected = [observe(state_of(game), 1) for game in games]
    infos = unpack(rules, packed)
    for field in InfoState._fields:
        unpacked = np.asarray(getattr(infos, field))
        values = np.stack([getattr(info, field) for info in expected])
        assert unpacked.dtype == values.dtype
        np.testing.assert_array_equal(unpacked, values.reshape(2, 3, *values.shape[1:]), field)
    again = jax.vmap(jax.vmap(pack))(infos)
    assert (np.asarray(again) == packed).all()


@pytest.mark.parametrize("player", [0, 1])
@pytest.mark.parametrize("name", RULE_SETS)
def test_hidden_cards_do_not_show(name, player, random_game, packed_view):
    rules = RULE_SETS[name]
    changed = 0
    for seed, game in enumerate(random_games(random_game, rules)):
        anew = hidden_cards_dealt_anew(game, player, seed)
        assert packed_view(anew, player).tobytes() == packed_view(game, player).tobytes()
        changed += (
            packed_view(anew, 1 - player).tobytes() != packed_view(game, 1 - player).tobytes()
        )
    assert changed > GAMES // 4


def swap_own_card(game: Game) -> None:
    hand, deck = game.hands[0], game.deck
    slot = next(slot for slot, card in enumerate(hand) if card != deck[0])
    hand[slot], deck[0] = deck[0], hand[slot]
    hand.sort()


def reverse_pile(game: Game) -> None:
    next(pile for pile in game.piles if pile != pile[::-1]).reverse()


def move_to_expedition(player: int):
    def change(game: Game) -> None:
        color, face = divmod(game.deck.pop(), game.rules.faces)
        column = game.expeditions[player][color]
        column.append(face)
        column.sort()
        game.deck.append(0)

    return change


def know_card(player: int):
    def change(game: Game) -> None:
        unknown = Counter(game.hands[player]) - game.known[player]
        game.known[player][next(iter(unknown))] += 1

    return change


def set_attribute(name: str, value: int):
    return lambda game: setattr(game, name, value)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("hand", swap_own_card),
        ("piles", reverse_pile),
        ("own_expeditions", move_to_expedition(0)),
        ("other_expeditions", move_to_expedition(1)),
        ("own_known", know_card(0)),
        ("other_known", know_card(1)),
        ("deck_left", lambda game: game.deck.pop()),
        ("barred", set_attribute("barred", 3)),
        ("turn", set_attribute("turn", 150)),
        ("phase", set_attribute("phase", DRAW_PHASE)),
    ],
)
def test_what_a_player_knows_shows_in_its_field_alone(field, change, random_game, packed_view):
    game = next(
        game
        for game in (random_game(CLASSIC, seed) for seed in range(100))
        if any(pile != pile[::-1] for pile in game.piles)
        and game.phase == CARD_PHASE
        and len(game.deck) > 5
    )
    changed = copy.deepcopy(game)
    change(changed)
    before, after = packed_view(game, 0), packed_view(changed, 0)
    assert differing(CLASSIC, before, after) == {field}


def test_card_taken_from_a_pile_is_known_until_it_is_played(packed_view):
    red_3, red_9, blue_5 = (
        card_type(CLASSIC, color, face_of_printed(CLASSIC, printed))
        for color, printed in ((0, 3), (0, 9), (2, 5))
    )
    rest = (Counter(all_cards(CLASSIC).tolist()) - Counter([red_3, red_9, blue_5])).elements()
    game = Game(CLASSIC, [red_3, blue_5, *rest, red_9])

    def discard(card: int) -> None:
        game.step(CLASSIC.hand + game.hands[game.player].index(card))

    def known() -> list[list[Counter]]:
        return [
            [
                cards_of(CLASSIC, fields(CLASSIC, packed_view(game, player))[field])
                for field in ("own_known", "other_known")
            ]
            for player in (0, 1)
        ]

    nothing = Counter()
    discard(red_3)
    game.step(2 * CLASSIC.hand)
    assert known() == [[nothing, nothing], [nothing, nothing]]
    discard(blue_5)
    game.step(2 * CLASSIC.hand + 1 + 0)
    taken = Counter([red_3])
    assert known() == [[nothing, taken], [taken, nothing]]
    game.step(CLASSIC.hand)
    game.step(2 * CLASSIC.hand)
    assert known() == [[nothing, taken], [taken, nothing]]
    game.step(game.hands[1].index(red_3))
    assert known() == [[nothing, nothing], [nothing, nothing]]


def test_equal_hands_are_equal_arrays_whatever_wager_left_and_in_whatever_order_they_came(
    packed_view,
):
    wager = card_type(CLASSIC, 0, 0)
    own, others = [wager, wager, wager, 12, 25, 37, 38, 49], [1, 2, 3, 4, 5, 6, 7, 8]
    rest = sorted((Counter(all_cards(CLASSIC).tolist()) - Counter([*own, *others])).elements())
    views = set()
    for seed in range(5):
        random.Random(seed).shuffle(own)
        for action in range(3):
            for kind in (0, CLASSIC.hand):
                dealt = [card for pair in zip(own, others, strict=True) for card in pair]
                game = Game(CLASSIC, [*dealt, *rest])
                game.step(kind + action)
                views.add((kind, packed_view(game, 0).tobytes()))
    assert len(views) == 2


def test_pile_tops_are_the_last_discards(random_game, packed_view):
    games = random_games(random_game, CLASSIC)
    packed = np.stack([packed_view(game, 0) for game in games])
    expected = [[pile[-1] if pile else EMPTY for pile in game.piles] for game in games]
    assert pile_tops(unpack(CLASSIC, packed)).tolist() == expected


def is_open(column: list[int], face: int) -> bool:
    return all(played == 0 or face > played for played in column)


def expected_features(game: Game, player: int) -> tuple[list, list, list]:
    """Features by their definition, from the reference game; one list a part."""
    rules, other = game.rules, 1 - player
    faces = range(rules.faces)
    copies = [max(rules.wagers, 1)] + [1] * rules.ranks
    points = [0] + [printed_face(rules, face) for face in faces[1:]]
    cards, columns = [], []
    for color in range(rules.colors):
        own, others = game.expeditions[player][color], game.expeditions[other][color]
        pile = game.piles[color]
        held, shown, known = (
            [face for card in hand for c, face in [divmod(card, rules.faces)] if c == color]
            for hand in (
                game.hands[player],
                game.known[player].elements(),
                game.known[other].elements(),
            )
        )
        playable = [face for face in held if is_open(own, face)]
        tops = [pile[-1:] == [face] for face in faces]
        cards.append(
            [
                *[
                    place.count(face) / copies[face]
                    for place in (held, shown, known, own, others, pile)
                    for face in faces
                ],
                *tops,
            ]
        )
        wanted = [is_open(own, face) or is_open(others, face) for face in faces]
        columns.append(
            [
                *[playable.count(face) / copies[face] for face in faces],
                *[top and wish for top, wish in zip(tops, wanted, strict=True)],
                *[
                    amount
                    for column in (own, others)
                    for amount in (
                        bool(column),
                        len(column) / rules.bonus_cards,
                        sum(points[face] for face in column) / sum(points),
                        column_score(rules, column) / 50,
                    )
                ],
                sum(points[face] for face in playable) / sum(points),
                len(playable) / rules.hand,
                game.barred == color,
            ]
        )
    table = [
        len(game.deck) / rules.deck_after_deal,
        game.turn / rules.max_turns,
        game.phase == DRAW_PHASE,
        game.scores()[player] / 50,
        game.scores()[other] / 50,
    ]
    return cards, columns, table


@pytest.mark.parametrize("name", RULE_SETS)
def test_features_are_the_counts_of_the_reference(name, random_game, packed_view):
    rules = RULE_SETS[name]
    games = random_games(random_game, rules)
    for player in (0, 1):
        packed = np.stack([packed_view(game, player) for game in games])
        features = jax.jit(lambda packed: encode(rules, unpack(rules, packed)))(packed)
        expected = zip(*[expected_features(game, player) for game in games], strict=True)
        for part, size, values in zip(features, feature_sizes(rules), expected, strict=True):
            assert part.dtype == jnp.float32
            assert part.shape[-1] == size
            np.testing.assert_allclose(part, np.array(values, np.float32), atol=1e-6)


@pytest.mark.parametrize("name", RULE_SETS)
def test_features_are_finite_and_of_order_one(name, random_game, packed_view):
    rules = RULE_SETS[name]
    packed = np.stack([packed_view(game, 0) for game in random_games(random_game, rules)])
    features = encode(rules, unpack(rules, packed))
    for part in map(np.asarray, features):
        assert np.isfinite(part).all()
        assert np.abs(part).max() <= 8
