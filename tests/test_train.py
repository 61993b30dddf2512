"""The train and evaluate commands from end to end, and what they promise about errors."""

import dataclasses
import json
import pathlib
import shutil

import jax
import numpy as np
import pytest

from lostcities_jax import checkpoint, evaluate, run_evaluation, train
from lostcities_jax.config import load_config, with_values
from lostcities_jax.errors import run_command
from lostcities_jax.evaluation.agents import bot_agent
from lostcities_jax.evaluation.matches import MatchResult
from lostcities_jax.games.catalogue import make_game
from lostcities_jax.networks import make_network
from lostcities_jax.rules import MINI
from lostcities_jax.run_evaluation import RunEvaluation
from lostcities_jax.settings import Config
from lostcities_jax.tracking import RunLog, read_metrics

pytestmark = pytest.mark.usefixtures("quick_compile", "compiled_once")

TINY = """
iterations: 4
devices: cpu:1
network: {kind: mlp, hidden: 8, layers: 1}
traversal: {batch_width: 8, traversals: 16}
memory: {advantage_capacity: 700, strategy_capacity: 700}
learner: {batch_size: 32, advantage_steps: 5, strategy_steps: 5, accumulation: reservoir}
critic: {steps: 5, capacity: 500}
evaluation: {every: 0, games: 4, opponents: [random, balanced]}
checkpoint: {every: 1, keep: 4}
rules: {colors: 3, ranks: 5, wagers: 1, hand: 4, max_turns: 30}
"""


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    (folder / "tiny.yaml").write_text(TINY)
    arguments = ["--config", str(folder / "tiny.yaml"), "--run-dir", str(folder / "run")]
    assert run_command(train.main, arguments) == 0
    return folder / "run"


def outcome(main, arguments, capsys):
    """Exit code and error output, which is one line for every mistake of the user."""
    code = run_command(main, [str(argument) for argument in arguments])
    error = capsys.readouterr().err
    if code:
        assert error.startswith("error: ") and error.count("\n") == 1
    return code, error


def test_a_run_leaves_config_environment_metrics_log_and_checkpoints(run_dir):
    assert load_config(run_dir / "config.yaml").traversal.batch_width == 8
    environment = json.loads((run_dir / "environment.json").read_text())
    assert environment["versions"]["jax"]
    assert (run_dir / "train.log").read_text().count("iteration") >= 4
    assert checkpoint.latest(run_dir / "checkpoints") == 4


def test_every_iteration_has_the_documented_metrics(run_dir):
    rows = read_metrics(run_dir)
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4]
    for name in (
        "time/traversal_seconds",
        "time/train_seconds",
        "time/strategy_train_seconds",
        "time/compile_seconds",
        "traversal/nodes_per_second",
        "traversal/realised_batch",
        "traversal/utilisation",
        "traversal/depth_histogram",
        "memory/advantage_0_size",
        "loss/advantage_1_last",
        "loss/strategy_last",
    ):
        assert all(name in row for row in rows), name
    assert 0 < rows[0]["traversal/utilisation"] <= 1
    assert rows[0]["traversal/realised_batch"] <= 8
    assert sum(rows[0]["traversal/depth_histogram"]) == 2 * 16
    assert "eval/random/greedy/win_rate" in rows[-1]
    assert "eval_current/balanced/sampled/score_difference" in rows[-1]


def test_reservoirs_hold_every_decision_until_they_are_full(run_dir):
    seen = 0
    for row in read_metrics(run_dir):
        seen += row["traversal/nodes"]
        advantages = row["memory/advantage_0_seen"] + row["memory/advantage_1_seen"]
        assert advantages + row["memory/strategy_seen"] == seen
        assert row["memory/strategy_size"] == min(row["memory/strategy_seen"], 700)


def test_a_run_resumed_in_the_middle_ends_bit_for_bit_as_one_never_stopped(run_dir, tmp_path):
    resumed = tmp_path / "run"
    shutil.copytree(run_dir, resumed)
    for iteration in (3, 4):
        shutil.rmtree(resumed / "checkpoints" / str(iteration))
    assert run_command(train.main, ["--resume", "--run-dir", str(resumed)]) == 0
    for name in ("policy", "training"):
        ours, theirs = (_leaves(folder, name) for folder in (resumed, run_dir))
        for left, right in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(left, right)
    for left, right in zip(read_metrics(resumed), read_metrics(run_dir), strict=True):
        for key in left.keys() | right.keys():
            if not key.startswith("time/") and not key.endswith("_per_second"):
                assert left[key] == right[key], key


def _leaves(folder, item):
    import orbax.checkpoint as ocp

    path = (folder / "checkpoints" / "4" / item).absolute()
    with ocp.StandardCheckpointer() as checkpointer:
        return jax.tree.leaves(checkpointer.restore(path))


def test_a_finished_run_resumes_to_nothing_left_to_do(run_dir, capsys):
    before = (run_dir / "metrics.jsonl").read_text()
    assert run_command(train.main, ["--resume", "--run-dir", str(run_dir)]) == 0
    assert "is finished" in capsys.readouterr().out
    assert (run_dir / "metrics.jsonl").read_text() == before


def test_evaluate_plays_a_checkpoint(run_dir, tmp_path, capsys):
    file = tmp_path / "results.json"
    arguments = [run_dir, "--against", "random", run_dir, "--games", "4", "--json", file]
    assert outcome(evaluate.main, arguments, capsys)[0] == 0
    results = json.loads(file.read_text())
    assert [(result["greedy"], result["games"]) for result in results] == [
        (True, 4),
        (False, 4),
        (True, 4),
        (False, 4),
    ]
    assert all(0 <= result["win_rate"] <= 1 for result in results)


@pytest.mark.slow
def test_evaluate_plays_a_bot(capsys):
    arguments = ["balanced", "--against", "discard-only", "--games", "4"]
    assert outcome(evaluate.main, arguments, capsys)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--traversal.batch_widht", "4"], ["batch_widht", "batch-width"]),
        (["--network.kind", "color_sharde"], ["color_sharde", "color_shared"]),
        (["--rules.hand", "30"], ["hand", "29"]),
        (["--rules.colors", "0"], ["colors", "1 to 6"]),
        (["--evaluation.opponents", "blanced"], ["blanced", "balanced"]),
        (["--memory.advantage_capacity", "900000000"], ["900000000", "GB", "allowed"]),
        (["--traversal.batch_width", "1048576"], ["batch_width", "GB", "at most"]),
        (["--devices", "tpu"], ["tpu", "auto, gpu or cpu:N"]),
        (["--config", "no/such/file.yaml"], ["no/such/file.yaml"]),
        (["--resume", "--run-dir", "no/such/run"], ["no/such/run", "run folder"]),
    ],
)
def test_bad_input_is_one_line_with_exit_code_2_and_writes_nothing(
    arguments, words, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code, error = outcome(train.main, arguments, capsys)
    assert code == 2
    for word in words:
        assert word in error
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_in_it_is_not_overwritten(run_dir, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    for folder in (tmp_path, run_dir):
        code, error = outcome(train.main, ["--run-dir", folder], capsys)
        assert code == 2 and "not empty" in error
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_resuming_with_other_settings_is_refused(run_dir, capsys):
    arguments = ["--resume", "--run-dir", run_dir, "--rules.colors", "4"]
    code, error = outcome(train.main, arguments, capsys)
    assert code == 2 and "rules.colors is 4" in error and "3" in error


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_checkpoint(
    run_dir, tmp_path, capsys
):
    resumed = tmp_path / "run"
    shutil.copytree(run_dir, resumed)
    for iteration in (3, 4):
        shutil.rmtree(resumed / "checkpoints" / str(iteration))
    config = (resumed / "config.yaml").read_text()
    config = config.replace("target_scale: 30.0", "target_scale: 1.0e-30")
    assert "1.0e-30" in config
    (resumed / "config.yaml").write_text(config)
    code, error = outcome(train.main, ["--resume", "--run-dir", resumed], capsys)
    assert code == 2 and "loss of iteration 3 is" in error
    assert checkpoint.latest(resumed / "checkpoints") == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["blanced"], ["blanced", "did you mean 'balanced'"]),
        (["RUN", "--against", "discrad-only"], ["discrad-only", "discard-only"]),
        (["RUN", "--rules", "classic"], ["other rules", "rules.colors is 3 there but 5 here"]),
        (["FOREIGN"], ["holds no checkpoint"]),
        (["--replay", "no/such/games.jsonl"], ["no/such/games.jsonl"]),
    ],
)
def test_evaluate_names_what_is_wrong(arguments, words, run_dir, tmp_path, capsys):
    (tmp_path / "foreign").mkdir()
    places = {"RUN": run_dir, "FOREIGN": tmp_path / "foreign"}
    code, error = outcome(evaluate.main, [places.get(a, a) for a in arguments], capsys)
    assert code == 2
    for word in words:
        assert word in error


def test_the_default_config_file_holds_the_defaults():
    assert load_config("configs/default.yaml") == Config()


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in pathlib.Path("configs").glob("*.yaml"))
)
def test_shipped_configs_load(name):
    load_config(f"configs/{name}.yaml")


def test_the_published_setting_is_as_published():
    config = load_config("configs/classic_512x3.yaml")
    assert (config.network.kind, config.network.hidden, config.network.layers) == ("mlp", 512, 3)
    assert config.traversal.traversals == 280
    assert config.traversal.epsilon == 0.05
    assert config.learner.weighting == "lcfr"
    assert (config.learner.batch_size, config.learner.advantage_steps) == (1024, 512)


def test_the_last_evaluation_may_be_without_opponents(tmp_path):
    config = with_values(
        Config(), {"evaluation.opponents": [], "network.hidden": 8, "network.layers": 1}
    )
    game = make_game(config.game, config.rules)
    network = make_network(game, **dataclasses.asdict(config.network))
    with RunLog(tmp_path) as log:
        evaluation = RunEvaluation(config, game, network, log, log.write_file)
        policy = {"policy": network.init(jax.random.key(0))}
        assert evaluation.measure(policy, is_last=True) == {}


def test_an_exploiters_gain_is_that_of_its_greedy_play_though_the_sampled_be_better(
    tmp_path, monkeypatch, capsys
):
    blank = {field.name: 0.0 for field in dataclasses.fields(MatchResult)}
    blank |= {"opponent": "balanced", "games": 4, "score_quantiles": (0.0,) * 5}
    results = [
        MatchResult(**blank | {"greedy": greedy, "score_difference": points})
        for greedy, points in ((True, 1.0), (False, 2.0))
    ]
    bot = bot_agent(MINI, "balanced")
    monkeypatch.setattr(run_evaluation, "evaluate", lambda *_: results)
    monkeypatch.setattr(run_evaluation, "strategies", lambda *_: {"current": bot})
    config = with_values(Config(rules=MINI), {"evaluation.opponents": []})
    game = make_game("lost_cities", MINI)
    with RunLog(tmp_path) as log:
        evaluation = RunEvaluation(config, game, None, log, log.write_file, bot)
        evaluation.measure({}, is_last=True)
    assert "gains +1.00 ± 0.00 points a game against balanced" in capsys.readouterr().out
