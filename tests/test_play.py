"""Matches against agents: rules of a match, undoing, recordings, and the game in a terminal."""

import dataclasses
import functools
import os
import pathlib
import re
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

from lostcities_jax.bots import BOTS
from lostcities_jax.cli import PlayArguments, parse_play
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.evaluation.agents import Agent, Mixture, average_agent
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.networks import make_network
from lostcities_jax.play.__main__ import main
from lostcities_jax.play.match import (
    act,
    answer,
    continue_game,
    is_over,
    next_round,
    position,
    recordings,
    round_scores,
    start_match,
    stop,
    undo,
)
from lostcities_jax.play.opponents import Opponents, choose, load_opponents, probabilities
from lostcities_jax.play.terminal import play_in_terminal
from lostcities_jax.play.views import hint_view, match_view, replay_view
from lostcities_jax.recording import format_game, parse_game
from lostcities_jax.replay import play_moves, verify_file, verify_game
from lostcities_jax.rules import CLASSIC, MINI

ROOT = pathlib.Path(__file__).parent.parent
RECORDED = ROOT / "tests" / "data" / "replays.jsonl"
GAMES = [parse_game(line) for line in RECORDED.read_text("utf-8").splitlines()]
SHORT = dataclasses.replace(CLASSIC, hand=4, ranks=4, wagers=1)  # 17 draws from the deck


@pytest.fixture(scope="module")
def opponents():
    return load_opponents("balanced", "average", SHORT)


@pytest.fixture
def reply(opponents):
    return functools.partial(choose, opponents, "balanced")


def first_legal(match, reply):
    """The match after the lowest legal action of the human and the agent's answer."""
    action = position(match.current).legal_actions()[0]
    return answer(act(match, action, len(match.current.moves)), reply)


def whole_round(match, reply):
    while not is_over(match.current, position(match.current)):
        match = first_legal(match, reply)
    return match


@pytest.mark.parametrize("seed", range(4))
def test_three_rounds_are_summed_and_the_one_ahead_starts(seed, reply):
    match = answer(start_match(SHORT, "balanced", seed, seed % 2, 3), reply)
    totals, seats = np.zeros(2, int), []
    for number in range(3):
        match = whole_round(match, reply)
        seats.append(match.current.human)
        record = recordings(match)[number]
        verify_game(record)
        assert record.finished
        totals += [record.scores[seats[-1]], record.scores[1 - seats[-1]]]
        assert match_view(match)["match_over"] == (number == 2)
        if number < 2:
            match = answer(next_round(match), reply)
            own, other = totals
            starts = seats[-1] if own == other else int(other > own)
            assert match.current.human == starts
    assert totals.tolist() == [sum(column) for column in zip(*round_scores(match), strict=True)]
    assert len({round_.deck for round_ in match.rounds}) == 3
    with pytest.raises(UserError, match="the match is over"):
        next_round(match)


def test_a_tie_leaves_the_start_where_it_was(reply):
    for seat in (0, 1):
        match = stop(start_match(SHORT, "balanced", 1, seat, 3))
        match = next_round(dataclasses.replace(match, length=3))
        assert match.current.human == seat


@pytest.mark.parametrize("seat", [0, 1])
def test_undo_restores_the_match_exactly_and_the_agent_answers_alike(seat, reply):
    match = answer(start_match(SHORT, "balanced", 7, seat, 3), reply)
    with pytest.raises(UserError, match="no turn to undo"):
        undo(match)
    stands = [match]
    for _ in range(3):
        match = first_legal(match, reply)
        assert undo(match) == stands[-1]  # a turn that has only begun
        match = first_legal(match, reply)
        stands.append(match)
    for earlier in reversed(stands[:-1]):
        match = undo(match)
        assert match == earlier
        assert match_view(match) == match_view(earlier)
    again = match
    for later in stands[1:]:
        again = first_legal(first_legal(again, reply), reply)
        assert again == later


def test_a_finished_round_has_shown_its_cards_and_is_not_undone(reply):
    match = whole_round(answer(start_match(SHORT, "balanced", 1, 0, 3), reply), reply)
    for change in (undo, stop, functools.partial(act, action=0, moves=len(match.current.moves))):
        with pytest.raises(UserError):
            change(match)


def test_a_stopped_round_counts_as_it_stands(reply):
    match = answer(start_match(SHORT, "balanced", 3, 1, 3), reply)
    for _ in range(6):
        match = first_legal(match, reply)
    match = stop(match)
    (record,) = recordings(match)
    verify_game(record)
    assert not record.finished
    assert match_view(match)["match_over"]
    assert record.players == ("balanced", "human")


def test_no_round_is_recorded_before_it_is_over(reply):
    match = answer(start_match(SHORT, "balanced", 3, 1, 3), reply)
    assert recordings(match) == []


@pytest.mark.parametrize("moves", [0, 1, 2, 3, 30])
@pytest.mark.parametrize("seat", [0, 1])
def test_a_recorded_game_goes_on_from_any_move(moves, seat):
    record = GAMES[0]
    match = continue_game(CLASSIC, "balanced", 0, seat, record, moves)
    match = answer(match, lambda _, game: game.legal_actions()[-1])
    assert match.current.moves[:moves] == record.moves[:moves]
    assert position(match.current).player == seat
    with pytest.raises(UserError, match="no turn to undo"):
        undo(match)
    (written,) = recordings(stop(match))
    verify_game(parse_game(format_game(written)))


@pytest.mark.parametrize(
    ("number", "moves", "message"),
    [
        (1, 0, "the game has other rules than this board"),
        (0, 138, "the game is over after 138 moves"),
        (0, 139, "move is 139; allowed: 0 to 138"),
    ],
)
def test_what_cannot_go_on_is_refused(number, moves, message):
    with pytest.raises(UserError, match=message):
        continue_game(CLASSIC, "balanced", 0, 0, GAMES[number], moves)


@pytest.mark.parametrize("number", range(len(GAMES)))
def test_a_recording_is_shown_to_its_recorded_score(number):
    record = GAMES[number]
    view = replay_view(record, len(record.moves))
    assert list(view["table"]["scores"]) == list(record.scores)
    assert (view["table"]["phase"] == "over") == record.finished
    assert list(view["names"]) == list(record.players)
    assert view["log"][-1]["text"].startswith(view["names"][view["log"][-1]["seat"]])


def test_moves_are_told_in_words_and_draws_to_the_drawer_alone(reply):
    match = answer(start_match(SHORT, "balanced", 11, 0, 1), reply)
    while not is_over(match.current, position(match.current)):
        told = match_view(match)["log"]
        own = [entry["text"] for entry in told if entry["text"].startswith("You draw from")]
        other = [entry["text"] for entry in told if entry["text"].startswith("balanced draws from")]
        assert all(re.fullmatch(r"You draw from the deck: [YBWGR][x2345]", text) for text in own)
        assert set(other) <= {"balanced draws from the deck"}
        match = first_legal(match, reply)
    assert own and other


def test_agents_choose_what_their_policy_gives(opponents):
    """The greedy bots put everything on one action, the noisy one draws as often as it says."""
    round_ = start_match(SHORT, "", 5, 0, 1).current
    game = position(round_)
    legal = game.legal_actions()
    for name in BOTS:
        shares = probabilities(opponents, name, round_, game)
        assert shares.sum() == pytest.approx(1)
        assert shares[legal].sum() == pytest.approx(1)
    drawn = [
        choose(opponents, "random", dataclasses.replace(round_, seed=(seed, 0)), game)
        for seed in range(400)
    ]
    counts = np.bincount(drawn, minlength=len(legal))
    expected = 400 / len(legal)
    assert ((counts - expected) ** 2 / expected).sum() < 26.0  # chi-squared of 7, 0.9995


def test_an_untrained_network_is_uniform_over_what_is_legal():
    network = make_network(lost_cities(MINI), "mlp", 8, 1)
    agent = average_agent("net", network, network.init(jax.random.key(0)))
    round_ = start_match(MINI, "net", 2, 0, 1).current
    game = position(round_)
    game.step(2)
    shares = probabilities(Opponents(MINI, {"net": agent}), "net", round_, game)
    assert np.flatnonzero(shares).tolist() == game.legal_actions() == [4]
    game.step(4)
    shares = probabilities(Opponents(MINI, {"net": agent}), "net", round_, game)
    legal = game.legal_actions()
    assert shares[legal] == pytest.approx(1 / len(legal))


def test_of_a_mixture_one_agent_plays_a_whole_round():
    def policy(params, info, legal, head):
        return np.float32(1) * legal * 0 + (params == np.arange(legal.shape[-1]))[None]

    agents = tuple(Agent(str(slot), policy, (slot, slot)) for slot in range(3))
    opponents = Opponents(MINI, {"mix": Mixture("mix", agents, np.array([1.0, 1.0, 0.0]))})
    seen = set()
    for seed in range(20):
        round_ = start_match(MINI, "mix", seed, 1, 1).current
        game = position(round_)
        slot = choose(opponents, "mix", round_, game)
        assert slot == choose(opponents, "mix", round_, game)
        seen.add(slot)
    assert seen == {0, 1}


def test_a_hint_takes_equal_cards_together(opponents):
    rules = dataclasses.replace(MINI, wagers=3)
    game = play_moves(rules, [0, 3, 0, 3, 0, 1, 2, 3, 4, 5], ())
    hints = hint_view(game, np.array([0.1, 0.2, 0.3, 0.4, 0, 0, 0]))
    assert [(hint["text"], hint["action"]) for hint in hints] == [
        ("discard Yx", 2),
        ("play Yx", 0),
    ]
    assert [hint["probability"] for hint in hints] == pytest.approx([0.7, 0.3])


# ---- The terminal ----------------------------------------------------------------------------


def scripted(monkeypatch, capsys, script):
    """Input that `script(text printed since the last prompt)` gives."""
    printed = []

    def fake_input(prompt):
        printed.append(capsys.readouterr().out)
        return script(printed[-1])

    monkeypatch.setattr("builtins.input", fake_input)
    return printed


def test_a_match_is_played_by_commands_alone(opponents, monkeypatch, capsys, tmp_path):
    path = tmp_path / "games.jsonl"
    hinted = []

    def script(text):
        if "the match is over" in text:
            return f"s {path}"
        if "saved" in text:
            return "q"
        if "n: the next round" in text:
            return "n"
        if "now draw" in text:
            return "t"
        if "%" in text:
            share, kind, card = text.splitlines()[0].split()
            hinted.append(share)
            return f"{kind[0]} {card.lower()}"
        assert "hand of player" in text
        return "h"

    printed = scripted(monkeypatch, capsys, script)
    play_in_terminal(opponents, start_match(SHORT, "balanced", 2, 0, 3))
    assert set(hinted) == {"100.0%"}
    summary = verify_file(path)
    assert (summary.games, summary.finished) == (3, 3)
    games = [parse_game(line) for line in path.read_text().splitlines()]
    own = sum(game.scores[game.players.index("human")] for game in games)
    assert f"you {own} : " in "".join(printed)
    hands = re.findall(r"hand of player (\d): (\d) cards", printed[0])
    assert hands == [("1", "4")]


def test_commands_undo_tell_and_refuse_in_one_line(opponents, monkeypatch, capsys):
    commands = iter(
        ["u", "x", "", "p Q9", "d", "t", "t Z", "n", "s games.jsonl", "l", "?", "stop", "h", "q"]
    )
    printed = scripted(monkeypatch, capsys, lambda _: next(commands))
    play_in_terminal(opponents, start_match(SHORT, "balanced", 2, 0, 3))
    answers = printed[1:]
    for text, part in zip(
        answers,
        [
            "there is no turn to undo",
            "'x' is no command; ? shows",
            "'' is no command",
            "card 'Q9' is not in your hand; allowed: ",
            "'d' is no command",
            "action 8 is not legal now; allowed: 0, 1, 2, 3,",
            "pile 'Z' does not exist; allowed: Y B W G R",
            "the round goes on",
            "no round is over yet",
        ],
        strict=False,
    ):
        assert part in text
        assert len(text.splitlines()) == 1
    assert "the match is over" in answers[11]
    assert "the round is over" in answers[12]


def test_the_end_of_the_input_ends_the_game(opponents, monkeypatch):
    def end(_):
        raise EOFError

    monkeypatch.setattr("builtins.input", end)
    play_in_terminal(opponents, start_match(SHORT, "balanced", 2, 0, 3))


# ---- The command -----------------------------------------------------------------------------

WITHOUT_EXTRA = """
import sys
sys.modules["starlette"] = sys.modules["uvicorn"] = None
from lostcities_jax.errors import run_command
from lostcities_jax.play.__main__ import main
print(run_command(main, []), flush=True)
sys.exit(run_command(main, ["--text", "--rules", "mini", "--seed", "1"]))
"""


def test_the_terminal_needs_no_server_and_the_page_names_what_it_needs():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRA],
        input="d Yx\nq\n",
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2\n")
    assert "turn 1 of at most 4" in done.stdout
    message = "error: the page needs starlette: pip install 'lostcities_jax[play]', or add --text\n"
    assert done.stderr == message


def test_flags_have_defaults_and_bounds():
    assert parse_play([]) == PlayArguments()
    assert parse_play(["noisy", "--seed", "3", "--port", "0", "--open"]) == PlayArguments(
        agent="noisy", seed=3, port=0, open=True
    )
    for argv in (["--text", "noisy"], ["noisy", "--text"], ["--text", "true", "noisy"]):
        assert parse_play(argv) == PlayArguments(agent="noisy", text=True)
    for argv, message in (
        (["--port", "65536"], "port is 65536; allowed: at most 65535"),
        (["--seat", "2"], "seat is 2; allowed: at most 1"),
        (["--seed", "x"], "seed is 'x'; allowed: a whole number"),
        (["--rules", "mino"], "did you mean 'mini'?"),
        (["a", "b"], "AGENT is 'a b'; allowed: one value"),
        (["--no-text", "true"], "--no-text is 'true'; allowed: no value"),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            parse_play(argv)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["balancd", "--port", "0"], "did you mean 'balanced'?"),
        (["--text", "runs/none"], "neither a bot nor a checkpoint"),
        (["--host", "no.such.host.invalid"], "host is 'no.such.host.invalid'; allowed: an address"),
        (["--host", "a" * 70 + ".b"], "allowed: an address of this machine"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(argv, message, capsys):
    assert run_command(main, argv) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_a_port_in_use_is_one_line_and_code_2(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run_command(main, ["--port", str(port)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: port {port} of '127.0.0.1' cannot be used: Address already")
    assert len(error.splitlines()) == 1
