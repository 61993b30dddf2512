"""A recorded game as a page to flip through, position by position."""

import html
from collections.abc import Iterator

from lostcities_jax.cards import printed_face
from lostcities_jax.drawing import to_svg
from lostcities_jax.drawing.suits import SUITS, card_name
from lostcities_jax.positions import state_of
from lostcities_jax.recording import Move, RecordedGame
from lostcities_jax.reference import Game
from lostcities_jax.replay import move_action
from lostcities_jax.report.documents import asset, html_page
from lostcities_jax.rules import Rules


def game_page(record: RecordedGame) -> str:
    """The HTML page of a game that has been verified, with all its positions and a slider."""
    names = record.players or ("player 0", "player 1")
    positions = [
        f"<figure{' hidden' if ply else ''}><figcaption>{html.escape(caption)}</figcaption>"
        f"{svg}</figure>"
        for ply, (caption, svg) in enumerate(_positions(record, names))
    ]
    points = f"{record.scores[0]} to {record.scores[1]}" + (
        "" if record.finished else " when the recording stops"
    )
    title = f"{names[0]} against {names[1]}"
    body = (
        f"<h1>{html.escape(title)}</h1><p>{points}</p>\n"
        '<p class="flip"><button id="back" aria-label="back">◀</button>'
        f'<input id="ply" type="range" min="0" max="{len(positions) - 1}" value="0" '
        'aria-label="move"><button id="on" aria-label="on">▶</button></p>\n'
        f"{chr(10).join(positions)}\n<script>\n{asset('flip.js')}</script>"
    )
    return html_page(title, body)


def _positions(record: RecordedGame, names: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """What was done, and the table after it; the deal first."""
    rules = record.rules
    game = Game(rules, record.deck)
    yield f"0/{len(record.moves)}: the deal", to_svg(rules, state_of(game))
    for ply, move in enumerate(record.moves, start=1):
        caption = f"{ply}/{len(record.moves)}: {names[game.player]} {_done(rules, move)}"
        game.step(move_action(game, move))
        yield caption, to_svg(rules, state_of(game))


def _done(rules: Rules, move: Move) -> str:
    if move.card is not None:
        color, face = divmod(move.card, rules.faces)
        return f"{move.kind}s {card_name(color, printed_face(rules, face))}"
    return "draws from the " + ("deck" if move.pile is None else f"{SUITS[move.pile].name} pile")
