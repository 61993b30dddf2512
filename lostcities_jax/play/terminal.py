"""The board in a terminal: the same matches, with short commands."""

import pathlib
from functools import partial

from lostcities_jax.drawing.suits import SUITS, card_name
from lostcities_jax.drawing.table import see_table
from lostcities_jax.drawing.text import to_text
from lostcities_jax.errors import UserError, shown
from lostcities_jax.play.match import (
    Match,
    act,
    answer,
    is_over,
    next_round,
    position,
    recordings,
    round_scores,
    stop,
    undo,
)
from lostcities_jax.play.opponents import Opponents, choose, probabilities
from lostcities_jax.play.views import hint_view, log
from lostcities_jax.positions import state_of
from lostcities_jax.recording import format_game
from lostcities_jax.reference import Game
from lostcities_jax.rules import DRAW_PHASE, Rules

HELP = """\
p Y7    play the yellow 7 (Yx: a wager)       h       what the agent would do here
d Y7    discard it                            u       undo your last turn
t       draw from the deck                    l       the last moves
t Y     take the top card of a pile           n       the next round
stop    end the match where it stands         s FILE  save the rounds that are over
?       this help                             q       quit"""
_HINTS = 5  # shown at most


def play_in_terminal(opponents: Opponents, match: Match) -> None:
    """Plays a match with commands from standard input, until `q` or the input ends."""
    reply = partial(choose, opponents, match.opponent)
    match = answer(match, reply)
    print(HELP)
    _show(match, 0)
    while True:
        try:
            words = input("> ").split()
        except EOFError:
            return
        if words == ["q"]:
            return
        try:
            changed = _obey(opponents, match, words)
        except UserError as error:
            print(error)
            continue
        if changed is not match:
            is_same_round = len(changed.rounds) == len(match.rounds)
            told = len(match.current.moves) if is_same_round else 0
            match = answer(changed, reply)
            _show(match, told)


def _obey(opponents: Opponents, match: Match, words: list[str]) -> Match:
    """The match after a command of the human; one that only tells something leaves it as it is.

    Raises:
      UserError: for what is no command, or cannot be done now.
    """
    match words:
        case ["p" | "d" | "t" as verb, *what] if len(what) == 1 or (verb == "t" and not what):
            action = _action(position(match.current), verb, *what)
            return act(match, action, len(match.current.moves))
        case ["u"]:
            return undo(match)
        case ["n"]:
            return next_round(match)
        case ["stop"]:
            return stop(match)
        case ["h"]:
            _print_hint(opponents, match)
        case ["l"]:
            print(*(entry["text"] for entry in log(match)), sep="\n")
        case ["s", path]:
            _save(match, pathlib.Path(path))
        case ["?"]:
            print(HELP)
        case _:
            raise UserError(f"{shown(' '.join(words))} is no command; ? shows those there are")
    return match


def _action(game: Game, verb: str, what: str = "") -> int:
    """The action of "p Y7", "d Y7", "t" or "t Y"."""
    rules = game.rules
    if verb == "t":
        return rules.num_card_actions + (1 + _color(rules, what) if what else 0)
    hand = see_table(rules, state_of(game)).hands[game.player] or ()
    names = [card_name(*card) for card in hand]
    wanted = what.upper().replace("X", "x")
    if wanted not in names:
        raise UserError(f"card {shown(what)} is not in your hand; allowed: {' '.join(names)}")
    return names.index(wanted) + (rules.hand if verb == "d" else 0)


def _color(rules: Rules, letter: str) -> int:
    letters = [suit.letter for suit in SUITS[: rules.colors]]
    if letter.upper() not in letters:
        raise UserError(f"pile {shown(letter)} does not exist; allowed: {' '.join(letters)}")
    return letters.index(letter.upper())


def _show(match: Match, told: int) -> None:
    """Prints the moves after the first `told`, and the table when a turn or nothing more begins."""
    round_ = match.current
    game = position(round_)
    new = len(round_.moves) - told
    if new > 0:
        print(*(entry["text"] for entry in log(match)[-new:]), sep="\n")
    if is_over(round_, game):
        print(to_text(game.rules, state_of(game)))
        _print_result(match)
    elif game.phase == DRAW_PHASE:
        piles = [SUITS[action - 1].letter for action in _draws(game) if action]
        print("now draw:", ", ".join(["t", *(f"t {letter}" for letter in piles)]))
    else:
        own, other = _sums(match)
        print(
            f"\nround {len(match.rounds)} of {match.length}, you are player {round_.human}, "
            f"you {own} : {other} {match.opponent}"
        )
        print(to_text(game.rules, state_of(game), round_.human))


def _draws(game: Game) -> list[int]:
    return [action - game.rules.num_card_actions for action in game.legal_actions()]


def _sums(match: Match) -> tuple[int, int]:
    """Points of the human and of the agent in all rounds."""
    scores = round_scores(match)
    return sum(own for own, _ in scores), sum(other for _, other in scores)


def _print_result(match: Match) -> None:
    rounds = ", ".join(f"{own} : {other}" for own, other in round_scores(match))
    own, other = _sums(match)
    print(f"you {own} : {other} {match.opponent} (rounds: {rounds})")
    over = len(match.rounds) >= match.length
    print("the match is over: s FILE saves it, q quits" if over else "n: the next round")


def _print_hint(opponents: Opponents, match: Match) -> None:
    game = position(match.current)
    if is_over(match.current, game):
        raise UserError("the round is over; allowed: hints while it goes on")
    shares = probabilities(opponents, match.opponent, match.current, game)
    for hint in hint_view(game, shares)[:_HINTS]:
        if hint["probability"] > 0:
            print(f"{hint['probability']:6.1%}  {hint['text']}")


def _save(match: Match, path: pathlib.Path) -> None:
    games = recordings(match)
    if not games:
        raise UserError("no round is over yet; allowed: saving those that are")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.writelines(format_game(game) + "\n" for game in games)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{shown(str(path))} cannot be written: {reason}") from error
    print(f"saved {len(games)} rounds to {path}")
