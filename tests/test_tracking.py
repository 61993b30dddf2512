"""Promises of the metrics, the log, the environment record and the progress display."""

import importlib.metadata
import io
import json
import os
import subprocess

import jax.numpy as jnp
import numpy as np
import pytest
import rich.console

from lostcities_jax import tracking
from lostcities_jax.errors import UserError
from lostcities_jax.tracking import (
    MetricsWriter,
    Progress,
    RunLog,
    environment_record,
    read_metrics,
)


def write_rows(folder, iterations):
    with MetricsWriter(folder) as writer:
        for iteration in iterations:
            writer.write(iteration, {"loss/advantage": iteration / 2})


def test_every_line_is_a_json_object_and_is_flushed_at_once(tmp_path):
    writer = MetricsWriter(tmp_path)
    writer.write(1, {"loss/advantage": 0.5, "nodes": 7})
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"iteration": 1, "loss/advantage": 0.5, "nodes": 7}
    ]
    writer.close()


def test_no_line_ever_holds_nan_or_infinity(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write(1, {"a": float("nan"), "b": np.float32("inf"), "c": [1.0, -np.inf]})
        writer.write(2, {"a": jnp.float32(jnp.nan), "b": jnp.array([1.0, jnp.nan])})
    assert read_metrics(tmp_path) == [
        {"iteration": 1, "a": None, "b": None, "c": [1.0, None]},
        {"iteration": 2, "a": None, "b": [1.0, None]},
    ]
    assert "NaN" not in (tmp_path / "metrics.jsonl").read_text()


def test_values_may_be_of_any_array_library(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write(1, {"a": np.int64(3), "b": jnp.int32(4), "c": True, "d": "x", "e": None})
    assert read_metrics(tmp_path)[0] == {
        "iteration": 1, "a": 3, "b": 4, "c": True, "d": "x", "e": None
    }  # fmt: skip


def test_a_value_that_is_no_metric_leaves_no_line(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        with pytest.raises(TypeError, match="cannot be a object"):
            writer.write(1, {"a": object()})
        writer.write(2, {})
    assert read_metrics(tmp_path) == [{"iteration": 2}]


def test_a_second_writer_appends(tmp_path):
    write_rows(tmp_path, [1, 2])
    write_rows(tmp_path, [3])
    assert [row["iteration"] for row in read_metrics(tmp_path)] == [1, 2, 3]


def test_a_half_written_line_is_not_read_and_the_next_line_is_whole(tmp_path):
    write_rows(tmp_path, [1])
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"iteration": 2, "lo')
    assert [row["iteration"] for row in read_metrics(tmp_path)] == [1]
    write_rows(tmp_path, [2])
    assert [row["iteration"] for row in read_metrics(tmp_path)] == [1, 2]


def test_truncation_drops_later_iterations_and_a_half_written_line(tmp_path):
    write_rows(tmp_path, [1, 2, 2, 3])
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"iteration": 1')
    with MetricsWriter(tmp_path) as writer:
        writer.truncate_after(2)
        writer.write(3, {"again": 1})
    rows = read_metrics(tmp_path)
    assert [row["iteration"] for row in rows] == [1, 2, 2, 3]
    assert rows[-1] == {"iteration": 3, "again": 1}
    assert os.listdir(tmp_path) == ["metrics.jsonl"]


def test_truncation_leaves_the_kept_bytes_alone(tmp_path):
    write_rows(tmp_path, range(1, 5))
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with MetricsWriter(tmp_path) as writer:
        writer.truncate_after(4)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    with MetricsWriter(tmp_path) as writer:
        writer.truncate_after(0)
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""


def test_metrics_are_found_by_folder_or_file(tmp_path):
    write_rows(tmp_path, [1])
    assert read_metrics(tmp_path) == read_metrics(str(tmp_path / "metrics.jsonl"))


@pytest.mark.parametrize("line", ["{bad", "[1]", "3", "{}", '{"iteration": "1"}', "", "\xff"])
def test_a_damaged_line_is_named(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"iteration": 1}\n' + line.encode("latin-1") + b"\n")
    with pytest.raises(UserError, match=r"metrics\.jsonl line 2 is no JSON object"):
        read_metrics(path)


def test_absent_metrics_are_named(tmp_path):
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_metrics(tmp_path)


def test_the_environment_record_is_json_with_versions_and_machine():
    record = environment_record()
    assert json.loads(json.dumps(record)) == record
    assert record["versions"]["jax"] == importlib.metadata.version("jax")
    assert {"numpy", "flax", "optax", "jaxlib", "orbax-checkpoint"} <= record["versions"].keys()
    assert record["python"] and record["platform"] and record["cpu_count"] >= 1


def test_the_environment_record_needs_no_git(monkeypatch):
    monkeypatch.setenv("PATH", "")
    record = environment_record()
    assert record["git_commit"] is None
    assert record["git_changed"] is False


def test_the_commit_of_a_checkout_around_the_package_is_not_its_own(tmp_path, monkeypatch):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    package = tmp_path / "site" / "tracking.py"
    package.parent.mkdir()
    package.write_text("")
    for command in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    monkeypatch.setattr(tracking, "__file__", str(package))
    assert environment_record()["git_commit"] is None
    subprocess.run(["git", "-C", str(tmp_path), "add", "."], check=True)
    subprocess.run(["git", "-C", str(tmp_path), *identity, "commit", "-qm", "y"], check=True)
    assert len(environment_record()["git_commit"] or "") == 40
    assert environment_record()["git_changed"] is False
    package.write_text("changed")
    assert environment_record()["git_changed"] is True


def test_the_log_writes_to_terminal_and_file(tmp_path):
    terminal = io.StringIO()
    with RunLog(tmp_path, rich.console.Console(file=terminal, width=20)) as log:
        log.write("[bold]a line that is longer than the terminal is wide: 3 :smile:")
        log.write_file("for the file")
        lines = log_lines(tmp_path)
    text = "[bold]a line that is longer than the terminal is wide: 3 :smile:"
    assert terminal.getvalue() == text + "\n"
    assert lines == [text, "for the file"]


def test_a_resumed_run_goes_on_with_its_log(tmp_path):
    for text in ("one", "two"):
        with RunLog(tmp_path, rich.console.Console(file=io.StringIO())) as log:
            log.write(text)
    assert log_lines(tmp_path) == ["one", "two"]


def run_progress(folder, console, iterations=3, done=0):
    with RunLog(folder, console) as log, Progress(log, iterations, done) as progress:
        for _ in range(done, iterations):
            for name in ("traverse", "learn"):
                progress.phase(name)
            progress.advance(nodes_per_second=81234.5)
        log.write("end")
    return log_lines(folder)


def log_lines(folder):
    """Lines of the log file without their times."""
    lines = (folder / "train.log").read_text().splitlines()
    return [line.partition(" ")[2] for line in lines]


def test_progress_off_a_terminal_is_a_plain_line_an_iteration(tmp_path):
    terminal = io.StringIO()
    lines = run_progress(tmp_path, rich.console.Console(file=terminal))
    assert terminal.getvalue().splitlines() == lines
    assert lines[:2] == ["iteration 1/3: traverse", "iteration 1/3: learn"]
    assert lines[2].startswith("iteration 1/3: 81,234 nodes/s, elapsed 0:00:00, left 0:00:0")
    assert [line.split(":")[0] for line in lines[3:]] == ["iteration 2/3", "iteration 3/3", "end"]


def test_progress_on_a_terminal_keeps_its_lines_to_the_log_file(tmp_path):
    terminal = io.StringIO()
    console = rich.console.Console(file=terminal, force_terminal=True, width=100, _environ={})
    lines = run_progress(tmp_path, console)
    assert [line.split(":")[0] for line in lines[2:]] == [
        "iteration 1/3", "iteration 2/3", "iteration 3/3", "end"
    ]  # fmt: skip
    assert "iteration 1/3" not in terminal.getvalue()
    assert "end" in terminal.getvalue()
    assert "3/3" in terminal.getvalue() and "nodes/s" in terminal.getvalue()


def test_progress_of_a_resumed_run_starts_where_it_left_off(tmp_path):
    lines = run_progress(tmp_path, rich.console.Console(file=io.StringIO()), 5, done=3)
    assert lines[0] == "iteration 4/5: traverse"
    assert [line.split(":")[0] for line in lines[2:]] == ["iteration 4/5", "iteration 5/5", "end"]
