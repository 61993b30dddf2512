"""The web server of the board: matches over JSON, and the page that shows them.

The server owns the truth. A browser sends actions and gets back what `views` lets it know;
whatever cannot be done is refused with a status of 400 or above and {"error": one line}.
"""

import contextlib
import dataclasses
import functools
import pathlib
import secrets
import threading
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, NamedTuple

import anyio.to_thread
from pydantic import Field
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from lostcities_jax.config import validated
from lostcities_jax.drawing.suits import SUITS, WAGER_SIGN
from lostcities_jax.errors import UserError, nearest, shown
from lostcities_jax.play import match as matches
from lostcities_jax.play.guard import Guard, read_object
from lostcities_jax.play.match import Match
from lostcities_jax.play.opponents import Opponents, choose, probabilities
from lostcities_jax.play.sessions import Session, Sessions
from lostcities_jax.play.views import hint_view, match_view, replay_view
from lostcities_jax.recording import ReplayError, format_game, parse_game
from lostcities_jax.settings import Seed, checked

MAX_SESSIONS = 200
_THREADS = 4
_STATIC = pathlib.Path(__file__).parent / "static"

_MoveCount = Annotated[int, Field(ge=0, le=100_000)]
_Seat = Annotated[int, Field(ge=0, le=1)]


class Board(NamedTuple):
    """What a server serves.

    Attributes:
      opponents: the agents.
      sessions: matches under way.
      ready: set when the policies are compiled.
      seat: what the page proposes as the human's first seat.
      seed: what it proposes as the seed; None for a random one.
    """

    opponents: Opponents
    sessions: Sessions
    ready: threading.Event
    seat: int = 0
    seed: int | None = None


@checked
@dataclasses.dataclass(frozen=True)
class NewMatch:
    """Asks for a match.

    Attributes:
      opponent: name of the agent.
      seat: 0 to start the first round, 1 to let the agent start.
      seed: seed of the match; a random one by default.
      rounds: rounds of the match.
      record: a recorded game to go on from, in one round.
      move: how many of its moves to keep.
    """

    opponent: Annotated[str, Field(max_length=1000)]
    seat: _Seat = 0
    seed: Seed | None = None
    rounds: Annotated[int, Field(ge=1, le=matches.ROUNDS)] = matches.ROUNDS
    record: str | None = None
    move: _MoveCount = 0


@checked
@dataclasses.dataclass(frozen=True)
class Act:
    """An action of the human.

    Attributes:
      action: an action of the reference engine.
      moves: how many moves the page has seen.
    """

    action: Annotated[int, Field(ge=0, le=1000)]
    moves: _MoveCount


@checked
@dataclasses.dataclass(frozen=True)
class Nothing:
    """A request that needs no more than its address."""


@checked
@dataclasses.dataclass(frozen=True)
class Replay:
    """Asks for a recorded game as it stands after some of its moves.

    Attributes:
      record: the game, a line of a recording.
      move: how many of its moves are made.
    """

    record: str
    move: _MoveCount


def create_app(board: Board, host: str) -> Starlette:
    """The application; `host` is the address or name it is served on."""

    def setup(_: Request) -> Response:
        return JSONResponse(_setup(board))

    def page(_: Request) -> Response:
        return FileResponse(_STATIC / "index.html")

    def changing(change: Callable[[Match, Any], Match], kind: type = Nothing) -> Callable:
        return _post(kind, functools.partial(_change, board, change))

    def reply(match: Match) -> Match:
        return matches.answer(match, functools.partial(choose, board.opponents, match.opponent))

    one = "/api/matches/{id}"
    routes = [
        Route("/", page),
        Mount("/static", StaticFiles(directory=_STATIC)),
        Route("/api/setup", setup),
        Route("/api/replay", _post(Replay, _replay), methods=["POST"]),
        Route("/api/matches", _post(NewMatch, functools.partial(_start, board)), methods=["POST"]),
        Route(one, functools.partial(_show, board)),
        Route(f"{one}/games.jsonl", functools.partial(_export, board)),
        Route(f"{one}/hint", _post(Nothing, functools.partial(_hint, board)), methods=["POST"]),
    ]
    changes = {
        "act": changing(lambda match, ask: reply(matches.act(match, ask.action, ask.moves)), Act),
        "undo": changing(lambda match, _: matches.undo(match)),
        "next": changing(lambda match, _: reply(matches.next_round(match))),
        "stop": changing(lambda match, _: matches.stop(match)),
    }
    routes += [Route(f"{one}/{name}", change, methods=["POST"]) for name, change in changes.items()]
    return Starlette(
        routes=routes,
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=Guard(host))],
        exception_handlers={HTTPException: _say},
        lifespan=_few_threads,
    )


@contextlib.asynccontextmanager
async def _few_threads(_: Starlette) -> AsyncIterator[None]:
    # They share one interpreter: with many at work each answer is late, with few most are soon.
    anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
    yield


def _say(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


def _post(kind: type, handle: Callable[[str, Any], Any]) -> Callable:
    """Endpoint that checks the body as a `kind` and answers `handle(session id, it)` as JSON."""

    async def endpoint(request: Request) -> Response:
        data = await read_object(request)
        try:
            asked = validated(kind, data)
        except UserError as error:
            raise HTTPException(400, str(error)) from None
        try:
            name = request.path_params.get("id", "")
            return JSONResponse(await run_in_threadpool(handle, name, asked))
        except UserError as error:
            raise HTTPException(409, str(error)) from None
        except ReplayError as error:
            raise HTTPException(400, f"the recorded game: {error}") from None

    return endpoint


def _setup(board: Board) -> dict[str, Any]:
    rules = board.opponents.rules
    return {
        "ready": board.ready.is_set(),
        "opponents": list(board.opponents.agents),
        "seat": board.seat,
        "seed": board.seed,
        "rules": dataclasses.asdict(rules),
        "suits": [suit._asdict() for suit in SUITS],
        "wager": WAGER_SIGN,
    }


def _start(board: Board, _: str, ask: NewMatch) -> dict[str, Any]:
    opponents = board.opponents
    if not board.ready.is_set():
        raise HTTPException(503, "the agents are being compiled; allowed: in a few seconds")
    if ask.opponent not in opponents.agents:
        near = nearest(ask.opponent, opponents.agents)
        allowed = ", ".join(opponents.agents)
        raise HTTPException(400, f"opponent is {shown(ask.opponent)}; allowed: {allowed}{near}")
    seed = secrets.randbits(31) if ask.seed is None else ask.seed
    start = (opponents.rules, ask.opponent, seed, ask.seat)
    if ask.record is None:
        match = matches.start_match(*start, ask.rounds)
    else:
        match = matches.continue_game(*start, parse_game(ask.record), ask.move)
    match = matches.answer(match, functools.partial(choose, opponents, ask.opponent))
    return {"id": board.sessions.add(match)} | match_view(match)


def _change(
    board: Board, change: Callable[[Match, Any], Match], name: str, ask: Any
) -> dict[str, Any]:
    session = _session(board, name)
    with session.lock:
        session.match = change(session.match, ask)
        return match_view(session.match)


def _show(board: Board, request: Request) -> Response:
    return JSONResponse(match_view(_session(board, request.path_params["id"]).match))


def _export(board: Board, request: Request) -> Response:
    games = matches.recordings(_session(board, request.path_params["id"]).match)
    if not games:
        raise HTTPException(409, "no round is over yet; allowed: saving those that are")
    headers = {"Content-Disposition": 'attachment; filename="games.jsonl"'}
    text = "".join(format_game(game) + "\n" for game in games)
    return PlainTextResponse(text, headers=headers)


def _hint(board: Board, name: str, _: Nothing) -> list[dict[str, Any]]:
    match = _session(board, name).match
    game = matches.position(match.current)
    if matches.is_over(match.current, game):
        raise UserError("the round is over; allowed: hints while it goes on")
    return hint_view(game, probabilities(board.opponents, match.opponent, match.current, game))


def _replay(_: str, ask: Replay) -> dict[str, Any]:
    return replay_view(parse_game(ask.record), ask.move)


def _session(board: Board, name: str) -> Session:
    try:
        return board.sessions.get(name)
    except KeyError:
        raise HTTPException(404, "there is no such match; allowed: a new one") from None
