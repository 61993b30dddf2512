"""Verifying recorded games on the reference engine: legality, scores and the end.

`recording` documents the format, in which games of any other engine can be fed in.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence

from lostcities_jax.recording import (
    Move,
    RecordedGame,
    ReplayError,
    move_values,
    parse_game,
    replay_error,
    show,
)
from lostcities_jax.reference import Game
from lostcities_jax.rules import CARD_PHASE, Rules

# Far above any game that the turn limit allows, far below what would exhaust memory.
MAX_LINE_BYTES = 16 * 2**20


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


def move_action(game: Game, move: Move) -> int:
    """Action id of a recorded move for the player to act; of equal cards, the lowest slot.

    Raises:
      ReplayError: if the move is not legal now.
    """
    actions = game.legal_actions()
    for action in actions:
        if action_move(game, action) == move:
            return action
    legal = {action_move(game, action): action for action in reversed(actions)}
    raise ReplayError(f"{_show_move(game.rules, move)}; allowed: {_allowed(game, move, legal)}")


def action_move(game: Game, action: int) -> Move:
    """A legal action of the player to act as it is recorded."""
    hand = game.rules.hand
    cards = game.hands[game.player]
    if action < hand:
        return Move("play", card=cards[action])
    if action < 2 * hand:
        return Move("discard", card=cards[action - hand])
    if action == 2 * hand:
        return Move("draw")
    return Move("draw", pile=action - 2 * hand - 1)


def verify_game(game: RecordedGame) -> None:
    """Replays a recorded game on the reference engine, so that nothing rests on trust.

    Raises:
      ReplayError: for a deck that is not the cards of the game, an illegal move, a move after
        the end, or a wrong `finished`, `scores` or `plies`.
    """
    _check_outcome(game, play_moves(game.rules, game.deck, game.moves))


def play_moves(rules: Rules, deck: Sequence[int], moves: Sequence[Move]) -> Game:
    """The game that a deck and moves from the first one on lead to.

    Raises:
      ReplayError: for a deck that is not the cards of the game, or an illegal move.
    """
    try:
        game = Game(rules, deck)
    except ValueError as error:
        raise ReplayError(str(error)) from None
    play_on(game, moves)
    return game


def play_on(game: Game, moves: Sequence[Move]) -> None:
    """Carries out the moves that follow in a game.

    Raises:
      ReplayError: for an illegal move, numbered from the first one of the game.
    """
    for number, move in enumerate(moves, start=2 * game.turn + game.phase + 1):
        try:
            game.step(move_action(game, move))
        except ReplayError as error:
            raise ReplayError(f"move {number} is {error}") from None


def read_game(path: str | os.PathLike[str], number: int) -> RecordedGame:
    """The game of this number in a replay file, counted from 1, verified.

    Raises:
      ReplayError: for fewer games, what is wrong with this one, or a file that cannot be read.
    """
    games = 0
    for line_number, line in _numbered_lines(path):
        games += 1
        if games == number:
            try:
                game = parse_game(line)
                verify_game(game)
            except ReplayError as error:
                raise ReplayError(f"{_show_path(path)}: line {line_number}: {error}") from None
            return game
    allowed = f"1 to {games}" if games else "none, the file has no games"
    raise ReplayError(f"game {number} of {_show_path(path)} is not there; allowed: {allowed}")


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
        raise replay_error(
            "finished",
            game.finished,
            f"{show(state.is_over)}, the game {stands} after {count} moves",
        )
    if list(game.scores) != state.scores():
        raise replay_error(
            "scores",
            list(game.scores),
            f"{state.scores()}, as the table stands after {count} moves",
        )
    if game.plies is not None and game.plies != count:
        raise replay_error("plies", game.plies, f"{count}, the number of moves")


def _show_move(rules: Rules, move: Move) -> str:
    return show(move_values(rules, move))


def _show_path(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    return text if text.isprintable() else ascii(text)
