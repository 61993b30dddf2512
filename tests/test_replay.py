"""Recorded games: all verify, and every corruption is one clear line."""

import copy
import json
import pathlib
import random

import pytest

from lostcities_jax.cards import all_cards
from lostcities_jax.recording import (
    DEFAULT_MAX_TURNS,
    Move,
    RecordedGame,
    ReplayError,
    format_game,
    parse_game,
)
from lostcities_jax.reference import Game
from lostcities_jax.replay import (
    MAX_LINE_BYTES,
    ReplaySummary,
    move_action,
    verify_file,
    verify_game,
)
from lostcities_jax.rules import CLASSIC

RECORDED = pathlib.Path(__file__).parent / "data" / "replays.jsonl"
LINES = RECORDED.read_text("utf-8").splitlines()
CLASSIC_LINE = next(
    line
    for line in LINES
    if '"colors":5' in line and "random" in line and '"finished":true' in line
)
UNFINISHED_LINE = next(line for line in LINES if '"finished":false' in line)


@pytest.fixture
def record():
    return json.loads(CLASSIC_LINE)


def verify(record):
    verify_game(parse_game(json.dumps(record)))


def error_of(call, *arguments):
    """The message of the ReplayError, which must be one readable line."""
    with pytest.raises(ReplayError) as caught:
        call(*arguments)
    message = str(caught.value)
    assert message.isprintable()
    assert "allowed: " in message
    assert len(message) < 1000
    return message


def write(tmp_path, content):
    path = tmp_path / "games.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("number", range(1, len(LINES) + 1))
def test_recorded_game_verifies(number):
    verify_game(parse_game(LINES[number - 1]))


def test_recorded_games_cover_six_rule_sets_and_both_endings():
    games = [parse_game(line) for line in LINES]
    assert len({game.rules for game in games}) == 6
    assert verify_file(RECORDED) == ReplaySummary(
        games=66, moves=sum(len(game.moves) for game in games), finished=58, unfinished=8
    )


def test_parsed_game_has_card_types_and_moves(record):
    game = parse_game(CLASSIC_LINE)
    assert game.rules.max_turns == DEFAULT_MAX_TURNS
    assert sorted(game.deck) == all_cards(game.rules).tolist()
    assert len(game.moves) == game.plies == record["plies"]
    assert list(game.scores) == record["scores"]
    assert list(game.players or ()) == record["players"]
    for move, (kind, *rest) in zip(game.moves, record["moves"], strict=True):
        assert move.kind == kind
        if kind == "draw":
            assert move.card is None
            assert move.pile == (None if rest == ["deck"] else rest[0])
        else:
            color, printed = rest
            face = 0 if printed == 0 else printed - 1
            assert move == Move(kind, card=10 * color + face)


def test_optional_keys_may_be_absent(record):
    del record["players"], record["plies"]
    game = parse_game(json.dumps(record))
    assert game.players is None
    assert game.plies is None
    verify_game(game)


def test_max_turns_ends_a_recorded_game(record):
    record["rules"]["max_turns"] = 3
    record["moves"] = record["moves"][:6]
    record["plies"] = 6
    game = parse_game(json.dumps(record))
    assert game.rules.max_turns == 3
    state = Game(game.rules, game.deck)
    for move in game.moves:
        state.step(move_action(state, move))
    record["scores"] = state.scores()
    verify(record)
    record["finished"] = False
    assert "finished is false; allowed: true, the game has ended" in error_of(verify, record)


def test_unfinished_game_may_stop_between_card_and_draw(record):
    assert record["moves"][0][0] == "discard"
    record.update(moves=record["moves"][:1], plies=1, scores=[0, 0], finished=False)
    verify(record)


def test_game_without_moves_is_unfinished(record):
    record.update(moves=[], plies=0, scores=[0, 0], finished=False)
    verify(record)


def test_game_recorded_from_the_reference_engine_verifies():
    deck = all_cards(CLASSIC).tolist()
    random.Random(0).shuffle(deck)
    state = Game(CLASSIC, deck)
    moves = []
    while not state.is_over:
        card_phase = len(moves) % 2 == 0
        moves.append(
            Move("discard", card=state.hands[state.player][0]) if card_phase else Move("draw")
        )
        state.step(move_action(state, moves[-1]))
    game = RecordedGame(CLASSIC, tuple(deck), tuple(moves), (0, 0), finished=True)
    verify_game(game)
    assert len(moves) == 88


def test_equal_cards_give_the_lowest_slot():
    deck = all_cards(CLASSIC).tolist()
    state = Game(CLASSIC, deck)
    assert state.hands[0][:2] == [0, 0]
    assert move_action(state, Move("play", card=0)) == 0
    assert move_action(state, Move("discard", card=0)) == 8


RULES_CORRUPTIONS = [
    ("colors", 7, "rules.colors is 7; allowed: 1 to 6"),
    ("colors", 0, "rules.colors is 0; allowed: 1 to 6"),
    ("colors", True, "rules.colors is true; allowed: a whole number"),
    ("colors", 5.0, "rules.colors is 5.0; allowed: a whole number"),
    ("colors", "5", 'rules.colors is "5"; allowed: a whole number'),
    ("colors", None, "rules.colors is null; allowed: a whole number"),
    ("colors", [5], "rules.colors is [5]; allowed: a whole number"),
    ("ranks", 10**4000, "rules.ranks is 1000"),
    ("wagers", 15, "rules.ranks + rules.wagers is 24; allowed: at most 16"),
    ("hand", 30, "rules.hand is 30; allowed: at most 29"),
    ("penalty", 20, "rules.penalty is 20; allowed: -1000 to 0"),
    ("max_turns", 0, "rules.max_turns is 0; allowed: 1 to 10000"),
    ("max_turns", 10001, "rules.max_turns is 10001; allowed: 1 to 10000"),
    ("colours", 5, 'rules has the unknown key "colours" (did you mean "colors"?); allowed: colors'),
    ("bonus_card", 8, '"bonus_card" (did you mean "bonus_cards"?)'),
    ("maxturns", 8, '"maxturns" (did you mean "max_turns"?)'),
    ("x\n\u2028\ud800y", 1, r'unknown key "x\n\u2028\ud800y"; allowed: colors'),
    ("z" * 1_000_000, 1, 'unknown key "zzzz'),
]


@pytest.mark.parametrize(
    ("key", "value", "message"), RULES_CORRUPTIONS, ids=range(len(RULES_CORRUPTIONS))
)
def test_bad_rules_are_named(record, key, value, message):
    record["rules"][key] = value
    assert message in error_of(verify, record)


@pytest.mark.parametrize("key", json.loads(CLASSIC_LINE)["rules"])
def test_missing_rule_is_named(record, key):
    del record["rules"][key]
    assert f'rules has no key "{key}"' in error_of(verify, record)


@pytest.mark.parametrize("key", ["rules", "deck", "moves", "scores", "finished"])
def test_missing_key_is_named(record, key):
    del record[key]
    assert f'the game has no key "{key}"' in error_of(verify, record)


def test_unknown_key_is_named(record):
    record["move"] = record["moves"]
    assert 'unknown key "move" (did you mean "moves"?)' in error_of(verify, record)


WRONG_TYPES = [None, True, 1, -1, 1.5, "x", {}, {"deck": 1}, [[[[1]]]]]
RIGHT_TYPES = {"finished": (bool,), "plies": (int,)}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (key, value)
        for key in ("rules", "deck", "moves", "scores", "finished", "players", "plies")
        for value in WRONG_TYPES
        if type(value) not in RIGHT_TYPES.get(key, ())
    ],
)
def test_wrong_type_is_named(record, key, value):
    record[key] = value
    message = error_of(verify, record)
    assert message.startswith("move 1 is" if (key, value) == ("moves", [[[[1]]]]) else key)


def edit(key, *path_and_value):
    *path, value = path_and_value

    def change(record):
        target = record[key]
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value

    return change


CARD_FORMS = 'allowed: ["play" or "discard", colour, number] or ["draw", "deck" or colour]'
VALUE_CORRUPTIONS = [
    (edit("deck", 4, [0, 11]), "deck card 5 is [0, 11]; allowed: the number 0 (wager) or 2 to 10"),
    (edit("deck", 4, [0, 1]), "deck card 5 is [0, 1]; allowed: the number 0 (wager) or 2 to 10"),
    (edit("deck", 4, [0, -2]), "deck card 5 is [0, -2]; allowed: the number"),
    (edit("deck", 4, [5, 2]), "deck card 5 is [5, 2]; allowed: the colour 0 to 4"),
    (edit("deck", 4, [-1, 2]), "deck card 5 is [-1, 2]; allowed: the colour 0 to 4"),
    (edit("deck", 4, [True, 2]), "deck card 5 is [true, 2]; allowed: the colour 0 to 4"),
    (edit("deck", 4, [0, 2.0]), "deck card 5 is [0, 2.0]; allowed: the number"),
    (edit("deck", 4, [0, 10**4000]), "deck card 5 is [0, 1000"),
    (edit("deck", 4, [0]), "deck card 5 is [0]; allowed: [colour, number]"),
    (edit("deck", 4, [0, 2, 2]), "deck card 5 is [0, 2, 2]; allowed: [colour, number]"),
    (edit("deck", 4, 7), "deck card 5 is 7; allowed: [colour, number]"),
    (edit("deck", 4, "02"), 'deck card 5 is "02"; allowed: [colour, number]'),
    (edit("deck", 4, {"0": 2}), 'deck card 5 is {"0": 2}; allowed: [colour, number]'),
    (edit("moves", 2, ["play", 0, 11]), 'move 3 is ["play", 0, 11]; allowed: the number 0'),
    (edit("moves", 2, ["play", 9, 2]), 'move 3 is ["play", 9, 2]; allowed: the colour 0 to 4'),
    (edit("moves", 2, ["play", None, 2]), 'move 3 is ["play", null, 2]; allowed: the colour'),
    (edit("moves", 2, ["play", 0, "2"]), 'move 3 is ["play", 0, "2"]; allowed: the number'),
    (edit("moves", 2, ["pass"]), f'move 3 is ["pass"]; {CARD_FORMS}'),
    (edit("moves", 2, ["play", 0]), f'move 3 is ["play", 0]; {CARD_FORMS}'),
    (edit("moves", 2, ["draw", 0, 2]), f'move 3 is ["draw", 0, 2]; {CARD_FORMS}'),
    (edit("moves", 2, "play"), f'move 3 is "play"; {CARD_FORMS}'),
    (edit("moves", 2, []), f"move 3 is []; {CARD_FORMS}"),
    (edit("moves", 2, None), f"move 3 is null; {CARD_FORMS}"),
    (edit("moves", 2, [["play"], 0, 2]), f'move 3 is [["play"], 0, 2]; {CARD_FORMS}'),
    (edit("moves", 3, ["draw", 5]), 'move 4 is ["draw", 5]; allowed: the colour 0 to 4'),
    (edit("moves", 3, ["draw", "pile"]), 'move 4 is ["draw", "pile"]; allowed: the colour 0 to 4'),
    (edit("moves", 3, ["draw", False]), 'move 4 is ["draw", false]; allowed: the colour 0 to 4'),
    (edit("scores", 0, 1.5), "scores is [1.5, "),
    (edit("scores", 0, False), "scores is [false, "),
    (edit("scores", 0, 10**4000), "scores is [1000"),
    (edit("players", 0, 1), "players is [1, "),
    (edit("players", 0, "\x1b[2J"), r'players is ["\u001b[2J", '),
    (edit("players", 0, "\ud800"), r'players is ["\ud800", '),
]


@pytest.mark.parametrize(
    ("change", "message"), VALUE_CORRUPTIONS, ids=range(len(VALUE_CORRUPTIONS))
)
def test_bad_value_is_named(record, change, message):
    change(record)
    assert message in error_of(verify, record)


@pytest.mark.parametrize("number", range(len(LINES)))
def test_a_written_game_is_the_one_read(number):
    game = parse_game(LINES[number])
    line = format_game(game)
    assert parse_game(line) == game
    written, read = json.loads(line), json.loads(LINES[number])
    assert written["rules"].pop("max_turns") == DEFAULT_MAX_TURNS
    assert written == read


def test_missing_card_is_named(record):
    del record["deck"][59]
    assert "the deck has 59 cards; allowed: 60" in error_of(verify, record)


def test_extra_card_is_named(record):
    record["deck"].append([0, 2])
    assert "the deck has 61 cards; allowed: 60" in error_of(verify, record)


def test_duplicate_card_is_named(record):
    at = next(i for i, card in enumerate(record["deck"]) if card == [3, 7])
    record["deck"][at - 1] = [3, 7]
    message = error_of(verify, record)
    assert "the deck has 2 of card type 36 (colour 3, printed 7); allowed: 1" in message


def test_wager_is_no_card_where_the_rules_have_none(record):
    record["rules"]["wagers"] = 0
    assert "allowed: the number 2 to 10" in error_of(verify, record)


def test_card_not_in_hand_is_named_with_the_hand(record):
    hand = record["deck"][0:16:2]
    missing = next(card for card in record["deck"][16:] if card not in hand)
    record["moves"][0] = ["discard", *missing]
    message = error_of(verify, record)
    assert message.startswith(f"move 1 is {json.dumps(record['moves'][0])}; allowed: a card move, ")
    for card in hand:
        assert json.dumps(["discard", *card]) in message


def test_descending_number_is_named():
    rules = {"colors": 1, "ranks": 5, "lowest": 2, "wagers": 0, "hand": 2}
    rules |= {"penalty": -20, "bonus_cards": 8, "bonus": 20}
    record = {
        "rules": rules,
        "deck": [[0, 5], [0, 2], [0, 3], [0, 4], [0, 6]],
        "moves": [["play", 0, 5], ["draw", "deck"]],
        "scores": [-15, 0],
        "finished": True,
    }
    verify(record)
    record["rules"]["ranks"] = 6
    record["deck"].append([0, 7])
    record["moves"] += [["discard", 0, 2], ["draw", "deck"]]
    verify(record)
    record["deck"] += [[1, number] for number in range(2, 8)]
    record["rules"]["colors"] = 2
    record["moves"].append(["play", 0, 3])
    message = error_of(verify, record)
    assert message == ('move 5 is ["play", 0, 3]; allowed: a card move, ["play", 0, 6]')


def test_barred_pile_is_named(record):
    color = record["moves"][0][1]
    assert record["moves"][0][0] == "discard"
    record["moves"][1] = ["draw", color]
    message = error_of(verify, record)
    assert message == f'move 2 is ["draw", {color}]; allowed: a draw, ["draw", "deck"]'


def test_draw_in_the_card_phase_is_named(record):
    record["moves"].insert(2, ["draw", "deck"])
    message = error_of(verify, record)
    assert message.startswith('move 3 is ["draw", "deck"]; allowed: a card move, ["play", ')


def test_card_in_the_draw_phase_is_named(record):
    del record["moves"][1]
    message = error_of(verify, record)
    assert message.startswith(f"move 2 is {json.dumps(record['moves'][1])}; allowed: a draw, ")


def test_move_after_the_end_is_named(record):
    count = len(record["moves"])
    record["moves"].append(["discard", 0, 2])
    message = error_of(verify, record)
    assert message == f'move {count + 1} is ["discard", 0, 2]; allowed: none, the game is over'


def test_finished_too_early_is_named(record):
    del record["moves"][-1]
    message = error_of(verify, record)
    count = len(record["moves"])
    assert message == f"finished is true; allowed: false, the game goes on after {count} moves"


def test_unfinished_though_ended_is_named(record):
    record["finished"] = False
    message = error_of(verify, record)
    count = len(record["moves"])
    assert message == f"finished is false; allowed: true, the game has ended after {count} moves"


@pytest.mark.parametrize("line", [CLASSIC_LINE, UNFINISHED_LINE], ids=["finished", "unfinished"])
@pytest.mark.parametrize("player", [0, 1])
def test_wrong_score_is_named(line, player):
    record = json.loads(line)
    right = copy.copy(record["scores"])
    record["scores"][player] += 1
    message = error_of(verify, record)
    assert message.startswith(
        f"scores is {record['scores']}; allowed: {right}, as the table stands"
    )


@pytest.mark.parametrize("change", [1, -1])
def test_wrong_plies_is_named(record, change):
    record["plies"] += change
    count = len(record["moves"])
    assert error_of(verify, record) == (
        f"plies is {count + change}; allowed: {count}, the number of moves"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "column 2 is not JSON"),
        ("", "column 1 is not JSON"),
        ("{'rules': 1}", "column 2 is not JSON"),
        ('{"rules": }', "is not JSON"),
        ('{"a": "\x00"}', "is not JSON"),
        ("{} {}", "column 4 is not JSON (Extra data)"),
        (CLASSIC_LINE[: len(CLASSIC_LINE) // 2], "is not JSON"),
        ("\ufeff{}", "is not JSON"),
        ("NaN", "a value is NaN"),
        ('{"scores": [NaN, 0]}', "a value is NaN"),
        ('{"scores": [-Infinity, 0]}', "a value is -Infinity"),
        ("1e999", "the game is Infinity; allowed: an object"),
        ("[]", "the game is []; allowed: an object"),
        ("null", "the game is null; allowed: an object"),
        ("9" * 5000, "a number has thousands of digits"),
        ("[" * 200_000, "nested too deeply"),
        ('{"a":' * 200_000, "nested too deeply"),
        ("[" * 200_000 + "]" * 200_000, "nested too deeply"),
        ('{"deck": [], "deck": []}', 'key "deck" is given twice'),
    ],
    ids=range(19),
)
def test_line_that_is_no_game_is_one_line(line, message):
    assert message in error_of(parse_game, line)


def test_value_nested_to_the_limit_is_one_line(record):
    for depth in range(50, 1500, 50):
        text = json.dumps(record | {"players": "HERE"})
        error_of(parse_game, text.replace('"HERE"', "[" * depth + "]" * depth))


def test_file_counts_games_and_skips_blank_lines(tmp_path):
    path = write(tmp_path, f"\n{CLASSIC_LINE}\r\n  \n{UNFINISHED_LINE}")
    summary = verify_file(str(path))
    assert (summary.games, summary.finished, summary.unfinished) == (2, 1, 1)


def test_file_error_has_the_line_number(tmp_path, record):
    record["scores"][0] += 1
    path = write(tmp_path, f"{CLASSIC_LINE}\n\n{json.dumps(record)}\n")
    assert f"{path}: line 3: scores is " in error_of(verify_file, path)


def test_file_error_has_line_and_move_number(tmp_path, record):
    record["moves"][6] = ["draw", "deck"]
    path = write(tmp_path, f"{CLASSIC_LINE}\n{json.dumps(record)}\n")
    assert f'{path}: line 2: move 7 is ["draw", "deck"]; allowed: ' in error_of(verify_file, path)


@pytest.mark.parametrize("content", ["", "\n\n", "  \r\n"])
def test_file_without_games_is_an_error(tmp_path, content):
    assert "has no games" in error_of(verify_file, write(tmp_path, content))


def test_truncated_last_line_is_named(tmp_path):
    path = write(tmp_path, f"{CLASSIC_LINE}\n{CLASSIC_LINE[:-1]}\n")
    message = error_of(verify_file, path)
    assert f"line 2: column {len(CLASSIC_LINE)} is not JSON" in message


def test_bytes_that_are_not_utf_8_are_named(tmp_path):
    path = write(tmp_path, CLASSIC_LINE.encode() + b"\n{\xff}\n")
    assert "line 2: byte 2 is 0xff; allowed: UTF-8 text" in error_of(verify_file, path)


def test_binary_file_is_one_line(tmp_path):
    path = write(tmp_path, random.Random(0).randbytes(100_000))
    error_of(verify_file, path)


def test_missing_file_is_one_line(tmp_path):
    path = tmp_path / "none.jsonl"
    assert f"{path} cannot be read: No such file" in error_of(verify_file, path)


def test_directory_is_one_line(tmp_path):
    assert f"{tmp_path} cannot be read: " in error_of(verify_file, tmp_path)


@pytest.mark.parametrize("path", ["", "a\0b", "a\nb", "a" * 600, "\ud800"])
def test_impossible_path_is_one_line(path):
    assert "cannot be read" in error_of(verify_file, path)


def test_line_of_several_megabytes_is_read(tmp_path, record):
    record["moves"] += [["discard", 0, 2]] * 200_000
    path = write(tmp_path, json.dumps(record))
    assert path.stat().st_size > 3_000_000
    assert "allowed: none, the game is over" in error_of(verify_file, path)


def test_megabytes_of_spaces_are_harmless(tmp_path):
    path = write(tmp_path, CLASSIC_LINE + " " * 4_000_000)
    assert verify_file(path).games == 1


def test_too_long_line_is_refused(tmp_path):
    path = write(tmp_path, b"[" * (MAX_LINE_BYTES + 1))
    message = error_of(verify_file, path)
    assert f"line 1 is too long; allowed: {MAX_LINE_BYTES} bytes" in message


@pytest.mark.parametrize("seed", range(200))
def test_random_damage_never_raises_anything_else(tmp_path, seed):
    generator = random.Random(seed)
    line = bytearray(generator.choice([text for text in LINES if len(text) < 4000]).encode())
    for _ in range(generator.randint(1, 4)):
        at = generator.randrange(len(line))
        damage = generator.choice(
            [b"", b"0", b"-", b"[", b"]", b'"', b",", b"1e9", b"\xff", b"null"]
        )
        line[at : at + generator.randint(0, 3)] = damage
    path = write(tmp_path, bytes(line))
    try:
        verify_file(path)
    except ReplayError as error:
        assert str(error).isprintable()
        assert "allowed: " in str(error)
