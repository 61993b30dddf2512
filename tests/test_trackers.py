"""Metrics also go to TensorBoard or Weights & Biases where that is asked for."""

import hashlib
import importlib.util
import os
import pathlib
import subprocess
import sys
import types
import unittest.mock

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lostcities_jax import train
from lostcities_jax.cli import parse_train
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.trackers import open_tracker
from lostcities_jax.tracking import MetricsWriter, read_metrics

pytestmark = pytest.mark.usefixtures("quick_compile")


def scalars(folder):
    """What TensorBoard itself reads: (step, value) pairs by name."""
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def write(folder, rows, done=0):
    with open_tracker("tensorboard", folder, {}, done) as sink, MetricsWriter(folder, [sink]) as to:
        for iteration, values in rows.items():
            to.write(iteration, values)


def test_tensorboard_has_the_numbers_of_every_iteration(tmp_path):
    rows = {
        1: {"loss/critic_last": 0.5, "traversal/depth_histogram": [1, 2], "note": "text"},
        2: {"loss/critic_last": 0.25, "eval/random/greedy/win_rate": 1.0, "nan": float("nan")},
    }
    write(tmp_path, rows)
    assert scalars(tmp_path) == {
        "loss/critic_last": [(1, 0.5), (2, 0.25)],
        "eval/random/greedy/win_rate": [(2, 1.0)],
    }
    assert len(read_metrics(tmp_path)) == 2


def test_a_resumed_run_voids_what_tensorboard_had_of_later_iterations(tmp_path):
    write(tmp_path, {1: {"a": 1.0}, 2: {"a": 2.0}, 3: {"a": 3.0}})
    write(tmp_path, {2: {"a": 20.0}}, done=1)
    assert scalars(tmp_path) == {"a": [(1, 1.0), (2, 20.0)]}


def test_a_tracker_is_no_setting_of_the_run(tmp_path):
    arguments = parse_train(["--track", "tensorboard"])
    assert (arguments.track, arguments.overrides) == ("tensorboard", ())


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (["--track", "tensorbord"], ["'tensorbord'", "tensorboard, wandb", "mean 'tensorboard'?"]),
        (["--track"], ["--track is missing"]),
        (["--track", "wandb"], ["needs wandb", "pip install 'lostcities_jax[tracking]'"]),
    ],
)
def test_a_tracker_that_cannot_be_is_named_before_a_run_is_begun(
    argv, parts, tmp_path, monkeypatch, capsys
):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "wandb" else find(name)
    )
    folder = tmp_path / "run"
    assert run_command(train.main, [*argv, "--run-dir", str(folder)]) == 2
    error = capsys.readouterr().err
    assert not [part for part in parts if part not in error] and error.count("\n") == 1
    assert not folder.exists()
    with pytest.raises(UserError):
        parse_train(argv)


def test_train_sends_what_it_writes_to_the_tracker_and_to_whoever_watches(tmp_path):
    flags = """
        --devices cpu:1 --game kuhn --iterations 2 --network.kind mlp --network.hidden 8
        --network.layers 1 --traversal.batch-width 8 --traversal.traversals 8
        --traversal.estimator outcome --learner.accumulation reservoir
        --learner.advantage-steps 2 --learner.strategy-steps 2
        --learner.batch-size 16 --memory.advantage-capacity 500 --memory.strategy-capacity 500
    """
    watched = {}
    argv = [*flags.split(), "--run-dir", str(tmp_path / "run"), "--track", "tensorboard"]
    train.main(argv, lambda iteration, values: watched.setdefault(iteration, values))
    rows = read_metrics(tmp_path / "run")
    assert [{"iteration": number} | values for number, values in watched.items()] == rows
    assert scalars(tmp_path / "run")["traversal/nodes"] == [
        (row["iteration"], row["traversal/nodes"]) for row in rows
    ]


@pytest.fixture
def wandb_ids(monkeypatch):
    """Ids that Weights & Biases is asked for, of which nothing else is tried here."""
    ids = []

    def init(id, dir, **rest):
        ids.append(id)
        (pathlib.Path(dir) / "wandb").mkdir(exist_ok=True)  # as it does
        return unittest.mock.MagicMock()

    fake = types.SimpleNamespace(init=init, Error=OSError)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return ids


def begin(folder):
    folder.mkdir(exist_ok=True)
    with open_tracker("wandb", folder, {}, 0):
        pass


def test_wandb_knows_a_resumed_run_again_and_not_another_that_took_its_folder(tmp_path, wandb_ids):
    for _ in range(2):
        begin(tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "moved")
    begin(tmp_path / "moved")
    begin(tmp_path / "run")
    first, resumed, moved, another = wandb_ids
    assert first == resumed == moved != another


def test_wandb_knows_a_run_again_that_was_begun_when_its_path_was_its_name(tmp_path, wandb_ids):
    (tmp_path / "wandb").mkdir()
    begin(tmp_path)
    assert wandb_ids == [hashlib.sha256(str(tmp_path).encode()).hexdigest()[:16]]


@pytest.mark.parametrize("content", [b"", b"an id\n", b"\xff"])
def test_a_damaged_wandb_id_is_one_line(content, tmp_path, wandb_ids):
    begin(tmp_path)
    (tmp_path / "wandb-id.txt").write_bytes(content)
    with pytest.raises(UserError, match=r"wandb-id\.txt (holds|cannot be read)"):
        begin(tmp_path)


WANDB = """
import pathlib, sys
from lostcities_jax.trackers import open_tracker

with open_tracker("wandb", pathlib.Path(sys.argv[1]), {"seed": 7}, 0) as sink:
    sink(1, {"loss/critic_last": 0.5, "note": "text"})
    sink(2, {"loss/critic_last": 0.25})
"""


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="wandb is not installed")
def test_wandb_keeps_an_offline_run_in_the_run_folder(tmp_path):
    # Its service is a process of its own, and it changes the one it runs in.
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    subprocess.run([sys.executable, "-c", WANDB, str(tmp_path)], env=environment, check=True)
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert b"loss/critic_last" in file.read_bytes()
