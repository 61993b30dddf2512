"""`python -m benchmarks.board`: hundreds of games at once on the board's server, and its memory.

Waves of whole games against a bot are played over HTTP, all games of a wave at once, so that old
matches make room for new ones all the time. Exits with 1 if the process grows by more than 5 %
after the second wave, or an answer is anything but a move.
"""

import concurrent.futures
import contextlib
import dataclasses
import gc
import http.client
import json
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import uvicorn

from benchmarks.harness import Measurement, Report, parse_flags
from lostcities_jax.cli import Preset
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.play.opponents import compile_policies, load_opponents
from lostcities_jax.play.server import MAX_SESSIONS, Board, create_app
from lostcities_jax.play.sessions import Sessions
from lostcities_jax.rules import PRESETS
from lostcities_jax.settings import Count, Opponent, Seed, checked

NAME = "board"
MOST_GROWTH = 0.05


@checked
@dataclasses.dataclass(frozen=True)
class Flags:
    """Requests per second of games played at once, and the memory they leave taken.

    Attributes:
      rules: rules of the game.
      opponent: who plays against.
      games: games at once.
      waves: how often so many are played.
      seed: of the matches and of their moves.
      store: append the records to benchmarks/results.
    """

    rules: Preset = "classic"
    opponent: Opponent = "balanced"
    games: Count = MAX_SESSIONS
    waves: Count = 4
    seed: Seed = 0
    store: bool = False


def main(argv: Sequence[str]) -> int:
    """Runs the command; raises UserError for whatever the user can mend."""
    flags = parse_flags(Flags, argv, NAME)
    opponents = load_opponents(flags.opponent, None, PRESETS[flags.rules])
    compile_policies(opponents)
    board = Board(opponents, Sessions(MAX_SESSIONS), threading.Event())
    board.ready.set()
    report = Report(NAME, f"{flags.games} games at once on the board's server", flags, argv)
    taken = []
    with _serving(board) as port:
        for wave in range(flags.waves):
            started = time.perf_counter()
            with concurrent.futures.ThreadPoolExecutor(flags.games) as pool:
                seeds = range(wave * flags.games, (wave + 1) * flags.games)
                requests = sum(pool.map(lambda seed: _play(port, flags, seed), seeds))
            seconds = time.perf_counter() - started
            gc.collect()
            taken.append(_resident_bytes())
            figures = {"games": flags.games, "requests": requests, "resident MB": taken[-1] / 1e6}
            settings = {"wave": wave + 1}
            rates = [requests / seconds]
            report.add(Measurement(settings, "requests/s", rates, figures=figures))
    report.finish()
    growth = taken[-1] / taken[min(1, len(taken) - 1)] - 1
    fits = growth <= MOST_GROWTH
    report.note(
        f"after the second wave the process grew by {100 * growth:.1f} %: "
        f"{'at most' if fits else 'MORE than'} {100 * MOST_GROWTH:.0f} %"
    )
    return 0 if fits else 1


def _play(port: int, flags: Flags, seed: int) -> int:
    """Plays a game of random actions to its end; returns the requests it took."""
    source = random.Random(f"{flags.seed} {seed}")
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=600)) as line:
        ask = {"opponent": flags.opponent, "seed": seed, "seat": seed % 2, "rounds": 1}
        view = _post(line, "/api/matches", ask)
        name, requests = view["id"], 1
        while not view["over"]:
            ask = {"action": source.choice(view["legal"]), "moves": view["moves"]}
            view = _post(line, f"/api/matches/{name}/act", ask)
            requests += 1
    return requests


def _post(line: http.client.HTTPConnection, path: str, body: dict[str, Any]) -> dict[str, Any]:
    line.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = line.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise UserError(f"{path} was answered with {answer.status}: {content[:200]!r}")
    return json.loads(content)


@contextlib.contextmanager
def _serving(board: Board) -> Iterator[int]:
    """The port of a server in a thread of this process."""
    app = create_app(board, "127.0.0.1")
    # Without settings for logging: they would close the handlers that the process has.
    config = uvicorn.Config(app, log_config=None, access_log=False, ws="none")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def _resident_bytes() -> int:
    """Memory the process holds now (Linux)."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(run_command(main))
