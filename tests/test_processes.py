"""Several processes that share a run: the samples of one, one network, and one run folder."""

import os
import pathlib
import shutil
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.experimental import multihost_utils

from lostcities_jax import processes, train
from lostcities_jax.errors import run_command
from lostcities_jax.tracking import read_metrics

REPOSITORY = pathlib.Path(__file__).parents[1]
SHARED = """
iterations: 2
devices: cpu:1
game: kuhn
network: {kind: mlp, hidden: 8, layers: 1}
traversal: {batch_width: 4, traversals: 11}
memory: {advantage_capacity: 400, strategy_capacity: 400}
learner: {batch_size: 32, advantage_steps: 5, strategy_steps: 5}
critic: {steps: 5, capacity: 400}
evaluation: {every: 0}
checkpoint: {every: 1, keep: 2}
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Run folders of one process on two devices, and of two processes on one each."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "shared.yaml").write_text(SHARED)
    base = ["--config", str(folder / "shared.yaml")]
    alone = folder / "alone"
    assert run_command(train.main, [*base, "--devices", "cpu:2", "--run-dir", str(alone)]) == 0
    arguments = [*base, "--run-dir", str(folder / "both")]
    for code, output in together(arguments):
        assert code == 0, output
    return alone, folder / "both"


def together(arguments):
    """Exit codes and outputs of two processes of the train command."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "lostcities_jax.train", *arguments]
    command += ["--coordinator", f"localhost:{port}", "--num-processes", "2"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    running = [
        subprocess.Popen(
            [*command, "--process-id", str(process)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for process in (0, 1)
    ]
    try:
        outputs = [process.communicate(timeout=240)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    return [(process.returncode, output) for process, output in zip(running, outputs, strict=True)]


def saved(folder, item, iteration=2):
    import orbax.checkpoint as ocp

    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore((folder / "checkpoints" / str(iteration) / item).absolute())


def first_samples(training):
    """The strategy samples of the first batch, when all networks are new, as rows."""
    memory = training["strategy_memory"]
    samples, seen = jax.tree.map(np.asarray, (memory["samples"], memory["seen"]))
    rows = np.concatenate(
        [samples[name].astype(np.float64) for name in ("info", "legal", "target")], axis=-1
    )
    return rows[: seen[0]][samples["iteration"][: seen[0]] == 1]


def test_two_processes_have_the_samples_of_one_with_the_same_lanes(folders):
    alone, both = (saved(folder, "training") for folder in folders)
    parts = [first_samples(training) for training in both["processes"]]
    assert all(len(part) for part in parts)
    # Process by process is traversal by traversal, so even the order is the same.
    np.testing.assert_array_equal(np.concatenate(parts), first_samples(alone))


def test_processes_that_fit_together_have_the_same_networks_and_optimisers(folders):
    first, second = saved(folders[1], "training")["processes"]
    for name in ("policy_optimizer", "critic", "strategy_optimizer"):
        left, right = jax.tree.leaves(first[name]), jax.tree.leaves(second[name])
        assert any(np.asarray(leaf).any() for leaf in left)
        for one, other in zip(left, right, strict=True):
            np.testing.assert_array_equal(one, other)


def test_the_metrics_of_every_process_count_the_traversals_of_all(folders):
    alone, both = folders
    alone, first, second = map(read_metrics, (alone, both, both.with_name("both-process-1")))
    assert [row["iteration"] for row in first] == [1, 2]
    for one, other in zip(first, second, strict=True):
        assert one["traversal/nodes"] == other["traversal/nodes"]
        assert sum(one["traversal/depth_histogram"]) == 11
        assert one["loss/policy_last"] == other["loss/policy_last"]
    assert first[0]["traversal/nodes"] == alone[0]["traversal/nodes"]
    seen = [rows[0]["memory/policy_seen"] for rows in (first, second, alone)]
    assert seen[0] + seen[1] == seen[2]


@pytest.mark.slow
def test_a_shared_run_resumes_bit_for_bit(folders, tmp_path):
    both, again = folders[1], tmp_path / "again"
    for suffix in ("", "-process-1"):
        shutil.copytree(both.with_name(both.name + suffix), again.with_name(again.name + suffix))
    shutil.rmtree(again / "checkpoints" / "2")
    for code, output in together(["--resume", "--run-dir", str(again)]):
        assert code == 0, output
    for item in ("policy", "training"):
        left, right = (jax.tree.leaves(saved(folder, item)) for folder in (both, again))
        for one, other in zip(left, right, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("process", [0, 1])
def test_what_is_large_is_gathered_in_blocks_and_kept_by_the_first_process_alone(
    process, monkeypatch
):
    """The other of two processes holds the same arrays plus 1; what passes by is recorded."""
    tree = {
        "a": np.arange(50, dtype=np.int64).reshape(10, 5) << 40,
        "b": np.array(3, np.uint32),
        "c": np.zeros((0, 2), bool),
        "d": np.array([0.5, 2.0], jax.numpy.bfloat16),
    }
    trees = [tree, jax.tree.map(lambda leaf: (leaf + 1).astype(leaf.dtype), tree)]
    streams = [b"".join(leaf.tobytes() for leaf in jax.tree.leaves(one)) for one in trees]
    sizes = []

    def gather(block):
        start = sum(sizes)
        sizes.append(block.nbytes)
        parts = [np.frombuffer(stream, np.uint8)[start : sum(sizes)] for stream in streams]
        np.testing.assert_array_equal(block, parts[process])
        return np.stack(parts)

    monkeypatch.setattr(processes, "_BLOCK", 64)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(jax, "process_index", lambda: process)
    monkeypatch.setattr(multihost_utils, "process_allgather", gather)
    gathered = processes.gathered_by_first(trees[process])
    assert max(sizes) == 64 and sum(sizes) == len(streams[0])
    assert len(gathered) == (2 if process == 0 else 0)
    for ours, theirs in zip(gathered, trees, strict=process == 0):
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)
        assert jax.tree.map(lambda leaf: leaf.dtype, ours) == jax.tree.map(
            lambda leaf: leaf.dtype, theirs
        )


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("--coordinator localhost:1", "--num-processes is missing"),
        ("--coordinator here --num-processes 2 --process-id 0", "--coordinator is 'here'"),
        ("--coordinator a:1 --num-processes 1 --process-id 0", "--num-processes is 1"),
        ("--coordinator a:1 --num-processes 2 --process-id 2", "--process-id is 2"),
        ("--distributed", "--run-dir is missing"),
    ],
)
def test_flags_of_processes_that_cannot_be_are_one_line(flags, named, capsys):
    assert run_command(train.main, flags.split()) == 2
    error = capsys.readouterr().err
    assert named in error and "allowed" in error and error.count("\n") == 1
