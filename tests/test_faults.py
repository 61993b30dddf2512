"""What happens to runs: nothing written before is lost, and what is wrong is one line."""

import json
import os
import pathlib
import shutil
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from fault_helpers import no_file_longer_than

from benchmarks import faults
from lostcities_jax import checkpoint, checksums, evaluate, run_folder, run_state, train
from lostcities_jax.config import load_config
from lostcities_jax.devices import out_of_memory_named
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.run_evaluation import RunEvaluation
from lostcities_jax.settings import Config
from lostcities_jax.tracking import read_metrics

pytestmark = pytest.mark.usefixtures("quick_compile", "compiled_once")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run never stopped, with a checkpoint of each of its 4 iterations."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "tiny.yaml").write_text(f"iterations: 4\n{faults.CONFIG}")
    arguments = ["--config", str(folder / "tiny.yaml"), "--run-dir", str(folder / "run")]
    arguments += ["--checkpoint.keep", "4"]
    assert run_command(train.main, arguments) == 0
    return folder / "run"


@pytest.fixture
def run(whole, tmp_path):
    """A copy of it, as it was after 3 iterations."""
    run = shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(run / "checkpoints" / "4")
    return run


def resume(run, capsys, code=0):
    """What a resumed run says: its error line, or else its output."""
    assert run_command(train.main, ["--resume", "--run-dir", str(run)]) == code
    said = capsys.readouterr()
    if code:
        assert said.err.startswith("error: ") and said.err.count("\n") == 1
    return said.err if code else said.out


def data_file(checkpoint):
    """The largest file of a checkpoint."""
    files = [path for path in checkpoint.rglob("*") if path.is_file()]
    return max(files, key=lambda path: path.stat().st_size)


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def tree_bytes(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# ---- Killed ----------------------------------------------------------------------------------


def test_killed_at_random_moments_a_run_ends_as_two_that_were_left_alone(tmp_path):
    """In processes of their own; `benchmarks.faults` kills as often as one likes."""
    flags = faults.Flags(kills=2, iterations=30, seconds=1.0, seed=3)
    whole, again, parts = (tmp_path / name for name in ("whole", "again", "parts"))
    for folder in (whole, again):
        faults.finish(folder, flags)
    faults.kill_and_resume(parts, flags)
    assert faults.differences(whole, again) == []
    assert faults.differences(whole, parts) == []
    rows = read_metrics(whole)
    assert len(rows) == 30 and rows[0] != rows[1]


def test_a_difference_in_one_bit_is_found(whole, run, capsys):
    resume(run, capsys)
    assert faults.differences(whole, run) == []
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    changed = lines[1].replace('"memory/strategy_size": ', '"memory/strategy_size": 9')
    (run / "metrics.jsonl").write_text("".join([lines[0], changed, *lines[2:]]))
    assert faults.differences(whole, run) == ["iteration 2: memory/strategy_size"]


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_again(whole, run, capsys):
    shutil.rmtree(run / "checkpoints")
    assert "metrics of 4 iterations and no checkpoint" in resume(run, capsys, code=2)
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text(lines[0] + lines[1][:50])
    assert "training in" in resume(run, capsys)
    assert faults.differences(whole, run) == []


# ---- Damaged ---------------------------------------------------------------------------------


def test_a_damaged_checkpoint_is_named_and_an_older_one_taken(whole, run, capsys):
    flip_a_bit(data_file(run / "checkpoints" / "3"))
    output = resume(run, capsys)
    assert f"checkpoint {run}/checkpoints/3 has a damaged " in output
    assert "kept as 3.damaged, an older one is taken" in output
    assert "resuming after iteration 2" in output
    assert faults.differences(whole, run) == []
    assert (run / "checkpoints" / "3.damaged").is_dir()


def test_a_run_whose_checkpoints_are_all_damaged_is_refused_and_stays_as_it_is(run, capsys):
    for iteration in (1, 2, 3):
        flip_a_bit(data_file(run / "checkpoints" / str(iteration)))
    before = tree_bytes(run / "checkpoints")
    assert "checkpoints/3 has a damaged" in resume(run, capsys, code=2)
    assert tree_bytes(run / "checkpoints") == before


def test_a_damaged_line_of_metrics_is_named_and_nothing_is_changed(run, capsys):
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[1].replace('"', "\x02", 1) + lines[2])
    before = tree_bytes(run / "checkpoints"), path.read_bytes()
    assert "metrics.jsonl line 2 is no JSON object" in resume(run, capsys, code=2)
    assert (tree_bytes(run / "checkpoints"), path.read_bytes()) == before


def test_metrics_that_are_missing_are_counted(run, capsys):
    path = run / "metrics.jsonl"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 4 + 100])  # within the second line
    assert "metrics of 2 iterations up to 3 are missing" in resume(run, capsys)
    assert [row["iteration"] for row in read_metrics(run)] == [1, 4]


# ---- Not written -----------------------------------------------------------------------------


def test_a_disk_without_room_for_a_checkpoint_ends_a_run_in_one_line(whole, run, capsys):
    metrics = (run / "metrics.jsonl").stat().st_size
    assert data_file(run / "checkpoints" / "3").stat().st_size > 2 * metrics
    with no_file_longer_than(2 * metrics):
        error = resume(run, capsys, code=2)
    assert "checkpoints/4 cannot be written: " in error and "File too large" in error
    assert sorted(os.listdir(run / "checkpoints")) == ["1", "2", "3"]
    resume(run, capsys)
    assert faults.differences(whole, run) == []


def test_a_disk_without_room_for_metrics_ends_a_run_in_one_line(whole, run, capsys):
    size = (run / "metrics.jsonl").stat().st_size * 3 // 4
    with no_file_longer_than(size + 100):
        error = resume(run, capsys, code=2)
    assert "metrics.jsonl cannot be written: File too large; checkpoints are kept" in error
    resume(run, capsys)
    assert faults.differences(whole, run) == []


class Slow:
    """Saves only when told to, and remembers what it was given."""

    def __init__(self, monkeypatch):
        self.save = checkpoint.save
        monkeypatch.setattr(checkpoint, "save", self)

    def __call__(self, *args):
        time.sleep(0.3)
        return self.save(*args)


class Halves:
    """A solver whose state is one array; what `Saver` asks of it."""

    @staticmethod
    def split(state):
        return {"policy": state[:5]}, {"rest": state[5:]}


def test_what_is_being_saved_is_not_changed_by_a_donation(tmp_path, monkeypatch):
    Slow(monkeypatch)
    double = jax.jit(lambda state: 2 * state, donate_argnums=0)
    state = jnp.arange(10.0)
    with run_state.Saver(Config(), tmp_path, Halves, print) as saver:
        saver.save(state, 1)
        for _ in range(5):
            state = double(state)
        saver.save(state, 2)
        saver.finish()
        state = double(state)
    template = {"policy": jnp.zeros(5)}
    for iteration, factor in ((1, 1.0), (2, 32.0)):
        path = tmp_path / "checkpoints" / str(iteration)
        policy = checkpoint.restore_policy(path, template)
        np.testing.assert_array_equal(policy["policy"], factor * np.arange(5))


def test_a_run_goes_on_while_its_checkpoint_is_written_and_is_told_if_it_cannot_be(
    tmp_path, monkeypatch
):
    Slow(monkeypatch)
    said = []
    (tmp_path / "checkpoints").write_text("a file where the folder should be")
    with run_state.Saver(Config(), tmp_path, Halves, said.append) as saver:
        saver.save(jnp.arange(10.0), 1)
        assert said == []
        saver.save(jnp.arange(10.0), 2)  # waits for the first, and goes on
        assert len(said) == 1 and "checkpoints/1 cannot be written" in said[0]
        with pytest.raises(UserError, match="checkpoints/2 cannot be written"):
            saver.finish()
        (tmp_path / "checkpoints").unlink()
        saver.save(jnp.arange(10.0), 3)
        saver.finish()
    assert len(said) == 2
    assert checkpoint.latest(tmp_path / "checkpoints") == 3


def test_an_old_checkpoint_that_cannot_be_removed_is_told_as_that_and_ends_nothing(
    tmp_path, monkeypatch
):
    def refuse(path, ignore_errors=False):
        if not ignore_errors:
            raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    said = []
    with run_state.Saver(Config(), tmp_path, Halves, said.append) as saver:
        for iteration in (1, 2, 3):
            saver.save(jnp.arange(10.0), iteration)
        saver.finish()
    assert len(said) == 1 and "old checkpoint" in said[0] and "1 cannot be removed" in said[0]
    assert checkpoint.latest(tmp_path / "checkpoints") == 3


@pytest.fixture
def read_only():
    """A function that makes a folder one that this process may only read, as root too."""
    user = os.geteuid()

    def close(folder):
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        if user == 0:
            os.seteuid(65534)  # the system lets root write anything

    yield close
    os.seteuid(user)


def test_a_run_folder_that_may_only_be_read_is_refused_in_one_line(whole, read_only, capsys):
    with tempfile.TemporaryDirectory() as folder:  # pytest's folders are root's alone
        pathlib.Path(folder).chmod(0o755)
        run = shutil.copytree(whole, pathlib.Path(folder) / "run")
        read_only(run)
        with pytest.raises(UserError, match="cannot be written: Permission denied"):
            run_folder.create(run / "below", load_config(run / "config.yaml"))
        with pytest.raises(UserError, match="cannot be written"), run_folder.locked(run):
            pass
        with pytest.raises(UserError, match="4 cannot be written"):
            checkpoint.save(run / "checkpoints" / "new", 4, {}, {}, checkpoint.read_metadata(run))
        os.seteuid(0 if os.getuid() == 0 else os.geteuid())
        run.chmod(0o755)
        for path in run.rglob("*"):
            path.chmod(0o755)


# ---- Older -----------------------------------------------------------------------------------


def as_before_the_strategy_had_a_place_of_its_own(folder):
    """Makes of a checkpoint one of format 3, which goes on from the strategy it plays."""
    training = folder / "training"
    with ocp.StandardCheckpointer() as checkpointer:
        tree = checkpointer.restore(training)
        shutil.rmtree(training)
        checkpointer.save(training, {name: tree[name] for name in tree if name != "strategy"})
    metadata = folder / "metadata" / "metadata"
    metadata.write_text(json.dumps(json.loads(metadata.read_text()) | {"format_version": 3}))
    (folder / checksums.FILE).unlink()
    checksums.seal(folder)


def test_a_run_goes_on_bit_for_bit_from_a_checkpoint_of_the_format_before(whole, run, capsys):
    as_before_the_strategy_had_a_place_of_its_own(run / "checkpoints" / "3")
    assert "resuming after iteration 3" in resume(run, capsys)
    assert faults.differences(whole, run) == []


# ---- Other ends ------------------------------------------------------------------------------


def test_a_clock_that_goes_back_changes_nothing(whole, run, capsys, monkeypatch):
    started = time.time()
    moments = iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: started - 3600 * next(moments))
    resume(run, capsys)
    assert faults.differences(whole, run) == []


def too_much(*_):
    """Asks the device for more memory than any has."""
    return jnp.zeros((2**40,), jnp.float32).block_until_ready()


def test_a_device_out_of_memory_is_one_line_that_names_what_to_lower(run, capsys, monkeypatch):
    monkeypatch.setattr(RunEvaluation, "measure", too_much)
    error = resume(run, capsys, code=2)
    assert "out of memory" in error and "lower traversal.batch_width" in error
    assert checkpoint.latest(run / "checkpoints") == 3


def test_matches_out_of_memory_are_one_line_that_names_what_to_lower(capsys, monkeypatch):
    monkeypatch.setattr(evaluate, "load_agents", too_much)
    assert run_command(evaluate.main, ["balanced", "--against", "random"]) == 2
    assert "lower --batch-width or --games" in capsys.readouterr().err


def test_only_a_lack_of_memory_is_taken_for_one():
    with pytest.raises(UserError, match=r"memory .*; lower abc;"), out_of_memory_named("abc"):
        raise MemoryError("Unable to allocate 3 TiB")
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"), out_of_memory_named("x"):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")
