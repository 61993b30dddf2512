"""The format of recorded games, one JSON object a line: its writer and its strict reader.

The format is stable, so that games recorded by any other engine can be fed in. `replay`
checks the play.

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
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn

from lostcities_jax.cards import card_type, face_of_printed, printed_face
from lostcities_jax.rules import Rules

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


def parse_game(line: str) -> RecordedGame:
    """Reads one line of a replay file, checking its form but not the play.

    Raises:
      ReplayError: for anything that is not a game in the format of this module.
    """
    record = _parse_json(line)
    if not isinstance(record, dict):
        raise replay_error("the game", record, "an object")
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


def format_game(game: RecordedGame) -> str:
    """One line of a replay file, without its end; `parse_game` reads it back as an equal game."""
    record: dict[str, Any] = {"rules": dataclasses.asdict(game.rules)}
    if game.players is not None:
        record["players"] = game.players
    record["deck"] = [_card_values(game.rules, card) for card in game.deck]
    record["moves"] = [move_values(game.rules, move) for move in game.moves]
    record |= {"finished": game.finished, "scores": game.scores}
    if game.plies is not None:
        record["plies"] = game.plies
    return json.dumps(record, separators=(",", ":"))


def move_values(rules: Rules, move: Move) -> list[str | int]:
    """A move as the format has it, such as ["play", 2, 5] or ["draw", "deck"]."""
    if move.card is not None:
        return [move.kind, *_card_values(rules, move.card)]
    return [move.kind, "deck" if move.pile is None else move.pile]


def _card_values(rules: Rules, card: int) -> list[int]:
    color, face = divmod(card, rules.faces)
    return [color, printed_face(rules, face)]


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
            raise ReplayError(f"key {show(key)} is given twice; allowed: every key once")
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
                f"{where} has the unknown key {show(key)}{hint}; allowed: {', '.join(allowed)}"
            )
    for key in required:
        if key not in mapping:
            raise ReplayError(f'{where} has no key "{key}"; allowed: all of {", ".join(required)}')


def _parse_rules(value: Any) -> Rules:
    if not isinstance(value, dict):
        raise replay_error("rules", value, "an object")
    _check_keys("rules", value, _RULES_KEYS, _OPTIONAL_RULES_KEYS)
    fields = {key: _whole_number(f"rules.{key}", number) for key, number in value.items()}
    fields.setdefault("max_turns", DEFAULT_MAX_TURNS)
    try:
        return Rules(**fields)
    except ValueError as error:
        raise ReplayError(str(error)) from None


def _parse_deck(rules: Rules, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise replay_error("deck", value, f"a list of {rules.num_cards} cards")
    return tuple(
        _parse_deck_card(rules, f"deck card {number}", card)
        for number, card in enumerate(value, start=1)
    )


def _parse_deck_card(rules: Rules, where: str, value: Any) -> int:
    match value:
        case [color, printed]:
            return _parse_card(rules, where, value, color, printed)
        case _:
            raise replay_error(where, value, "[colour, number]")


def _parse_moves(rules: Rules, value: Any) -> tuple[Move, ...]:
    if not isinstance(value, list):
        raise replay_error("moves", value, "a list of moves")
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
            raise replay_error(where, value, _MOVE_FORMS)


def _parse_card(rules: Rules, where: str, shown: Any, color: Any, printed: Any) -> int:
    color = _parse_color(rules, where, shown, color)
    try:
        return card_type(rules, color, face_of_printed(rules, _whole_number(where, printed)))
    except ValueError:
        wager = "0 (wager) or " if rules.wagers else ""
        highest = printed_face(rules, rules.ranks)
        raise replay_error(where, shown, f"the number {wager}{rules.lowest} to {highest}") from None


def _parse_color(rules: Rules, where: str, shown: Any, color: Any) -> int:
    if not _is_whole(color) or not 0 <= color < rules.colors:
        raise replay_error(where, shown, f"the colour 0 to {rules.colors - 1}")
    return color


def _parse_scores(value: Any) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2 or not all(map(_is_whole, value)):
        raise replay_error("scores", value, "two whole numbers")
    return value[0], value[1]


def _parse_finished(value: Any) -> bool:
    if not isinstance(value, bool):
        raise replay_error("finished", value, "true or false")
    return value


def _parse_players(value: Any) -> tuple[str, str]:
    # Names are printed in reports, where a control character could rewrite the terminal.
    if (
        not isinstance(value, list)
        or len(value) != 2
        or not all(isinstance(name, str) and name.isprintable() for name in value)
    ):
        raise replay_error("players", value, "two names in printable text")
    return value[0], value[1]


def _is_whole(value: Any) -> bool:
    return type(value) is int and abs(value) <= _LARGEST_NUMBER


def _whole_number(where: str, value: Any) -> int:
    if not _is_whole(value):
        raise replay_error(
            where, value, f"a whole number from {-_LARGEST_NUMBER} to {_LARGEST_NUMBER}"
        )
    return value


def show(value: Any) -> str:
    """The value as the file has it, short enough and plain enough for a line of a message."""
    try:
        text = json.dumps(value)
    except RecursionError:
        return "a deeply nested value"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def replay_error(where: str, value: Any, allowed: str) -> ReplayError:
    return ReplayError(f"{where} is {show(value)}; allowed: {allowed}")
