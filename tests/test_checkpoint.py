"""Promises of checkpoints: exact, atomic, and refused in one line where they do not fit."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
import typing

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from fault_helpers import no_file_longer_than

from lostcities_jax import checksums
from lostcities_jax.checkpoint import (
    FORMAT_VERSION,
    Metadata,
    check_compatible,
    latest,
    prune,
    read_metadata,
    resolve,
    restore_policy,
    restore_training,
    save,
    set_aside,
)
from lostcities_jax.errors import UserError
from lostcities_jax.rules import CLASSIC, MINI


class Memory(typing.NamedTuple):
    rows: jax.Array
    count: jax.Array
    nothing: None = None


@flax.struct.dataclass
class Learner:
    memory: Memory
    optimizer: optax.OptState
    empty: tuple = ()


@dataclasses.dataclass(frozen=True)
class Network:
    kind: str = "mlp"
    hidden: int = 4


METADATA = Metadata(rules=MINI, network=dataclasses.asdict(Network()))


def policy_of(value=0.5):
    return {
        "params": {
            "Dense_0": {"kernel": jnp.full((3, 4), value, jnp.float32), "bias": jnp.zeros(4)}
        }
    }


def training_of(value=0.5):
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    memory = Memory(jnp.arange(6, dtype=jnp.uint8).reshape(2, 3), jnp.int32(3))
    return {
        "learners": [Learner(memory, optimizer.init(policy_of(value))) for _ in range(2)],
        "key": jax.random.key_data(jax.random.key(7)),
        "half": jnp.full((2,), value, jnp.bfloat16),
        "host": np.arange(3, dtype=np.int64),
        "flag": jnp.array(True),
    }


def save_run(run, *iterations, keep=2, metadata=METADATA):
    for iteration in iterations:
        trees = jax.tree.map(np.array, (policy_of(iteration), training_of()))  # as a run has them
        save(run / "checkpoints", iteration, *trees, metadata)
        prune(run / "checkpoints", keep)
    return run / "checkpoints"


@pytest.fixture(scope="module")
def shared_run(tmp_path_factory):
    """A run with one checkpoint, for tests that only read it."""
    run = tmp_path_factory.mktemp("run")
    save_run(run, 3)
    return run


@pytest.fixture
def run(shared_run, tmp_path):
    """A copy of that run, for tests that damage it."""
    return shutil.copytree(shared_run, tmp_path / "run")


def assert_same(have, want):
    assert jax.tree.structure(have) == jax.tree.structure(want)
    for left, right in zip(jax.tree.leaves(have), jax.tree.leaves(want), strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


def error_of(call, *args):
    """Text of the UserError of a call, which must be one line."""
    with pytest.raises(UserError) as caught:
        call(*args)
    text = str(caught.value)
    assert text and len(text.splitlines()) == 1
    assert len(text) < 600
    return text


def test_a_checkpoint_gives_back_every_bit(shared_run):
    assert_same(restore_policy(shared_run, policy_of()), policy_of(3))
    assert_same(restore_training(shared_run, training_of(0.0)), training_of())


def test_a_template_needs_no_values_and_no_sharding(shared_run):
    template = jax.eval_shape(policy_of)
    assert_same(restore_policy(shared_run, template), policy_of(3))


def test_a_sharded_array_keeps_its_sharding(tmp_path):
    mesh = jax.make_mesh((len(jax.devices()),), ("lane",), (jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("lane"))
    rows = jax.device_put(jnp.arange(4.0 * len(jax.devices())), sharding)
    save(tmp_path, 1, {"rows": rows}, training_of(), METADATA)
    assert restore_policy(tmp_path, {"rows": rows})["rows"].sharding == sharding
    on_one = restore_policy(tmp_path, {"rows": jax.ShapeDtypeStruct(rows.shape, rows.dtype)})
    assert len(on_one["rows"].devices()) == 1
    np.testing.assert_array_equal(on_one["rows"], rows)


def test_metadata_says_what_a_checkpoint_is_for(shared_run):
    metadata = read_metadata(shared_run)
    assert metadata == dataclasses.replace(METADATA, iteration=3)
    assert metadata.format_version == FORMAT_VERSION
    assert metadata.package_version


def test_only_the_newest_are_kept(tmp_path):
    folder = save_run(tmp_path, 1, 9, 10, 11, keep=2)
    assert sorted(os.listdir(folder)) == ["10", "11"]
    assert latest(folder) == 11


def test_retention_leaves_foreign_files_and_folders_alone(tmp_path):
    folder = save_run(tmp_path, 1)
    for name in ("99", "notes", "00"):
        (folder / name).mkdir()
    (folder / "98").write_text("mine")
    save_run(tmp_path, 2, 3, keep=1)
    assert sorted(os.listdir(folder)) == ["00", "3", "98", "99", "notes"]
    assert latest(folder) == 3


def test_what_a_killed_save_leaves_is_no_checkpoint_and_goes_with_the_next_save(tmp_path):
    script = (
        "import os, pathlib, sys\n"
        "import jax.numpy as jnp\n"
        "from lostcities_jax import checkpoint\n"
        "from lostcities_jax.rules import MINI\n"
        "from orbax.checkpoint import JsonCheckpointHandler\n"
        "JsonCheckpointHandler.finalize = lambda *_: os._exit(9)\n"
        "JsonCheckpointHandler.async_save = lambda *_, **__: os._exit(9)\n"
        "data = {'a': jnp.ones(3)}\n"
        "checkpoint.save(sys.argv[1], 7, data, data, checkpoint.Metadata(MINI, {}))\n"
    )
    folder = save_run(tmp_path, 6)
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    killed = subprocess.run([sys.executable, "-c", script, str(folder)], env=environment)
    assert killed.returncode == 9
    assert len(os.listdir(folder)) == 2
    assert latest(folder) == 6
    assert resolve(tmp_path) == folder / "6"
    save_run(tmp_path, 7)
    assert sorted(os.listdir(folder)) == ["6", "7"]


def test_a_checkpoint_and_its_name_are_on_the_disk_when_a_save_returns(tmp_path, monkeypatch):
    synced, sync = [], os.fsync

    def record(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    folder = save_run(tmp_path, 5)
    assert synced[-1] == str(folder)
    inside = {path.relative_to(folder / "5").as_posix() for path in (folder / "5").rglob("*")}
    assert len(inside) > 8
    assert {f"{folder}/5.partial/{name}" for name in inside} <= set(synced)


def test_an_old_checkpoint_that_cannot_be_removed_is_told_as_that_and_no_obstacle(
    tmp_path, monkeypatch
):
    folder, remove = save_run(tmp_path, 1, 2), shutil.rmtree

    def refuse(path, ignore_errors=False, **rest):
        if path.name.startswith("1") and not ignore_errors:
            raise PermissionError(13, "Permission denied", str(path))
        if not path.name.startswith("1"):
            remove(path, ignore_errors, **rest)

    monkeypatch.setattr(shutil, "rmtree", refuse)
    message = error_of(save_run, tmp_path, 3, 4)
    assert f"old checkpoint {folder}/1 cannot be removed: " in message
    assert "Permission denied" in message
    assert latest(folder) == 3
    save_run(tmp_path, 4)
    assert sorted(os.listdir(folder)) == ["1.partial", "3", "4"]


def test_no_checkpoint_is_overwritten(tmp_path):
    save_run(tmp_path, 1)
    assert "allowed: an iteration without one" in error_of(save_run, tmp_path, 1)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "checkpoints").write_text("a file")
    assert "cannot be written" in error_of(save_run, tmp_path, 1)


def test_latest_of_nothing_is_none(tmp_path):
    assert latest(tmp_path) is None
    assert latest(tmp_path / "absent") is None


def test_a_run_its_folder_and_a_checkpoint_all_resolve(tmp_path, monkeypatch):
    folder = save_run(tmp_path, 1, 2)
    assert resolve(tmp_path) == resolve(folder) == resolve(str(folder / "2")) == folder / "2"
    assert resolve(folder / "1") == folder / "1"
    monkeypatch.chdir(tmp_path)
    assert resolve("checkpoints/1") == folder / "1"
    assert read_metadata(folder / "1").iteration == 1


@pytest.mark.parametrize("call", [resolve, read_metadata])
def test_a_path_without_a_checkpoint_is_named(tmp_path, call):
    assert "does not exist; allowed: a run folder" in error_of(call, tmp_path / "absent")
    (tmp_path / "file").write_text("x")
    assert "holds no checkpoint" in error_of(call, tmp_path / "file")
    (tmp_path / "checkpoints" / "5").mkdir(parents=True)
    assert "holds no checkpoint" in error_of(call, tmp_path)
    assert "holds no checkpoint" in error_of(call, tmp_path / "checkpoints" / "5")


@pytest.mark.parametrize(
    "change",
    [
        {"rules": {"colors": 99}},
        {"rules": {"shoes": 1}},
        {"rules": 3},
        {"network": 3},
        {"iteration": "x"},
        {"surprise": 1},
    ],
)
def test_metadata_with_other_content_is_damaged(run, change):
    path = run / "checkpoints" / "3" / "metadata" / "metadata"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert "has damaged metadata" in error_of(read_metadata, run)


@pytest.mark.parametrize("content", [b"", b"{bad", b"\xff\xfe", b"[1]", b"3", b"{}", b"[" * 9999])
def test_metadata_that_is_no_record_is_damaged(run, content):
    (run / "checkpoints" / "3" / "metadata" / "metadata").write_bytes(content)
    assert "has damaged metadata" in error_of(read_metadata, run)


def test_metadata_without_its_file_is_damaged(run):
    (run / "checkpoints" / "3" / "metadata" / "metadata").unlink()
    assert "has damaged metadata" in error_of(read_metadata, run)


def test_another_format_version_is_refused_whatever_else_it_holds(run):
    path = run / "checkpoints" / "3" / "metadata" / "metadata"
    path.write_text(json.dumps({"format_version": FORMAT_VERSION + 1, "new": "field"}))
    expected = f"has format version {FORMAT_VERSION + 1}; allowed: 2 to {FORMAT_VERSION}"
    assert expected in error_of(read_metadata, run)


def test_other_rules_or_another_network_are_named_with_both_values():
    check_compatible(METADATA, MINI, Network())
    check_compatible(METADATA, MINI, dataclasses.asdict(Network()))
    message = error_of(check_compatible, METADATA, CLASSIC, Network(hidden=8))
    assert "rules.colors is 2 there but 5 here" in message
    assert "rules.hand is 2 there but 8 here" in message
    assert "network.hidden is 4 there but 8 here" in message
    assert "network.kind" not in message
    extra = dataclasses.replace(METADATA, network={"kind": "mlp", "hidden": 4, "heads": 2})
    assert "network.heads is 2 there but None here" in error_of(
        check_compatible, extra, MINI, Network()
    )


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"bias": jnp.zeros(5)}, "Dense_0.bias is float32[4] there but float32[5] here"),
        ({"bias": jnp.zeros(4, int)}, "Dense_0.bias is float32[4] there but int32[4] here"),
        ({"scale": jnp.zeros(4)}, "Dense_0.scale is absent there but float32[4] here"),
        ({"kernel": None}, "Dense_0.kernel is float32[3, 4] there but absent here"),
    ],
)
def test_a_policy_that_does_not_fit_is_named_by_its_array(shared_run, change, part):
    template = policy_of()
    template["params"]["Dense_0"] |= change
    assert part in error_of(restore_policy, shared_run, template)


def test_training_that_does_not_fit_is_named_by_its_array(shared_run):
    template = training_of()
    template["learners"][1] = template["learners"][1].replace(
        memory=Memory(jnp.zeros((9, 3), jnp.uint8), jnp.int32(0))
    )
    message = error_of(restore_training, shared_run, template)
    assert "learners.1.memory.rows is uint8[2, 3] there but uint8[9, 3] here" in message


@pytest.mark.parametrize("damage", ["truncate", "remove", "metadata", "no metadata", "folder"])
def test_a_damaged_policy_is_refused(run, damage):
    policy = run / "checkpoints" / "3" / "policy"
    for path in [path for path in policy.rglob("*") if path.is_file()]:
        if damage == "truncate" and path.parent.name == "d":
            path.write_bytes(path.read_bytes()[:10])
        if damage == "remove" and path.parent.name == "d":
            path.unlink()
        if damage == "metadata" and path.name == "_METADATA":
            path.write_text("{")
        if damage == "no metadata" and path.name == "_METADATA":
            path.unlink()
    if damage == "folder":
        shutil.rmtree(policy)
        policy.mkdir()
    assert "has a damaged policy" in error_of(restore_policy, run, policy_of())


def test_damage_to_any_file_of_a_checkpoint_is_noticed(run):
    checkpoint = run / "checkpoints" / "3"
    files = [path for path in sorted(checkpoint.rglob("*")) if path.is_file()]
    assert len(files) > 8
    for number, file in enumerate(files):
        content = file.read_bytes()
        changed = bytearray(content)
        changed[number * 37 % len(content)] ^= 1 << number % 8
        for damage in (bytes(changed), content[:-1], None):
            file.unlink() if damage is None else file.write_bytes(damage)
            with pytest.raises((ValueError, OSError)):
                for part in ("metadata", "policy", "training"):
                    checksums.check(checkpoint, part)
        with pytest.raises(UserError, match="damaged"):  # the file is gone
            read_metadata(run)
            restore_policy(run, policy_of())
            restore_training(run, training_of())
        file.write_bytes(content)
    restore_training(run, training_of())


def test_a_checkpoint_of_the_version_without_checksums_is_read(run):
    checkpoint = run / "checkpoints" / "3"
    (checkpoint / "checksums.json").unlink()
    assert "damaged" in error_of(read_metadata, run)
    path = checkpoint / "metadata" / "metadata"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format_version": 2}))
    assert_same(restore_policy(run, policy_of()), policy_of(3))


def test_a_damaged_checkpoint_set_aside_is_no_checkpoint_and_stays(run):
    folder = run / "checkpoints"
    assert set_aside(folder / "3") == folder / "3.damaged"
    assert latest(folder) is None
    save_run(run, 3, 4, keep=1)
    assert sorted(os.listdir(folder)) == ["3.damaged", "4"]


@pytest.mark.parametrize("size", [0, 50, 1000])
def test_a_save_that_the_disk_has_no_room_for_leaves_nothing_and_earlier_ones_whole(
    run, size, capfd
):
    with no_file_longer_than(size):
        message = error_of(save_run, run, 4)
    assert "4 cannot be written" in message
    assert os.listdir(run / "checkpoints") == ["3"]
    assert_same(restore_policy(run, policy_of()), policy_of(3))
    assert capfd.readouterr() == ("", "")


def test_a_failed_save_says_why_in_one_line_whatever_else_it_was_writing(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    arrays = {str(index): np.random.default_rng(index).random(20_000) for index in range(60)}
    folder = tmp_path / ("a long name " * 10)
    with no_file_longer_than(3000):
        message = error_of(save, folder, 1, arrays, arrays, METADATA)
    assert f"{folder}/1 cannot be written: " in message and "File too large" in message
    time.sleep(0.5)
    assert told == []


def test_saving_and_restoring_write_nothing_to_the_terminal(tmp_path, capfd):
    save_run(tmp_path, 1, 2, 3)
    restore_policy(tmp_path, policy_of())
    read_metadata(tmp_path)
    (tmp_path / "checkpoints" / "3" / "policy" / "_METADATA").unlink()
    error_of(restore_policy, tmp_path, policy_of())
    assert capfd.readouterr() == ("", "")
