"""The page of runs, and the page of a game."""

import dataclasses
import html.parser
import json
import pathlib
import re

import numpy as np
import pytest

from lostcities_jax.config import dump_config, with_values
from lostcities_jax.errors import run_command
from lostcities_jax.evaluation.matches import GameFigures, MatchResult
from lostcities_jax.evaluation.matches import _result as match_result_of
from lostcities_jax.recording import parse_game
from lostcities_jax.report import __main__ as report
from lostcities_jax.report.runs import Match, read_runs, short_names
from lostcities_jax.settings import Config
from lostcities_jax.tracking import MetricsWriter

pytestmark = pytest.mark.usefixtures("quick_compile")

RECORDED = pathlib.Path(__file__).parent / "data" / "replays.jsonl"
ENVIRONMENT = {
    "python": "3.99.1",
    "versions": {"jax": "9.8.7", "wheel": None},
    "git_commit": "abc" * 13,
    "git_changed": True,
    "platform": "Minitel-2",
    "cpu_count": 12,
}


def match_result(opponent, greedy, rate):
    """A result with a rate to look for."""
    return MatchResult(
        opponent=opponent,
        greedy=greedy,
        games=100,
        win_rate=rate,
        win_rate_low=rate - 0.05,
        win_rate_high=rate + 0.05,
        tie_rate=0.0,
        score_difference=100 * rate - 50,
        score_difference_error=2.0,
        score_quantiles=(-30.0, -10.0, 5.0, 20.0, 40.0),
        timeout_rate=0.01,
        mean_plies=110.0,
        opened=3.0,
        play_rate=0.4,
        pile_draw_rate=0.2,
    )


def row(iteration, **more):
    """What an iteration without an evaluation writes."""
    return {
        "loss/critic_first": 0.5,
        "loss/critic_last": 0.25 / iteration,
        "traversal/nodes": 1000,
        "traversal/nodes_per_second": 5000.0,
        "traversal/utilisation": 0.8,
        "traversal/realised_batch": 50.0,
        "traversal/fallback_rate": None,
        "traversal/depth_histogram": [0, 3, 1],
        "traversal/depth_bin_size": 10,
        "memory/strategy_seen": 1000 * iteration,
        "memory/strategy_size": min(1000 * iteration, 1500),
        "time/traversal_seconds": 1.0,
        "time/compile_seconds": 20.0 if iteration == 1 else 0.0,
        "time/iteration_seconds": 23.0 if iteration == 1 else 3.0,
    } | more


def evaluated(iteration, opponents=("random", "noisy"), sections=("eval", "eval_current")):
    """What an iteration with an evaluation writes."""
    values = row(iteration) | {"time/evaluation_seconds": 1.5}
    for section in sections:
        for opponent in opponents:
            for greedy in (True, False):
                rate = 0.3 + 0.1 * iteration + 0.05 * greedy
                values |= match_result(opponent, greedy, rate).metrics(section)
    return values


def make_run(folder, rows, **settings):
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(dump_config(with_values(Config(), settings)))
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    with MetricsWriter(folder) as writer:
        for iteration, values in rows.items():
            writer.write(iteration, values)
    return folder


def make_page(tmp_path, *arguments):
    """The page that the command writes."""
    out = tmp_path / "page.html"
    assert run_command(report.main, [*map(str, arguments), "--out", str(out)]) == 0
    return out.read_text("utf-8")


class Checker(html.parser.HTMLParser):
    """Finds tags that do not match, ids given twice, references to nothing, and all text."""

    def __init__(self, page):
        super().__init__()
        self.open, self.ids, self.wanted, self.texts, self.outside = [], [], set(), [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "input"):
            self.open.append(tag)
        self.handle_startendtag(tag, attrs)

    def handle_startendtag(self, tag, attrs):
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            elif name.endswith("href") and value.startswith("#"):
                self.wanted.add(value[1:])
            elif name.endswith(("href", "src")):
                self.outside.append(value)
            self.wanted |= set(re.findall(r"url\(#([^)]*)\)", value or ""))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if data.strip():
            self.texts.append(data.strip())


def check(page):
    """A page that is whole and needs nothing from elsewhere."""
    checker = Checker(page)
    assert checker.open == [] and checker.outside == []
    assert len(set(checker.ids)) == len(checker.ids)
    assert checker.wanted <= set(checker.ids)
    return checker


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    rows = {1: row(1), 2: evaluated(2), 3: row(3), 4: evaluated(4)}
    a = make_run(folder / "a", rows, iterations=4)
    b = make_run(folder / "b<i>", {1: row(1), 2: evaluated(2)}, seed=77, **{"rules.colors": 4})
    return make_page(folder, a, b)


def test_the_page_stands_alone(two_runs):
    check(two_runs)


def test_the_page_names_machine_versions_and_settings_that_are_not_the_defaults(two_runs):
    texts = check(two_runs).texts
    for text in ("Minitel-2, 12 cores", "3.99.1", "jax 9.8.7", "abcabcabca and changes"):
        assert text in texts
    settings = two_runs.partition("Settings that are not the defaults")[2].partition("</table>")[0]
    rows = re.findall(r"<tr><td>(.*?)</tr>", settings)
    assert [row.removesuffix("</td>").split("</td><td>") for row in rows] == [
        ["seed", "0", "0", "77"],
        ["iterations", str(Config().iterations), "4", str(Config().iterations)],
        ["rules.colors", "5", "5", "4"],
    ]


def test_the_page_shows_the_newest_figures_of_every_match(two_runs):
    assert "<td>4</td><td>noisy</td><td>greedy</td><td>75.0 [70.0, 80.0]</td>" in two_runs
    assert "<td>2</td><td>random</td><td>sampled</td><td>50.0 [45.0, 55.0]</td>" in two_runs


def test_the_page_has_every_chart(two_runs):
    texts = check(two_runs).texts
    for title in ("Games won", "Points ahead", "How far ahead", "How it played"):
        assert texts.count(title) == 2  # of the average strategy and of the current one
    for title in ("Losses", "Traversals", "Depth of traversals", "Samples"):
        assert title in texts
    assert texts.count("compiling") == 2 + 1  # a legend a run, and the line of the table
    assert "regret matching fell back, share" in texts and "decisions of a traversal" in texts


def test_the_same_runs_give_the_same_page(tmp_path):
    run = make_run(tmp_path / "run", {1: row(1), 2: evaluated(2, ["random"], ["eval"])})
    assert make_page(tmp_path, run) == make_page(tmp_path, run)


def test_exact_figures_have_their_chart(tmp_path):
    exact = {"eval/exact/nash_conv": 0.5, "eval_current/exact/nash_conv": 0.7}
    run = make_run(tmp_path / "run", {1: row(1, **exact), 2: row(2, **exact)}, game="kuhn")
    texts = check(make_page(tmp_path, run)).texts
    assert "Distance from an equilibrium" in texts and texts.count("NashConv") == 2
    assert "No evaluation has been made yet." not in texts


def test_a_run_without_evaluations_has_a_page(tmp_path):
    run = make_run(tmp_path / "run", {1: row(1)})
    texts = check(make_page(tmp_path, run)).texts
    assert "No evaluation has been made yet." in texts and "Losses" in texts


def test_a_run_with_one_bare_iteration_has_a_page(tmp_path):
    run = make_run(tmp_path / "run", {1: {}})
    assert "Losses" not in check(make_page(tmp_path, run)).texts


def test_training_seconds_leave_out_compiling_and_evaluation(tmp_path):
    run = make_run(tmp_path / "run", {1: row(1), 2: evaluated(2), 3: row(3)})
    (record,) = read_runs([str(run)])
    np.testing.assert_allclose(record.seconds, [3.0, 4.5, 7.5])


def test_an_opponent_with_slashes_in_its_name_is_one_opponent(tmp_path):
    rows = {1: evaluated(1, ["runs/a/checkpoints/3"], ["eval"])}
    (record,) = read_runs([str(make_run(tmp_path / "run", rows))])
    assert record.matches() == [
        Match("eval", "runs/a/checkpoints/3", "greedy"),
        Match("eval", "runs/a/checkpoints/3", "sampled"),
    ]


def test_runs_are_named_by_as_little_as_tells_them_apart():
    paths = [pathlib.Path(path) for path in ("/x/a/run", "/x/b/run", "/y/b/walk")]
    assert short_names(paths) == ["a/run", "b/run", "b/walk"]
    assert short_names(paths[1:]) == ["run", "walk"]


def test_quantiles_of_a_match_are_those_of_its_games():
    ahead = np.arange(-80, 121).reshape(3, 67)[:, ::-1]  # 201 games, 201 different results
    figures = {field.name: np.ones((3, 67), int) for field in dataclasses.fields(GameFigures)}
    result = match_result_of("noisy", True, GameFigures(**figures | {"difference": ahead}), 67)
    assert result.score_quantiles == (-70.0, -30.0, 20.0, 70.0, 110.0)
    assert result.metrics("eval")["eval/noisy/greedy/score_quantiles"] == result.score_quantiles


def damaged(tmp_path, name, content):
    folder = make_run(tmp_path / "run", {1: row(1)})
    (folder / name).write_text(content)
    return folder


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda tmp: [tmp / "absent"], ["is no run folder", "config.yaml"]),
        (lambda tmp: [damaged(tmp, "metrics.jsonl", "{}\n")], ["line 1 is no JSON object"]),
        (lambda tmp: [damaged(tmp, "metrics.jsonl", "")], ["has finished no iteration"]),
        (lambda tmp: [damaged(tmp, "config.yaml", "sed: 3")], ["'sed' is no setting"]),
        (lambda tmp: [damaged(tmp, "environment.json", "[]")], ["no JSON object"]),
        (lambda tmp: [damaged(tmp, "environment.json", '{"versions": 3}')], ["no JSON object"]),
        (lambda tmp: [damaged(tmp, "environment.json", "{")], ["no JSON"]),
        (lambda tmp: [make_run(tmp / "run", {1: row(1)})] * 2, ["given twice"]),
        (lambda tmp: [], ["RUN is missing", "--replay FILE"]),
        (lambda tmp: ["x", "--replay", RECORDED], ["RUN is 'x' with --replay"]),
        (lambda tmp: ["--replay", tmp / "absent"], ["cannot be read"]),
        (lambda tmp: ["--replay", RECORDED, "--game", "1000"], ["game 1000", "1 to 66"]),
        (lambda tmp: ["--replay", RECORDED, "--game", "0"], ["game is 0", "at least 1"]),
        (lambda tmp: ["--replay", RECORDED, "--gam", "2"], ["'--gam'", "mean '--game'?"]),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(make, parts, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert run_command(report.main, [*map(str, make(tmp_path)), "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    assert not [part for part in parts if part not in error], error
    assert not out.exists()


def test_a_page_that_cannot_be_written_is_named(tmp_path, capsys):
    out = tmp_path / "absent" / "page.html"
    assert run_command(report.main, ["--replay", str(RECORDED), "--out", str(out)]) == 2
    assert "cannot be written: No such file" in capsys.readouterr().err


def test_a_missing_extra_is_named(tmp_path, capsys, monkeypatch):
    run = make_run(tmp_path / "run", {1: row(1)})
    for module in ("page", "charts", "drawn"):
        monkeypatch.delitem(report.sys.modules, f"lostcities_jax.report.{module}", raising=False)
    monkeypatch.setitem(report.sys.modules, "matplotlib", None)
    assert run_command(report.main, [str(run)]) == 2
    assert "pip install 'lostcities_jax[report]'" in capsys.readouterr().err


@pytest.mark.parametrize("number", [1, 3, 66])
def test_a_game_has_a_position_for_the_deal_and_every_move(number, tmp_path):
    record = parse_game(RECORDED.read_text("utf-8").splitlines()[number - 1])
    page = make_page(tmp_path, "--replay", RECORDED, "--game", number)
    checker = check(page)
    assert page.count("<svg") == page.count("<figure") == len(record.moves) + 1
    assert page.count("<figure hidden") == len(record.moves)
    last = page.rpartition("<figure")[2]
    for player, points in enumerate(record.scores):
        assert f"player {player}: {points} points" in last
    assert any(
        text.startswith(f"{len(record.moves)}/{len(record.moves)}: ") for text in checker.texts
    )
