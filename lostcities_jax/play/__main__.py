"""`python -m lostcities_jax.play`: a board to play on, on a local page or in the terminal."""

import dataclasses
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Sequence

from lostcities_jax.cli import PlayArguments, parse_play
from lostcities_jax.compile_cache import use_compile_cache
from lostcities_jax.errors import UserError, run_command, shown
from lostcities_jax.play.match import ROUNDS, start_match
from lostcities_jax.play.opponents import Opponents, compile_policies, load_opponents
from lostcities_jax.play.terminal import play_in_terminal
from lostcities_jax.rules import PRESETS

PROG = "python -m lostcities_jax.play"
_EXTRA = ("starlette", "uvicorn")


def main(argv: Sequence[str]) -> int:
    """Runs the command; raises UserError for whatever the user can mend."""
    arguments = parse_play(argv, prog=PROG)
    rules = PRESETS[arguments.rules] if arguments.rules else None
    use_compile_cache()
    if arguments.agent is None:
        arguments = dataclasses.replace(arguments, agent="expert" if rules else "shipped")
    agent = str(arguments.agent)
    if arguments.text:
        opponents = load_opponents(agent, arguments.policy, rules)
        _play_text(opponents, arguments)
    else:
        _check_extra()
        listener = _listen(arguments.host, arguments.port)
        with listener:
            opponents = load_opponents(agent, arguments.policy, rules)
            _serve(opponents, arguments, listener)
    return 0


def _play_text(opponents: Opponents, arguments: PlayArguments) -> None:
    print("compiling the agents ...", flush=True)
    compile_policies(opponents)
    seed = secrets.randbits(31) if arguments.seed is None else arguments.seed
    match = start_match(opponents.rules, str(arguments.agent), seed, arguments.seat, ROUNDS)
    play_in_terminal(opponents, match)


def _check_extra() -> None:
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        if error.name not in _EXTRA:
            raise
        raise UserError(
            f"the page needs {error.name}: pip install 'lostcities_jax[play]', or add --text"
        ) from None


def _listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address, so that a port in use is known before anything is loaded.

    Raises:
      UserError: for an address that is not this machine's, or a port that is taken.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise UserError(f"host is {shown(host)}; allowed: an address of this machine") from error
    try:
        # A port whose last server has just ended is free; on Windows this would share one in use.
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        raise UserError(
            f"port {port} of {shown(host)} cannot be used: {error.strerror}; "
            f"allowed: another --port, or 0 for any free one"
        ) from error
    return listener


def _serve(opponents: Opponents, arguments: PlayArguments, listener: socket.socket) -> None:
    """Serves the page until interrupted, and compiles the policies meanwhile."""
    import uvicorn

    from lostcities_jax.play.server import MAX_SESSIONS, Board, create_app
    from lostcities_jax.play.sessions import Sessions

    sessions = Sessions(MAX_SESSIONS)
    board = Board(opponents, sessions, threading.Event(), arguments.seat, arguments.seed)
    port = listener.getsockname()[1]
    name = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    url = f"http://{name}:{port}/"

    config = uvicorn.Config(
        create_app(board, arguments.host),
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        limit_concurrency=1000,  # of connections, and a browser holds some for each match
    )
    server = uvicorn.Server(config)
    failures: list[Exception] = []

    def prepare() -> None:
        try:
            compile_policies(opponents)
        except Exception as error:
            failures.append(error)
            server.should_exit = True
        else:
            board.ready.set()
            print("ready", flush=True)

    print(f"the board is at {url} (Ctrl+C ends it); compiling the agents ...", flush=True)
    threading.Thread(target=prepare, daemon=True).start()
    if arguments.open:
        webbrowser.open(url)
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        print("ended", flush=True)
    if failures:
        raise failures[0]


if __name__ == "__main__":
    sys.exit(run_command(main))
