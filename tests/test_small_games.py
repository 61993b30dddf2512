"""The train and evaluate commands on games with exact figures, and what goes with which."""

import json
import multiprocessing
import shutil

import pytest

from lostcities_jax import evaluate, train
from lostcities_jax.errors import run_command
from lostcities_jax.tracking import read_metrics

pytestmark = pytest.mark.usefixtures("quick_compile", "compiled_once")

KUHN = """
game: kuhn
iterations: 3
devices: cpu:1
network: {kind: mlp, hidden: 16, layers: 1}
traversal: {batch_width: 16, traversals: 48, sampling: external, estimator: outcome}
snapshots: {every: 1, slots: 2}
memory: {advantage_capacity: 2000, strategy_capacity: 2000}
learner:
  accumulation: reservoir
  batch_size: 64
  advantage_steps: 20
  strategy_steps: 40
  target_scale: 1.0
evaluation: {every: 1}
checkpoint: {every: 1, keep: 3}
"""


@pytest.fixture(scope="module")
def kuhn_config(tmp_path_factory):
    path = tmp_path_factory.mktemp("kuhn") / "kuhn.yaml"
    path.write_text(KUHN)
    return path


@pytest.fixture(scope="module")
def kuhn_run(kuhn_config):
    folder = kuhn_config.parent / "run"
    assert run_command(train.main, ["--config", str(kuhn_config), "--run-dir", str(folder)]) == 0
    return folder


def one_line_error(main, arguments, capsys):
    assert run_command(main, [str(argument) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    return error


def test_a_run_of_a_small_game_reports_exact_figures(kuhn_run):
    rows = read_metrics(kuhn_run)
    assert len(rows) == 3
    for row in rows:
        for section in ("eval", "eval_iterates"):
            total = row[f"{section}/exact/nash_conv"]
            assert 0 < total < 2 and row[f"{section}/exact/exploitability"] == total / 2
        assert row["traversal/traversals_per_second"] > 0
    assert "eval_current/exact/nash_conv" in rows[-1]


def test_a_run_with_snapshots_resumes_bit_for_bit(kuhn_run, tmp_path):
    resumed = tmp_path / "run"
    shutil.copytree(kuhn_run, resumed)
    shutil.rmtree(resumed / "checkpoints" / "3")
    assert run_command(train.main, ["--resume", "--run-dir", str(resumed)]) == 0
    for left, right in zip(read_metrics(resumed), read_metrics(kuhn_run), strict=True):
        for key in left.keys() | right.keys():
            if not key.startswith("time/") and not key.endswith("_per_second"):
                assert left[key] == right[key], key


@pytest.mark.parametrize(
    ("policy", "section"),
    [("average", "eval"), ("iterates", "eval_iterates"), ("current", "eval_current")],
)
def test_evaluate_finds_what_the_run_found(kuhn_run, tmp_path, policy, section):
    path = tmp_path / "results.json"
    arguments = [str(kuhn_run), "--policy", policy, "--json", str(path)]
    assert run_command(evaluate.main, arguments) == 0
    (result,) = json.loads(path.read_text())
    last = read_metrics(kuhn_run)[-1]
    assert result["nash_conv"] == pytest.approx(last[f"{section}/exact/nash_conv"], rel=1e-5)


def test_a_checkpoint_of_poker_is_no_opponent_in_lost_cities(kuhn_run, capsys):
    error = one_line_error(evaluate.main, ["random", "--against", kuhn_run], capsys)
    assert "plays kuhn; allowed in a match: lost_cities" in error


def test_poker_has_no_search(kuhn_run, capsys):
    error = one_line_error(evaluate.main, [kuhn_run, "--search.worlds", "4"], capsys)
    assert "--search.worlds is given with a checkpoint of Kuhn poker; allowed: " in error


@pytest.mark.parametrize(
    "flags",
    [
        ["--against", "random"],
        ["--games", "2000"],
        ["--seed=1"],
        ["--batch_width", "64"],
        ["--rules", "mini"],
        ["--devices", "cpu:1"],
    ],
)
def test_what_is_said_of_matches_is_refused_for_poker_which_has_none(kuhn_run, flags, capsys):
    error = one_line_error(evaluate.main, [kuhn_run, *flags], capsys)
    flag = flags[0].partition("=")[0].replace("_", "-")
    assert f"{flag} is given with a checkpoint of Kuhn poker; allowed: with one of Lost" in error


@pytest.mark.slow
def test_the_server_trains_as_the_lockstep_traversal_does(kuhn_config, kuhn_run, tmp_path):
    folder = tmp_path / "run"
    arguments = ["--config", str(kuhn_config), "--run-dir", str(folder)]
    arguments += ["--scheduler.kind", "server", "--scheduler.traversals", "4"]
    assert run_command(train.main, arguments) == 0
    assert not multiprocessing.active_children()
    for left, right in zip(read_metrics(folder), read_metrics(kuhn_run), strict=True):
        assert left["traversal/nodes"] == right["traversal/nodes"]
        key = "eval/exact/nash_conv"
        assert left[key] == pytest.approx(right[key], abs=1e-3)


@pytest.mark.parametrize(
    ("flag", "value", "named"),
    [
        ("--traversal.tape-cycles", "1", "traversal.tape_cycles is 1, too few for"),
        pytest.param(
            *("--traversal.stack-levels", "1", "traversal.stack_levels is 1, too few for"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_tape_or_stack_that_is_too_small_ends_the_run(
    kuhn_config, tmp_path, capsys, flag, value, named
):
    arguments = ["--config", kuhn_config, "--run-dir", tmp_path / "run", flag, value]
    error = one_line_error(train.main, arguments, capsys)
    assert named in error and "allowed: more" in error


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("--traversal.opponent balanced", "traversal.opponent is balanced"),
        ("--traversal.sparring noisy expert", "traversal.sparring is noisy, expert, who play"),
        ("--traversal.opponent league --snapshots.every 0", "traversal.opponent is league"),
        (
            "--traversal.opponent league --league.current 0 --league.recent 0 "
            "--league.older 0 --league.anchor 0",
            "all weights of league are 0",
        ),
        ("--traversal.cut-value rollouts", "traversal.cut_value is rollouts"),
        (
            "--traversal.cut-value rollouts --traversal.max-depth 2",
            "traversal.rollout_policy is expert",
        ),
        (
            "--traversal.cut-value rollouts --traversal.max-depth 2 "
            "--traversal.rollout-policy random --scheduler.kind recursive",
            "allowed with scheduler.kind recursive: score",
        ),
        ("--scheduler.kind server --scheduler.slots 1", "scheduler.slots is 1"),
        ("--network.kind color_shared", "network.kind is color_shared; allowed for Kuhn poker"),
        ("--game kuhm", "did you mean"),
    ],
)
def test_settings_that_do_not_go_together_are_refused_before_anything_is_written(
    kuhn_config, tmp_path, capsys, flags, named
):
    folder = tmp_path / "run"
    arguments = ["--config", kuhn_config, "--run-dir", folder, *flags.split()]
    assert named in one_line_error(train.main, arguments, capsys)
    assert not folder.exists()
