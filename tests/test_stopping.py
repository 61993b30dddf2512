"""Runs that are asked to stop: by signals, by the clock, and by each other."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from benchmarks import faults
from lostcities_jax import assembly, checkpoint, run_folder, run_state, train
from lostcities_jax.devices import select_machine
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.evaluation.loading import load_checkpoint
from lostcities_jax.stopping import StopRequest
from lostcities_jax.tracking import read_metrics

pytestmark = pytest.mark.usefixtures("quick_compile", "compiled_once")

TINY = """
iterations: 60
solver: policy_gradient
devices: cpu:1
game: kuhn
network: {kind: mlp, hidden: 8, layers: 1}
traversal: {batch_width: 8, traversals: 16}
memory: {advantage_capacity: 300}
learner: {batch_size: 32}
gradient: {steps: 2}
critic: {steps: 2, capacity: 300}
evaluation: {every: 0}
checkpoint: {every: 25, keep: 10}
"""


AVERAGING = """
iterations: 4
devices: cpu:1
game: kuhn
network: {kind: mlp, hidden: 8, layers: 1}
traversal: {batch_width: 8, traversals: 16, estimator: outcome}
memory: {advantage_capacity: 300, strategy_capacity: 300}
learner: {batch_size: 32, advantage_steps: 5, strategy_steps: 5, accumulation: reservoir}
evaluation: {every: 0}
checkpoint: {every: 100}
"""


def arguments(folder, *more):
    (folder / "tiny.yaml").write_text(TINY)
    return ["--config", str(folder / "tiny.yaml"), "--run-dir", str(folder / "run"), *more]


def start(argv, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "lostcities_jax.train", *argv],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(path, text):
    for _ in range(1200):
        if path.exists() and text in path.read_text():
            return
        time.sleep(0.1)
    raise AssertionError(f"no {text!r} in {path}")


def test_a_signal_saves_the_iteration_and_the_run_goes_on_as_if_never_stopped(tmp_path, capsys):
    """Stopped by SIGTERM in the first iterations and resumed; the other runs straight through."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    process = start(arguments(parts))
    wait_for(parts / "run" / "train.log", "iteration 2/60")
    process.send_signal(signal.SIGTERM)
    output, error = process.communicate(timeout=120)
    assert (process.returncode, error) == (0, "")
    assert "stopping after this iteration" in output
    command = output.strip().splitlines()[-1]
    assert "--resume --run-dir" in command
    stopped = checkpoint.latest(parts / "run" / "checkpoints")
    assert stopped is not None and 2 <= stopped < 60
    assert read_metrics(parts / "run")[-1]["iteration"] == stopped
    assert run_command(train.main, command.split("lostcities_jax.train ")[1].split()) == 0
    assert run_command(train.main, arguments(whole)) == 0
    capsys.readouterr()
    for left, right in zip(read_metrics(parts / "run"), read_metrics(whole / "run"), strict=True):
        for key in left.keys() | right.keys():
            if not key.startswith("time/") and not key.endswith("_per_second"):
                np.testing.assert_array_equal(left[key], right[key], key)


class StopsAfterTwo:
    """Somebody who asks a run to stop while it is in its second iteration."""

    def __init__(self, *_):
        self.asked = 0

    def __call__(self):
        self.asked += 1
        return self.asked == 2

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def test_a_stopped_run_plays_the_average_so_far_and_goes_on_as_if_never_stopped(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "averaging.yaml").write_text(AVERAGING)
    argv = ["--config", str(tmp_path / "averaging.yaml"), "--run-dir"]
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    with monkeypatch.context() as patch:
        patch.setattr(train, "StopRequest", StopsAfterTwo)
        assert run_command(train.main, [*argv, str(stopped)]) == 0
    assert "stopped after iteration 2" in capsys.readouterr().out
    config = run_folder.reopen(stopped)
    solver = assembly.assemble(config, select_machine(config.devices, "same")).solver
    state, _ = run_state.restore(config, checkpoint.resolve(stopped), solver)
    raw = jax.tree.map(np.array, state.strategy.params)
    fitted = solver.prepare(state, 2, lambda *_: contextlib.nullcontext())[0].strategy.params
    played = load_checkpoint(str(stopped))[1]["strategy"]
    for one, other, before in zip(*map(jax.tree.leaves, (played, fitted, raw)), strict=True):
        np.testing.assert_array_equal(one, other)
        assert (np.asarray(one) != before).any()
    assert run_command(train.main, ["--resume", "--run-dir", str(stopped)]) == 0
    assert run_command(train.main, [*argv, str(whole)]) == 0
    assert faults.differences(whole, stopped) == []


def test_the_second_signal_ends_a_run_at_once(tmp_path):
    """Even while it compiles, when a Python handler would have to wait."""
    process = start(arguments(tmp_path), JAX_ENABLE_COMPILATION_CACHE="false")
    wait_for(tmp_path / "run" / "train.log", "compiling")
    process.send_signal(signal.SIGINT)
    wait_for(tmp_path / "run" / "train.log", "stopping after this iteration")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert process.returncode == 130


def test_a_run_stops_when_its_minutes_are_over(tmp_path, capsys):
    assert run_command(train.main, arguments(tmp_path, "--max-minutes", "0.0001")) == 0
    assert "stopped after iteration 1;" in capsys.readouterr().out
    assert checkpoint.latest(tmp_path / "run" / "checkpoints") == 1


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "inf", "true"])
def test_minutes_must_be_a_number_above_zero(text, capsys):
    assert run_command(train.main, ["--max-minutes", text]) == 2
    assert "--max-minutes is" in capsys.readouterr().err


def test_a_run_folder_has_one_writer_at_a_time(tmp_path):
    with run_folder.locked(tmp_path):
        message = f"being written by process '{os.getpid()}'"
        with pytest.raises(UserError, match=message), run_folder.locked(tmp_path):
            pass
    with run_folder.locked(tmp_path):
        pass


def test_handlers_of_signals_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest(None, print) as should_stop:
        assert not should_stop()
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_lock_that_cannot_be_written_is_one_line(tmp_path):
    absent = pathlib.Path(tmp_path / "none")
    with pytest.raises(UserError, match="cannot be written"), run_folder.locked(absent):
        pass


@pytest.mark.slow
def test_a_profile_holds_one_iteration_with_its_phases_and_scopes(tmp_path, capsys):
    folder = tmp_path / "run"
    argv = arguments(tmp_path, "--profile", "--iterations", "3")
    assert run_command(train.main, argv) == 0
    capsys.readouterr()
    traces = list((folder / "profile").rglob("*.xplane.pb"))
    assert len(traces) == 1
    trace = traces[0].read_bytes()
    for phase in (b"traversal", b"memory", b"train"):
        assert phase in trace
