"""The server of the board: nothing hidden leaves it, nothing malformed harms it."""

import concurrent.futures
import contextlib
import dataclasses
import json
import pathlib
import random
import re
import socket
import threading

import httpx
import pytest
import uvicorn
from fuzzing import fuzzed
from hypothesis import given
from hypothesis import strategies as st

from lostcities_jax.play.guard import MAX_BODY_BYTES
from lostcities_jax.play.match import position
from lostcities_jax.play.opponents import compile_policies, load_opponents
from lostcities_jax.play.server import Board, create_app
from lostcities_jax.play.sessions import Sessions
from lostcities_jax.recording import parse_game
from lostcities_jax.replay import verify_file, verify_game
from lostcities_jax.rules import CLASSIC

LINES = (pathlib.Path(__file__).parent / "data" / "replays.jsonl").read_text("utf-8").splitlines()
SHORT = dataclasses.replace(CLASSIC, hand=4, ranks=4, wagers=1)


def board_of(opponents, limit=50) -> Board:
    board = Board(opponents, Sessions(limit), threading.Event())
    board.ready.set()
    return board


@contextlib.contextmanager
def serving(board, host="127.0.0.1"):
    """A client of a server of its own, on a free port."""
    server = uvicorn.Server(uvicorn.Config(create_app(board, host), log_level="error", ws="none"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            with httpx.Client(base_url=url, timeout=60) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def opponents():
    opponents = load_opponents("balanced", "average", SHORT)
    compile_policies(opponents)
    return opponents


@pytest.fixture(scope="module")
def board(opponents):
    return board_of(opponents)


@pytest.fixture(scope="module")
def client(board):
    with serving(board) as client:
        yield client


def start(client, **wanted):
    answer = client.post("/api/matches", json={"opponent": "balanced", **wanted})
    assert answer.status_code == 200, answer.text
    return answer.json()


def post(client, view, name, **body):
    return client.post(f"/api/matches/{view['id']}/{name}", json=body)


def shown(client, view):
    return client.get(f"/api/matches/{view['id']}").text


def act(client, view, action):
    answer = post(client, view, "act", action=action, moves=view["moves"])
    assert answer.status_code == 200, answer.text
    return {"id": view["id"]} | answer.json()


def refusal(answer, status):
    """The one line of a refused request."""
    assert answer.status_code == status, answer.text
    (error,) = answer.json().values()
    assert list(answer.json()) == ["error"]
    assert error.isprintable()
    assert "Traceback" not in error
    assert len(error) < 1000
    return error


# ---- What is hidden --------------------------------------------------------------------------


def swap_unseen(board, view, source):
    """Mixes the cards that the human cannot know, in the agent's hand and in the deck."""
    session = board.sessions.get(view["id"])
    round_ = session.match.current
    game = position(round_)
    other = 1 - round_.human
    known = list(game.known[other].elements())
    unseen = list(game.hands[other])
    for card in known:
        unseen.remove(card)
    places = list(range(len(round_.deck) - len(game.deck), len(round_.deck)))
    dealt = [*range(other, 2 * SHORT.hand, 2), *range(2 * SHORT.hand, places[0])]
    for card in unseen:
        # The last place of equal cards that the agent got and has not put down.
        at = next(at for at in reversed(dealt) if round_.deck[at] == card and at not in places)
        places.append(at)
    deck = list(round_.deck)
    cards = [deck[at] for at in places]
    source.shuffle(cards)
    for at, card in zip(places, cards, strict=True):
        deck[at] = card
    changed = dataclasses.replace(round_, deck=tuple(deck))
    session.match = dataclasses.replace(session.match, rounds=(*session.match.rounds[:-1], changed))
    return position(changed)


@pytest.mark.parametrize("seat", [0, 1])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_raw_answers_do_not_depend_on_hidden_cards(seat, seed, board, client):
    """The same game with other cards in the other hand and the deck reads the same in bytes."""
    source = random.Random(seed)
    view = start(client, seat=seat, seed=seed)
    mixed = 0
    while not view["over"]:
        match = board.sessions.get(view["id"]).match
        before = position(match.current)
        assert shown(client, view) == json.dumps(
            {key: value for key, value in view.items() if key != "id"}, separators=(",", ":")
        )
        texts = [shown(client, view), post(client, view, "hint").text]
        texts.append(post(client, view, "act", action=999, moves=view["moves"]).text)
        try:
            after = swap_unseen(board, view, source)
        except ValueError:  # the agent has played a card of the new order: no such game
            board.sessions.get(view["id"]).match = match
            after = before
        mixed += after.hands != before.hands
        assert texts[0] == shown(client, view)
        assert texts[1] == post(client, view, "hint").text
        assert texts[2] == post(client, view, "act", action=999, moves=view["moves"]).text
        board.sessions.get(view["id"]).match = match
        view = act(client, view, source.choice(view["legal"]))
    assert mixed > 5


def test_the_other_hand_is_closed_until_the_round_is_over(client):
    view = start(client, seat=0, seed=4)
    while not view["over"]:
        assert view["table"]["hands"][1] is None
        assert view["seed"] is None
        assert refusal(client.get(f"/api/matches/{view['id']}/games.jsonl"), 409).startswith("no r")
        view = act(client, view, view["legal"][-1])
    assert len(view["table"]["hands"][1]) == 4
    assert view["seed"] is None  # two more decks follow from it


def test_a_random_seed_is_told_after_the_match_alone(client):
    view = start(client, rounds=1)
    assert view["seed"] is None
    assert post(client, view, "stop").json()["seed"] >= 0
    seeds = {post(client, start(client), "stop").json()["seed"] for _ in range(5)}
    assert len(seeds) == 5


# ---- Playing ---------------------------------------------------------------------------------


def test_a_match_is_exported_as_games_that_verify(client, tmp_path):
    view = start(client, seat=1, seed=9)
    for _ in range(3):
        while not view["over"]:
            view = act(client, view, view["legal"][0])
        if not view["match_over"]:
            view = {"id": view["id"]} | post(client, view, "next").json()
    exported = client.get(f"/api/matches/{view['id']}/games.jsonl")
    assert exported.headers["content-disposition"] == 'attachment; filename="games.jsonl"'
    path = tmp_path / "games.jsonl"
    path.write_text(exported.text)
    assert verify_file(path).finished == 3
    games = [parse_game(line) for line in exported.text.splitlines()]
    for game, scores in zip(games, view["scores"], strict=True):
        seat = game.players.index("human")
        assert [game.scores[seat], game.scores[1 - seat]] == scores
    last = client.post("/api/replay", json={"record": exported.text.splitlines()[2], "move": 4})
    assert last.json()["moves"] == 4


def test_undo_gives_back_the_same_bytes_and_the_same_answer(client):
    view = start(client, seat=1, seed=2)
    refusal(post(client, view, "undo"), 409)
    for _ in range(4):
        before = shown(client, view)
        card, draw = view["legal"][-1], 8  # discard the last card, draw from the deck
        later = act(client, act(client, view, card), draw)
        after = shown(client, view)
        assert post(client, view, "undo").text == before == shown(client, view)
        act(client, act(client, view, card), draw)
        assert shown(client, view) == after
        view = later


def test_a_hint_gives_the_probabilities_of_the_legal_moves(client):
    view = start(client, opponent="random", seed=1)
    hints = post(client, view, "hint").json()
    assert sum(hint["probability"] for hint in hints) == pytest.approx(1)
    copies = [view["table"]["hands"][0].count(card) for card in view["table"]["hands"][0]]
    expected = {copy / 8 for copy in copies}  # the random bot: 4 plays and 4 discards, all alike
    assert {round(hint["probability"], 5) for hint in hints} == expected


def test_every_recorded_game_can_be_stepped_through(client):
    for line in LINES[::6]:
        record = json.loads(line)
        for move in (0, len(record["moves"]) // 2, len(record["moves"])):
            answer = client.post("/api/replay", json={"record": line, "move": move})
            assert answer.status_code == 200, answer.text
            view = answer.json()
            assert view["moves"] == move and view["all_moves"] == len(record["moves"])
        assert view["table"]["scores"] == record["scores"]


def test_a_recorded_game_goes_on_and_verifies():
    with serving(board_of(load_opponents("balanced", "average", None))) as client:
        view = start(client, record=LINES[0], move=100, seat=1)
        assert view["length"] == 1
        while not view["over"]:
            view = act(client, view, view["legal"][-1])
        game = parse_game(client.get(f"/api/matches/{view['id']}/games.jsonl").text)
    verify_game(game)
    assert game.moves[:100] == parse_game(LINES[0]).moves[:100]


def test_many_matches_at_once_do_not_interfere(client):
    def play(seed):
        view = start(client, seat=seed % 2, seed=seed, rounds=1)
        while not view["over"]:
            view = act(client, view, view["legal"][seed % len(view["legal"])])
        return shown(client, view)

    alone = [play(seed) for seed in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(play, range(4))) == alone


def test_a_doubled_click_acts_once(client):
    view = start(client)
    later = act(client, view, 0)
    error = refusal(post(client, view, "act", action=0, moves=view["moves"]), 409)
    assert error == "moves is 0; allowed: 1, the moves made so far"
    assert json.loads(shown(client, view))["moves"] == later["moves"]


def test_before_the_agents_are_compiled_a_match_waits(opponents):
    board = Board(opponents, Sessions(5), threading.Event(), seat=1, seed=7)
    with serving(board) as client:
        setup = client.get("/api/setup").json()
        assert (setup["ready"], setup["seat"], setup["seed"]) == (False, 1, 7)
        error = refusal(client.post("/api/matches", json={"opponent": "balanced"}), 503)
    assert "being compiled" in error


# ---- Robustness ------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1:8421", "localhost", "LOCALHOST:9", "[::1]:8421"])
def test_own_hosts_are_served(host, client):
    assert client.get("/api/setup", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "192.168.0.7", "", "[", "localhost.", "a:b:c"],
)
def test_other_hosts_are_refused(host, client):
    assert "Host is" in refusal(client.get("/api/setup", headers={"Host": host}), 403)
    assert client.get("/", headers={"Host": host}).status_code == 403


def test_on_all_interfaces_addresses_are_served_and_names_are_not(board):
    with serving(board, host="0.0.0.0") as client:
        assert client.get("/", headers={"Host": "192.168.0.7:8421"}).status_code == 200
        assert client.get("/", headers={"Host": "evil.example"}).status_code == 403
    with serving(board, host="board.lan") as client:
        assert client.get("/", headers={"Host": "board.lan:8421"}).status_code == 200
        assert client.get("/", headers={"Host": "192.168.0.7"}).status_code == 403


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("OWN", 200),
        ("http://evil.example", 403),
        ("null", 403),
        ("http://127.0.0.1:3000", 403),
        ("http://localhost:8421", 403),
        ("", 403),
    ],
)
def test_other_sites_are_refused(origin, status, client):
    origin = origin.replace("OWN", str(client.base_url).rstrip("/"))
    answer = client.post("/api/matches", json={"opponent": "noisy"}, headers={"Origin": origin})
    assert answer.status_code == status


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "json"])
def test_only_json_is_read(kind, client):
    body = json.dumps({"opponent": "noisy"})
    answer = client.post("/api/matches", content=body, headers={"Content-Type": kind})
    assert "allowed: application/json" in refusal(answer, 415)


def test_the_page_is_kept_to_itself(client):
    for path in ("/", "/static/app.js", "/static/board.js", "/static/style.css"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in answer.headers
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", answer.text)  # works offline


@pytest.mark.parametrize("path", ["/static/../server.py", "/static/%2e%2e/server.py", "/static/no"])
def test_only_files_of_the_page_are_served(path, client):
    assert client.get(path).status_code == 404


def test_too_long_a_body_is_refused(client):
    long = {"record": "x" * MAX_BODY_BYTES, "move": 0}
    assert "too long" in refusal(client.post("/api/replay", json=long), 413)
    json_type = {"Content-Type": "application/json"}
    pieces = (b"[" * 1000 for _ in range(MAX_BODY_BYTES // 1000 + 1))
    assert "too long" in refusal(client.post("/api/replay", content=pieces, headers=json_type), 413)


def test_the_match_idle_for_longest_is_forgotten(opponents):
    with serving(board_of(opponents, limit=3)) as client:
        first, second, third = (start(client) for _ in range(3))
        shown(client, first)
        fourth = start(client)
        assert "no such match" in refusal(client.get(f"/api/matches/{second['id']}"), 404)
        for view in (first, third, fourth):
            assert client.get(f"/api/matches/{view['id']}").status_code == 200


def test_names_of_matches_cannot_be_guessed(client):
    names = {start(client)["id"] for _ in range(20)}
    assert len(names) == 20
    assert all(re.fullmatch(r"[\w-]{22}", name) for name in names)  # 128 bits


@pytest.mark.parametrize("name", ["act", "undo", "next", "stop", "hint"])
def test_unknown_matches_addresses_and_methods_are_refused(name, client):
    body = {"action": 0, "moves": 0} if name == "act" else {}
    refusal(client.post(f"/api/matches/{'a' * 22}/{name}", json=body), 404)
    refusal(client.post(f"/api/matches/a/{name}/b", json=body), 404)
    refusal(client.get(f"/api/matches/a/{name}"), 405)


@pytest.mark.parametrize("action", [0, 8, 14, 999])
def test_illegal_actions_are_refused_and_change_nothing(action, client):
    """A card that is too low for its expedition, two draws before their time, and nonsense."""
    view = start(client, seed=1)
    while 0 in view["legal"] or view["table"]["phase"] == "draw":
        view = act(client, view, view["legal"][0])
    before = shown(client, view)
    error = refusal(post(client, view, "act", action=action, moves=view["moves"]), 409)
    assert re.fullmatch(rf"action {action} is not legal now; allowed: [\d, ]+", error)
    assert shown(client, view) == before


BODIES = [
    ("/api/matches", b"", 400, "no JSON"),
    ("/api/matches", b"{", 400, "no JSON"),
    ("/api/matches", b"\xff\xfe", 400, "no JSON"),
    ("/api/matches", b"[" * 100_000, 400, "no JSON"),
    ("/api/matches", b"9" * 5000, 400, "no JSON"),
    ("/api/matches", b"[]", 400, "the body is []; allowed: one JSON object"),
    ("/api/matches", b"null", 400, "the body is None"),
    ("/api/matches", b"{}", 400, "opponent"),
    ("/api/matches", b'{"opponent": 3}', 400, "opponent is 3; allowed: text"),
    ("/api/matches", b'{"opponent": "balancd"}', 400, "did you mean 'balanced'?"),
    ("/api/matches", b'{"opponent": "/etc/passwd"}', 400, "opponent is '/etc/passwd'; allowed: b"),
    ("/api/matches", b'{"opponent": "noisy", "seat": 2}', 400, "seat is 2; allowed: at most 1"),
    ("/api/matches", b'{"opponent": "noisy", "seat": true}', 400, "seat is True"),
    ("/api/matches", b'{"opponent": "noisy", "seed": -1}', 400, "seed is -1"),
    ("/api/matches", b'{"opponent": "noisy", "seed": 1e99}', 400, "seed is 1e+99"),
    ("/api/matches", b'{"opponent": "noisy", "seed": NaN}', 400, "allowed"),
    ("/api/matches", b'{"opponent": "noisy", "rounds": 4}', 400, "rounds is 4"),
    ("/api/matches", b'{"opponent": "noisy", "seatt": 1}', 400, "did you mean 'seat'?"),
    ("/api/matches", b'{"opponent": "noisy", "record": "{}"}', 400, "the game has no key"),
    ("/api/matches", b'{"opponent": "noisy", "record": "\\ud800"}', 400, ""),
    ("/api/replay", b'{"record": "[[", "move": 0}', 400, "the recorded game: column"),
    ("/api/replay", b'{"record": "", "move": 0}', 400, "the recorded game: column"),
    ("/api/replay", b'{"record": "", "move": 1e3}', 400, "move is 1000.0"),
    ("/api/matches/ID/act", b'{"action": -1, "moves": 0}', 400, "action is -1"),
    ("/api/matches/ID/act", b'{"action": 0.5, "moves": 0}', 400, "action is 0.5"),
    ("/api/matches/ID/act", b'{"action": "0", "moves": 0}', 400, "action is '0'"),
    ("/api/matches/ID/act", b'{"action": null, "moves": 0}', 400, "action is None"),
    ("/api/matches/ID/act", b'{"moves": 0}', 400, "action"),
    ("/api/matches/ID/act", b'{"action": 1%s, "moves": 0}' % (b"0" * 400), 400, "action is 1000"),
    ("/api/matches/ID/undo", b'{"all": 1}', 400, "'all' is no setting"),
    ("/api/matches/ID/next", b"{}", 409, "the round goes on"),
]


@pytest.mark.parametrize(("path", "body", "status", "message"), BODIES, ids=range(len(BODIES)))
def test_malformed_requests_are_refused_in_one_line(path, body, status, message, client):
    path = path.replace("ID", start(client)["id"])
    answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert message in refusal(answer, status)


def test_a_false_recording_is_refused(client):
    record = json.loads(LINES[0])
    record["moves"][1] = ["draw", 4]
    wrong = {"record": json.dumps(record), "move": 10}
    error = refusal(client.post("/api/replay", json=wrong), 400)
    assert error.startswith("the recorded game: move 2 is ")
    error = refusal(client.post("/api/replay", json={"record": LINES[0], "move": 1000}), 409)
    assert error == "move is 1000; allowed: 0 to 138"
    error = refusal(
        client.post("/api/matches", json={"opponent": "noisy", "record": LINES[0]}), 409
    )
    assert error.startswith("the game has other rules than this board")


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["balanced", "noisy", LINES[1]]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ["opponent", "seat", "seed", "rounds", "record", "move", "action", "moves", "x"]
)
PATHS = st.sampled_from(
    [
        "/api/matches",
        "/api/replay",
        *(f"/api/matches/ID/{name}" for name in ("act", "undo", "next")),
    ]
)


@fuzzed
@given(path=PATHS, body=st.dictionaries(KEYS, VALUES, max_size=6) | VALUES | st.binary(max_size=40))
def test_no_body_is_answered_with_more_than_a_refusal(path, body, client):
    path = path.replace("ID", start(client)["id"])
    content = body if isinstance(body, bytes) else json.dumps(body)
    answer = client.post(path, content=content, headers={"Content-Type": "application/json"})
    if answer.status_code != 200:
        assert 400 <= answer.status_code < 500
        refusal(answer, answer.status_code)
