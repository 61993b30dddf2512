"""Recorded games as JSON lines: reading them, and verifying them on the reference engine.

The format is stable, so that games recorded by any other engine can be fed in and checked.

A file is UTF-8 text with one JSON object (one game) a line; blank lines are ignored, a line
may take at most 16 MiB. Numbers are whole numbers throughout. The keys of a game:

    rules     object: the rule set
                colors       colours in the game, 1 to 6
                ranks        number cards of one colour, 1 to 16
                lowest       number printed on the lowest number card, 1 to 100
                wagers       wager cards of one colour, 0 to 15; with `ranks` at most 16
                hand         cards in a hand, 1 to 40; the deal must leave a card
                penalty      added to the sum of an expedition with any card, -1000 to 0
                bonus_cards  cards an expedition needs for the bonus, 1 to 17
                bonus        points of the bonus, 0 to 1000
                max_turns    optional: turns of both players together after which the game
                             ends as it stands, 1 to 10000; where absent, 10000
    deck      list: every card of the game in the order it leaves the deck. A card is
              [colour, number printed on it], colours counted from 0, a wager being 0. The
              first 2 x hand cards are dealt one at a time, player 0 first; the rest are
              drawn in order.
    moves     list: alternately a card move and a draw; the players take turns, player 0
              first. A card move is ["play", colour, number] or ["discard", colour, number],
              a draw is ["draw", "deck"] or ["draw", colour] (the top of that pile).
    scores    [player 0, player 1]: points when the recording stops
    finished  true if the last move ended the game (by the last deck card or by max_turns),
              false if the recording stops before; it is then scored as it stands
    players   optional: [name, name]
    plies     optional: number of moves

Other keys are errors, and so is a key given twice. An example, its lists cut short:

    {"rules": {"colors": 5, "ranks": 9, "lowest": 2, "wagers": 3, "hand": 8, "penalty": -20,
    "bonus_cards": 8, "bonus": 20}, "players": ["ann", "bob"], "deck": [[2, 5], [4, 0], ...],
    "moves": [["discard", 2, 5], ["draw", "deck"], ...], "finished": true, "scores": [12, -7],
    "plies": 88}
"""

import dataclasses
import difflib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn

from lostcities_jax.cards import card_type, face_of_printed, printed_face
from lostcities_jax.reference import Game
from lostcities_jax.rules import CARD_PHASE, Rules

# Far above any game that the turn limit allows, far below what would exhaust memory.
MAX_LINE_BYTES = 16 * 2**20
# What an absent `max_turns` means: the largest that a rule set may have.
DEFAULT_MAX_TURNS = 10_000
# A larger number is wrong wherever it stands, and would only make a message unreadable.
_LARGEST_NUMBER = 999_999
_SHOWN_CHARACTERS = 80

_GAME_KEYS = ("rules", "deck", "moves", "scores", "finished")
_OPTIONAL_GAME_KEYS = ("players", "plies")
_OPTIONAL_RULES_KEYS = ("max_turns",)
_RULES_KEYS = tuple(
    field.name for field in dataclasses.fields(Rules) if field.name not in _OPTIONAL_RULES_KEYS
)
_MOVE_FORMS = '["play" or "discard", colour, number] or ["draw", "deck" or colour]'


class ReplayError(ValueError):
    """What is wrong with a recorded game, in one line: where, which value, what is allowed."""


@dataclasses.dataclass(frozen=True)
class Move:
    """One recorded move.

    Attributes:
      kind: what was done.
      card: card type played or discarded; None for a draw.
      pile: colour of the pile drawn from; None for the deck and for a card move.
    """

    kind: Literal["play", "discard", "draw"]
    card: int | None = None
    pile: int | None = None


@dataclasses.dataclass(frozen=True)
class RecordedGame:
    """One recorded game whose values are well-formed; `verify_game` says if they are true.

    Attributes:
      rules: the rule set.
      deck: card types in the order they leave the deck; int[N].
      moves: card moves and draws, alternately.
      scores: points of both players when the recording stops.
      finished: whether the last move ended the game.
      players: names of both players, if recorded.
      plies: number of moves, if recorded.
    """

    rules: Rules
    deck: tuple[int, ...]
    moves: tuple[Move, ...]
    scores: tuple[int, int]
    finished: bool
    players: tuple[str, str] | None = None
    plies: int | None = None


@dataclasses.dataclass(frozen=True)
class ReplaySummary:
    """What a verified file held.

    Attributes:
      games: number of games.
      moves: moves of all games together.
      finished: games recorded to their end.
      unfinished: games whose recording stops before.
    """

    games: int
    moves: int
    finished: int
    unfinished: int


def parse_game(line: str) -> RecordedGame:
    """Reads one line of a replay file, checking its form but not the play.

    Raises:
      ReplayError: for anything that is not a game in the format of this module.
    """
    record = _parse_json(line)
    if not isinstance(record, dict):
        raise _error("the game", record, "an object")
    _check_keys("the game", record, _GAME_KEYS, _OPTIONAL_GAME_KEYS)
    rules = _parse_rules(record["rules"])
    return RecordedGame(
        rules=rules,
        deck=_parse_deck(rules, record["deck"]),
        moves=_parse_moves(rules, record["moves"]),
        scores=_parse_scores(record["scores"]),
        finished=_parse_finished(record["finished"]),
        players=_parse_players(record["players"]) if "players" in record else None,
        plies=_whole_number("plies", record["plies"]) if "plies" in record else None,
    )


def move_action(game: Game, move: Move) -> int:
    """Action id of a recorded move for the player to act; of equal cards, the lowest slot.

    Raises:
      ReplayError: if the move is not legal now.
    """
    legal = {_legal_move(game, action): action for action in reversed(game.legal_actions())}
    if move not in legal:
        raise ReplayError(f"{_show_move(game.rules, move)}; allowed: {_allowed(game, move, legal)}")
    return legal[move]


def verify_game(game: RecordedGame) -> None:
    """Replays a recorded game on the reference engine, so that nothing rests on trust.

    Raises:
      ReplayError: for a deck that is not the cards of the game, an illegal move, a move after
        the end, or a wrong `finished`, `scores` or `plies`.
    """
    try:
        state = Game(game.rules, game.deck)
    except ValueError as error:
        raise ReplayError(str(error)) from None
    for number, move in enumerate(game.moves, start=1):
        try:
            state.step(move_action(state, move))
        except ReplayError as error:
            raise ReplayError(f"move {number} is {error}") from None
    _check_outcome(game, state)


def verify_file(path: str | os.PathLike[str]) -> ReplaySummary:
    """Verifies every game of a replay file, read line by line, and counts them.

    Raises:
      ReplayError: for the first thing wrong, with its line number; for a file that cannot be
        read; for a file without a game.
    """
    games = moves = finished = 0
    for number, line in _numbered_lines(path):
        try:
            game = parse_game(line)
            verify_game(game)
        except ReplayError as error:
            raise ReplayError(f"{_show_path(path)}: line {number}: {error}") from None
        games += 1
        moves += len(game.moves)
        finished += game.finished
    if not games:
        raise ReplayError(
            f"{_show_path(path)} has no games; allowed: one game a line, at least one"
        )
    return ReplaySummary(games, moves, finished, games - finished)


def _numbered_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        with open(path, "rb") as file:
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if text := _decode(path, number, line).rstrip():
                    yield number, text
    except ReplayError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ReplayError(
            f"{_show_path(path)} cannot be read: {reason}; allowed: a file of recorded games"
        ) from None


def _decode(path: str | os.PathLike[str], number: int, line: bytes) -> str:
    where = f"{_show_path(path)}: line {number}"
    if len(line) > MAX_LINE_BYTES:
        raise ReplayError(f"{where} is too long; allowed: {MAX_LINE_BYTES} bytes")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        value = line[error.start]
        raise ReplayError(
            f"{where}: byte {error.start + 1} is 0x{value:02x}; allowed: UTF-8 text"
        ) from None


def _parse_json(line: str) -> Any:
    try:
        return json.loads(
            line, parse_constant=_refuse_constant, object_pairs_hook=_object_without_repeats
        )
    except ReplayError:
        raise
    except json.JSONDecodeError as error:
        raise ReplayError(
            f"column {error.colno} is not JSON ({error.msg}); allowed: one JSON object a line"
        ) from None
    except ValueError:
        # The interpreter refuses to convert integers of thousands of digits.
        raise ReplayError(
            f"a number has thousands of digits; allowed: {-_LARGEST_NUMBER} to {_LARGEST_NUMBER}"
        ) from None
    except RecursionError:
        raise ReplayError(
            "the game is nested too deeply; allowed: the lists and objects of the format"
        ) from None


def _refuse_constant(text: str) -> NoReturn:
    raise ReplayError(f"a value is {text}; allowed: whole numbers, text, lists and objects")


def _object_without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = {}
    for key, value in pairs:
        if key in result:
            raise ReplayError(f"key {_show(key)} is given twice; allowed: every key once")
        result[key] = value
    return result


def _check_keys(
    where: str, mapping: Mapping[str, Any], required: Sequence[str], optional: Sequence[str]
) -> None:
    allowed = (*required, *optional)
    for key in mapping:
        if key not in allowed:
            near = difflib.get_close_matches(key[:_SHOWN_CHARACTERS], allowed, n=1)
            hint = f' (did you mean "{near[0]}"?)' if near else ""
            raise ReplayError(
                f"{where} has the unknown key {_show(key)}{hint}; allowed: {', '.join(allowed)}"
            )
    for key in required:
        if key not in mapping:
            raise ReplayError(f'{where} has no key "{key}"; allowed: all of {", ".join(required)}')


def _parse_rules(value: Any) -> Rules:
    if not isinstance(value, dict):
        raise _error("rules", value, "an object")
    _check_keys("rules", value, _RULES_KEYS, _OPTIONAL_RULES_KEYS)
    fields = {key: _whole_number(f"rules.{key}", number) for key, number in value.items()}
    fields.setdefault("max_turns", DEFAULT_MAX_TURNS)
    try:
        return Rules(**fields)
    except ValueError as error:
        raise ReplayError(str(error)) from None


def _parse_deck(rules: Rules, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise _error("deck", value, f"a list of {rules.num_cards} cards")
    return tuple(
        _parse_deck_card(rules, f"deck card {number}", card)
        for number, card in enumerate(value, start=1)
    )


def _parse_deck_card(rules: Rules, where: str, value: Any) -> int:
    match value:
        case [color, printed]:
            return _parse_card(rules, where, value, color, printed)
        case _:
            raise _error(where, value, "[colour, number]")


def _parse_moves(rules: Rules, value: Any) -> tuple[Move, ...]:
    if not isinstance(value, list):
        raise _error("moves", value, "a list of moves")
    return tuple(
        _parse_move(rules, f"move {number}", move) for number, move in enumerate(value, start=1)
    )


def _parse_move(rules: Rules, where: str, value: Any) -> Move:
    match value:
        case ["play" | "discard" as kind, color, printed]:
            return Move(kind, card=_parse_card(rules, where, value, color, printed))
        case ["draw", "deck"]:
            return Move("draw")
        case ["draw", color]:
            return Move("draw", pile=_parse_color(rules, where, value, color))
        case _:
            raise _error(where, value, _MOVE_FORMS)


def _parse_card(rules: Rules, where: str, shown: Any, color: Any, printed: Any) -> int:
    color = _parse_color(rules, where, shown, color)
    try:
        return card_type(rules, color, face_of_printed(rules, _whole_number(where, printed)))
    except ValueError:
        wager = "0 (wager) or " if rules.wagers else ""
        highest = printed_face(rules, rules.ranks)
        raise _error(where, shown, f"the number {wager}{rules.lowest} to {highest}") from None


def _parse_color(rules: Rules, where: str, shown: Any, color: Any) -> int:
    if not _is_whole(color) or not 0 <= color < rules.colors:
        raise _error(where, shown, f"the colour 0 to {rules.colors - 1}")
    return color


def _parse_scores(value: Any) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2 or not all(map(_is_whole, value)):
        raise _error("scores", value, "two whole numbers")
    return value[0], value[1]


def _parse_finished(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _error("finished", value, "true or false")
    return value


def _parse_players(value: Any) -> tuple[str, str]:
    # Names are printed in reports, where a control character could rewrite the terminal.
    if (
        not isinstance(value, list)
        or len(value) != 2
        or not all(isinstance(name, str) and name.isprintable() for name in value)
    ):
        raise _error("players", value, "two names in printable text")
    return value[0], value[1]


def _is_whole(value: Any) -> bool:
    return type(value) is int and abs(value) <= _LARGEST_NUMBER


def _whole_number(where: str, value: Any) -> int:
    if not _is_whole(value):
        raise _error(where, value, f"a whole number from {-_LARGEST_NUMBER} to {_LARGEST_NUMBER}")
    return value


def _legal_move(game: Game, action: int) -> Move:
    hand = game.rules.hand
    cards = game.hands[game.player]
    if action < hand:
        return Move("play", card=cards[action])
    if action < 2 * hand:
        return Move("discard", card=cards[action - hand])
    if action == 2 * hand:
        return Move("draw")
    return Move("draw", pile=action - 2 * hand - 1)


def _allowed(game: Game, move: Move, legal: Mapping[Move, int]) -> str:
    if game.is_over:
        return "none, the game is over"
    phase = "a card move" if game.phase == CARD_PHASE else "a draw"
    same_kind = [other for other in legal if other.kind == move.kind]
    moves = sorted(same_kind or legal, key=lambda other: legal[other])
    return f"{phase}, " + " ".join(_show_move(game.rules, other) for other in moves)


def _check_outcome(game: RecordedGame, state: Game) -> None:
    count = len(game.moves)
    if game.finished != state.is_over:
        stands = "has ended" if state.is_over else "goes on"
        raise _error(
            "finished",
            game.finished,
            f"{_show(state.is_over)}, the game {stands} after {count} moves",
        )
    if list(game.scores) != state.scores():
        raise _error(
            "scores",
            list(game.scores),
            f"{state.scores()}, as the table stands after {count} moves",
        )
    if game.plies is not None and game.plies != count:
        raise _error("plies", game.plies, f"{count}, the number of moves")


def _show_move(rules: Rules, move: Move) -> str:
    if move.card is not None:
        color, face = divmod(move.card, rules.faces)
        return _show([move.kind, color, printed_face(rules, face)])
    return _show([move.kind, "deck" if move.pile is None else move.pile])


def _show_path(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    return text if text.isprintable() else ascii(text)


def _show(value: Any) -> str:
    """The value as the file has it, short enough and plain enough for a line of a message."""
    try:
        text = json.dumps(value)
    except RecursionError:
        return "a deeply nested value"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _error(where: str, value: Any, allowed: str) -> ReplayError:
    return ReplayError(f"{where} is {_show(value)}; allowed: {allowed}")
