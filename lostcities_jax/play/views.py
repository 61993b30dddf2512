"""What the human may know of a match, as plain values: the only way from a match to a screen.

Hidden hands are left out by `see_table`, draws from the deck by the other player here, and
the deck is in nothing. Words for moves are made here too, for the page and the terminal.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from lostcities_jax.drawing.suits import SUITS, card_name
from lostcities_jax.drawing.table import see_table
from lostcities_jax.play.match import (
    Match,
    is_over,
    position,
    recorded_position,
    round_scores,
    undo_to,
)
from lostcities_jax.positions import state_of
from lostcities_jax.recording import Move, RecordedGame, move_values
from lostcities_jax.reference import Game
from lostcities_jax.replay import action_move
from lostcities_jax.rules import NUM_PLAYERS, Rules

LOG_LENGTH = 40  # newest moves to tell


def match_view(match: Match) -> dict[str, Any]:
    """A match as the human sees it; JSON values.

    Both hands are open when the round is over. Scores are of the human and of the agent.
    """
    round_ = match.current
    game = position(round_)
    over = is_over(round_, game)
    scores = round_scores(match)
    match_over = over and len(match.rounds) >= match.length
    mine = not over and game.player == round_.human
    return {
        "opponent": match.opponent,
        "seat": round_.human,
        "round": len(match.rounds),
        "length": match.length,
        "scores": scores,
        "moves": len(round_.moves),
        "table": dataclasses.asdict(
            see_table(round_.rules, state_of(game), None if over else round_.human)
        ),
        "legal": game.legal_actions() if mine else [],
        "over": over,
        "stopped": round_.stopped,
        "match_over": match_over,
        "undo": undo_to(round_) is not None,
        "log": log(match),
        "seed": match.seed if match_over else None,  # it gives away the deck
    }


def replay_view(game: RecordedGame, moves: int) -> dict[str, Any]:
    """A recorded game after some of its moves, with both hands open; JSON values.

    Raises:
      UserError: for more moves than there are.
      ReplayError: for a false deck or an illegal move.
    """
    names = game.players or ("player 0", "player 1")
    now = recorded_position(game, moves)
    told = _tell(game.rules, game.deck, game.moves[:moves], names, (0, 1))
    return {
        "rules": dataclasses.asdict(game.rules),
        "names": names,
        "moves": moves,
        "all_moves": len(game.moves),
        "table": dataclasses.asdict(see_table(game.rules, state_of(now))),
        "log": told,
    }


def hint_view(game: Game, shares: Any) -> list[dict[str, Any]]:
    """Legal moves with their probabilities float[A], the most probable first; JSON values.

    Equal cards are one move, whose action is that of the lowest slot.
    """
    hints: dict[Move, dict[str, Any]] = {}
    for action in game.legal_actions():
        move = action_move(game, action)
        hint = hints.setdefault(
            move, {"action": action, "text": _bare(game.rules, move), "probability": 0.0}
        )
        hint["probability"] += float(shares[action])
    return sorted(hints.values(), key=lambda hint: -hint["probability"])


def log(match: Match) -> list[dict[str, Any]]:
    """The newest moves of the current round in words, the oldest of them first."""
    round_ = match.current
    open_to = (0, 1) if is_over(round_, position(round_)) else (round_.human,)
    names = ["", ""]
    names[round_.human], names[1 - round_.human] = "You", match.opponent
    return _tell(round_.rules, round_.deck, round_.moves, (names[0], names[1]), open_to)


def _tell(
    rules: Rules,
    deck: tuple[int, ...],
    moves: tuple[Move, ...],
    names: tuple[str, str],
    open_to: tuple[int, ...],
) -> list[dict[str, Any]]:
    """The newest moves in words; cards drawn from the deck are told of the seats in `open_to`."""
    told = []
    moved = _moved_cards(rules, deck, moves)
    for number in range(max(len(moves) - LOG_LENGTH, 0), len(moves)):
        seat, move = number // 2 % NUM_PLAYERS, moves[number]  # a turn is a card and a draw
        text = _words(names[seat], move, _name(rules, moved[number]), seat in open_to)
        told.append({"seat": seat, "text": text, "move": move_values(rules, move)})
    return told


def _moved_cards(rules: Rules, deck: tuple[int, ...], moves: Sequence[Move]) -> list[int]:
    """The card of each of these legal moves: played, discarded, or drawn."""
    coming = iter(deck[NUM_PLAYERS * rules.hand :])
    piles: list[list[int]] = [[] for _ in range(rules.colors)]
    cards = []
    for move in moves:
        if move.card is not None:
            cards.append(move.card)
            if move.kind == "discard":
                piles[move.card // rules.faces].append(move.card)
        else:
            cards.append(next(coming) if move.pile is None else piles[move.pile].pop())
    return cards


def _words(name: str, move: Move, card: str, is_open: bool) -> str:
    ending = "" if name == "You" else "s"
    if move.card is not None:
        return f"{name} {move.kind}{ending} {card}"
    if move.pile is None:
        return f"{name} draw{ending} from the deck" + (f": {card}" if is_open else "")
    return f"{name} take{ending} {card} from its pile"


def _bare(rules: Rules, move: Move) -> str:
    if move.card is not None:
        return f"{move.kind} {_name(rules, move.card)}"
    if move.pile is None:
        return "draw from the deck"
    return f"take from pile {SUITS[move.pile].letter}"


def _name(rules: Rules, card: int) -> str:
    color, face = divmod(card, rules.faces)
    return card_name(color, face and rules.lowest + face - 1)
