"""`python -m benchmarks.play`: how long the page waits for the agent, in many games at once.

The server is the command's own, in another process. Its players move at random over HTTP as the
page does, each after a time to think; what counts is the wait from a draw, which ends a turn,
until the agent's turn is shown.
"""

import asyncio
import contextlib
import dataclasses
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import httpx
import numpy as np
from pydantic import Field

from benchmarks.harness import Measurement, Report, parse_flags
from lostcities_jax.cli import Preset
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.settings import Positive, Seed, checked

NAME = "play"
_WARM_UP_S = 1.0


@checked
@dataclasses.dataclass(frozen=True)
class Flags:
    """Milliseconds from the end of a turn to the agent's answer.

    Attributes:
      agent: whom the players meet: a bot, a checkpoint, or the agent that comes with the package.
      rules: rules of matches against a bot; a checkpoint brings its own.
      games: games at the same time.
      think: mean seconds before each action of a player.
      seconds: length of each measurement.
      seed: seed of the players' moves and of their matches.
      store: append the records to benchmarks/results.
    """

    agent: Annotated[str, Field(min_length=1)] = "shipped"
    rules: Preset | None = None
    games: Annotated[tuple[Annotated[int, Field(ge=1, le=200)], ...], Field(min_length=1)] = (
        1,
        8,
        200,
    )
    think: Positive = 3.0
    seconds: Positive = 30.0
    seed: Seed = 0
    store: bool = False


def main(argv: Sequence[str]) -> None:
    """Runs the command; raises UserError for whatever the user can mend."""
    flags = parse_flags(Flags, argv, NAME)
    report = Report(NAME, f"answers of {flags.agent} on the page", flags, argv)
    with _served(flags) as url:
        for games in flags.games:
            waits = asyncio.run(_play(flags, url, games))
            if not waits:
                raise UserError(f"seconds is {flags.seconds}, too few for a turn; allowed: more")
            milliseconds = 1000 * np.array(waits)
            p50, p95, p99 = np.percentile(milliseconds, [50, 95, 99])
            report.add(
                Measurement(
                    settings={"games": games},
                    unit="answers/s",
                    rates=[len(waits) / flags.seconds],
                    figures={
                        "answers": len(waits),
                        "p50 ms": p50,
                        "p95 ms": p95,
                        "p99 ms": p99,
                        "most ms": milliseconds.max(),
                    },
                )
            )
    report.finish()


@contextlib.contextmanager
def _served(flags: Flags) -> Iterator[str]:
    """Address of a server whose policies are compiled."""
    command = [sys.executable, "-m", "lostcities_jax.play", flags.agent, "--port", "0"]
    command += ["--rules", flags.rules] if flags.rules else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            said = ""
            while not said.endswith("ready\n"):
                line = server.stdout.readline()
                if not line:
                    raise UserError("the server ended; allowed: what its own line above says")
                said += line
            yield re.findall(r"http://\S+/", said)[0]
        finally:
            server.terminate()


async def _play(flags: Flags, url: str, games: int) -> list[float]:
    """Seconds of every wait for an answer, of players at the same time."""
    begin = time.perf_counter() + _WARM_UP_S
    waits: list[float] = []

    async def player(index: int) -> None:
        generator = random.Random(f"{flags.seed} {index}")
        # A client of its own, as it has a browser; one pool of many connections is slow.
        async with httpx.AsyncClient(base_url=url, timeout=60, verify=False) as client:
            await play(client, generator)

    async def play(client: httpx.AsyncClient, generator: random.Random) -> None:
        while time.perf_counter() < begin + flags.seconds:
            new = {"opponent": flags.agent, "rounds": 1, "seed": generator.randrange(2**31)}
            view = await _post(client, "/api/matches", new)
            match = f"/api/matches/{view['id']}/act"
            while not view["over"] and time.perf_counter() < begin + flags.seconds:
                await asyncio.sleep(generator.expovariate(1 / flags.think))
                action = {"action": generator.choice(view["legal"]), "moves": view["moves"]}
                ends_turn = view["table"]["phase"] == "draw"
                asked = time.perf_counter()
                view = await _post(client, match, action)
                if ends_turn and begin < asked < begin + flags.seconds:
                    waits.append(time.perf_counter() - asked)

    await asyncio.gather(*(player(index) for index in range(games)))
    return waits


async def _post(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    response = await client.post(path, json=body)
    response.raise_for_status()
    return response.json()


if __name__ == "__main__":
    sys.exit(run_command(main))
