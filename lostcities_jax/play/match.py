"""A match between a human and an agent: rounds as recordings, and what may be done with them.

A round is kept in the form of `recording`, a deck and moves, and nothing else: its position
follows from playing the moves on the reference engine. So undoing is leaving moves off, and a
finished round is its own recording. Matches are values; every function returns a new one.
"""

import dataclasses
import functools
import threading
from collections.abc import Callable

import numpy as np

from lostcities_jax.cards import all_cards
from lostcities_jax.errors import UserError, shown
from lostcities_jax.recording import Move, RecordedGame
from lostcities_jax.reference import Game
from lostcities_jax.replay import action_move, play_moves, play_on
from lostcities_jax.rules import NUM_PLAYERS, Rules

HUMAN = "human"  # in recordings
ROUNDS = 3  # of a match


@dataclasses.dataclass(frozen=True)
class Round:
    """One game of a match.

    Attributes:
      rules: the rule set.
      deck: card types in the order they leave the deck. int[N].
      human: the human's seat; player 0 starts.
      seed: of the agent's draws, which depend on it and on the number of the move alone.
      moves: card moves and draws of both players.
      given: moves of a recording that the round went on from; undoing stops there.
      stopped: whether the human has ended it before its end.
    """

    rules: Rules
    deck: tuple[int, ...]
    human: int
    seed: tuple[int, int]
    moves: tuple[Move, ...] = ()
    given: int = 0
    stopped: bool = False


@dataclasses.dataclass(frozen=True)
class Match:
    """Rounds whose scores are summed.

    Attributes:
      opponent: name of the agent.
      seed: seed of decks and of the agent's draws.
      length: rounds to play.
      rounds: those played, and last the one being played.
    """

    opponent: str
    seed: int
    length: int
    rounds: tuple[Round, ...]

    @property
    def current(self) -> Round:
        """The round being played, or the last one."""
        return self.rounds[-1]


# (round, its position with the agent to act) -> action
Choose = Callable[[Round, Game], int]


def start_match(rules: Rules, opponent: str, seed: int, human: int, length: int) -> Match:
    """A match before the first move; `human` is the human's seat in its first round."""
    return Match(opponent, seed, length, (_deal(rules, seed, 0, human),))


def continue_game(
    rules: Rules, opponent: str, seed: int, human: int, game: RecordedGame, moves: int
) -> Match:
    """A match of one round that goes on from a recorded game after some of its moves.

    Args:
      rules: rules to go on with; only the turn limit may differ from the recorded one.
      opponent: name of the agent.
      seed: seed of the agent's draws.
      human: the human's seat.
      game: the recorded game; its deck and moves are checked here.
      moves: how many of its moves to keep.

    Raises:
      UserError: for other rules, more moves than there are, or a game that is over then.
      ReplayError: for a false deck or an illegal move.
    """
    if dataclasses.replace(game.rules, max_turns=rules.max_turns) != rules:
        raise UserError("the game has other rules than this board; allowed: stepping through it")
    kept = game.moves[: _checked_count(game, moves)]
    if play_moves(rules, game.deck, kept).is_over:
        raise UserError(f"the game is over after {moves} moves; allowed: an earlier move")
    round_ = Round(rules, game.deck, human, (seed, 0), kept, given=len(kept))
    return Match(opponent, seed, 1, (round_,))


def _checked_count(game: RecordedGame, moves: int) -> int:
    if not 0 <= moves <= len(game.moves):
        raise UserError(f"move is {shown(moves)}; allowed: 0 to {len(game.moves)}")
    return moves


def position(round_: Round) -> Game:
    """The position of a round on the reference engine, for the caller to keep."""
    return _line(round_.rules, round_.deck).after(round_.moves)


class _Line:
    """The newest position asked for of a deal: an answer needs it and what follows, many times."""

    def __init__(self, rules: Rules, deck: tuple[int, ...]):
        self._rules, self._deck = rules, deck
        self._moves: tuple[Move, ...] = ()
        self._game = Game(rules, deck)
        self._lock = threading.Lock()

    def after(self, moves: tuple[Move, ...]) -> Game:
        """The position after these moves."""
        with self._lock:
            made = len(self._moves)
            if moves[:made] == self._moves:
                game = self._game.copy()
                play_on(game, moves[made:])
            else:
                game = play_moves(self._rules, self._deck, moves)
            self._game, self._moves = game, moves
            return game.copy()


@functools.lru_cache(maxsize=1024)
def _line(rules: Rules, deck: tuple[int, ...]) -> _Line:
    return _Line(rules, deck)


def recorded_position(game: RecordedGame, moves: int) -> Game:
    """The position of a recorded game after its first `moves` moves.

    Raises:
      UserError: for more moves than there are.
      ReplayError: for a false deck or an illegal move.
    """
    return play_moves(game.rules, game.deck, game.moves[: _checked_count(game, moves)])


def is_over(round_: Round, game: Game) -> bool:
    """Whether nothing more is played in a round at its position."""
    return round_.stopped or game.is_over


def act(match: Match, action: int, moves: int) -> Match:
    """The match after an action of the human.

    Args:
      match: the match.
      action: an action of the reference engine.
      moves: how many moves the human has seen, so that nothing is done twice.

    Raises:
      UserError: for an action that is not legal now, or another number of moves.
    """
    round_ = match.current
    game = position(round_)
    if moves != len(round_.moves):
        raise UserError(f"moves is {moves}; allowed: {len(round_.moves)}, the moves made so far")
    if is_over(round_, game):
        raise UserError("the round is over; allowed: the next round or a new match")
    if game.player != round_.human:
        raise UserError("the agent is to move; allowed: waiting")
    if action not in game.legal_actions():
        legal = ", ".join(map(str, game.legal_actions()))
        raise UserError(f"action {shown(action)} is not legal now; allowed: {legal}")
    return _with_current(match, moves=(*round_.moves, action_move(game, action)))


def answer(match: Match, choose: Choose) -> Match:
    """The match after the agent's moves, up to the human's turn or the end."""
    round_ = match.current
    game = position(round_)
    moves = list(round_.moves)
    while not is_over(round_, game) and game.player != round_.human:
        action = choose(round_, game)
        moves.append(action_move(game, action))
        game.step(action)
    return _with_current(match, moves=tuple(moves))


def undo_to(round_: Round) -> int | None:
    """How many moves are left when the human's last turn is undone; None if it cannot be.

    A turn that has begun counts as the last. A round that is over has shown its cards.
    """
    if is_over(round_, position(round_)):
        return None
    starts = range(2 * round_.human, len(round_.moves), 2 * NUM_PLAYERS)
    return max((start for start in starts if start >= round_.given), default=None)


def undo(match: Match) -> Match:
    """The match as it stood before the human's last turn.

    Raises:
      UserError: if there is no such turn, or the round is over.
    """
    left = undo_to(match.current)
    if left is None:
        raise UserError("there is no turn to undo; allowed: in a round that goes on, own turns")
    return _with_current(match, moves=match.current.moves[:left])


def stop(match: Match) -> Match:
    """The match ended where it stands; its last round counts as it stands.

    Raises:
      UserError: if the last round is over already.
    """
    if is_over(match.current, position(match.current)):
        raise UserError("the round is over; allowed: stopping one that goes on")
    return dataclasses.replace(_with_current(match, stopped=True), length=len(match.rounds))


def next_round(match: Match) -> Match:
    """The match with the next round dealt: whoever is ahead starts, at a tie the same as before.

    Raises:
      UserError: if the round goes on, or was the last.
    """
    last = match.current
    if not is_over(last, position(last)):
        raise UserError("the round goes on; allowed: the next round when it is over")
    if len(match.rounds) >= match.length:
        raise UserError("the match is over; allowed: a new match")
    human, agent = (sum(column) for column in zip(*round_scores(match), strict=True))
    seat = last.human if human == agent else int(human < agent)
    dealt = _deal(last.rules, match.seed, len(match.rounds), seat)
    return dataclasses.replace(match, rounds=(*match.rounds, dealt))


def round_scores(match: Match) -> list[tuple[int, int]]:
    """Points of the human and of the agent in each round, the current one as it stands."""
    scores = []
    for round_ in match.rounds:
        points = position(round_).scores()
        scores.append((points[round_.human], points[1 - round_.human]))
    return scores


def recordings(match: Match) -> list[RecordedGame]:
    """The rounds that are over, as recorded games: a recording tells the whole deck."""
    games = []
    for round_ in match.rounds:
        game = position(round_)
        if is_over(round_, game):
            games.append(_recorded(match.opponent, round_, game))
    return games


def _recorded(opponent: str, round_: Round, game: Game) -> RecordedGame:
    name = opponent if opponent.isprintable() else ascii(opponent)
    points = game.scores()
    return RecordedGame(
        rules=round_.rules,
        deck=round_.deck,
        moves=round_.moves,
        scores=(points[0], points[1]),
        finished=game.is_over,
        players=(name, HUMAN) if round_.human else (HUMAN, name),
        plies=len(round_.moves),
    )


def _deal(rules: Rules, seed: int, index: int, human: int) -> Round:
    deck = np.random.default_rng([seed, index]).permutation(all_cards(rules))
    return Round(rules, tuple(deck.tolist()), human, (seed, index))


def _with_current(match: Match, **changes) -> Match:
    changed = dataclasses.replace(match.current, **changes)
    return dataclasses.replace(match, rounds=(*match.rounds[:-1], changed))
