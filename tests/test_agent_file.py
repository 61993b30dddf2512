"""Agent files: the same play as the checkpoint, and one clear line for whatever is no such file."""

import concurrent.futures
import dataclasses
import gc
import json
import pathlib
import shutil
import time
import zipfile

import jax
import numpy as np
import pytest

from lostcities_jax import checkpoint, export
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.evaluation import agent_file
from lostcities_jax.evaluation.loading import load_agents, load_checkpoint, load_policy
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.networks import make_network
from lostcities_jax.rules import CLASSIC, MINI

pytestmark = pytest.mark.usefixtures("quick_compile")

NETWORK = {"kind": "mlp", "hidden": 8, "layers": 1}
METADATA = checkpoint.Metadata(
    rules=MINI, network=NETWORK, iteration=7, advantage_networks=1, plays="current"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder whose checkpoint has a policy of random numbers."""
    folder = tmp_path_factory.mktemp("run")
    network = make_network(lost_cities(MINI), **NETWORK)

    def random(seed):
        params = network.init(jax.random.key(seed))
        return jax.tree.map(
            lambda leaf: jax.random.normal(jax.random.key(leaf.size + seed), leaf.shape), params
        )

    policy = {"strategy": random(0), "advantage": [random(1)]}
    checkpoint.save(folder / "checkpoints", 7, policy, {"nothing": np.zeros(1)}, METADATA)
    (folder / "config.yaml").write_text("seed: 3\n")
    return folder


@pytest.fixture
def file(run, tmp_path, capsys):
    path = tmp_path / "agent.npz"
    assert run_command(export.main, [str(run), "--out", str(path)]) == 0
    assert "after iteration 7" in capsys.readouterr().out
    return path


def test_an_exported_agent_plays_as_its_checkpoint(run, file):
    game = lost_cities(MINI)
    states = jax.vmap(game.deal)(jax.random.split(jax.random.key(0), 16))
    info = jax.vmap(lambda state: game.observe(state, 0))(states)
    legal = jax.vmap(lambda state: game.legal(state, 0))(states)
    for policy in ("average", "current", None):
        ours, theirs = (load_policy(str(name), policy) for name in (file, run))
        for one, other in zip(ours.params, theirs.params, strict=True):
            np.testing.assert_array_equal(
                ours.policy(one, info, legal, 0), theirs.policy(other, info, legal, 0)
            )
    rules, (agent,) = load_agents([str(file)], None, None)
    assert rules == MINI and agent.name == str(file)


def test_an_agent_file_says_what_it_is_and_what_made_it(file):
    assert agent_file.read_metadata(file) == METADATA
    with np.load(file, allow_pickle=False) as archive:
        assert str(archive["config"]) == "seed: 3\n"


def test_a_file_that_exists_is_not_overwritten(run, file, capsys):
    before = file.read_bytes()
    assert run_command(export.main, [str(run), "--out", str(file)]) == 2
    assert "allowed: a new one that ends in .npz" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_the_mean_of_agents_has_the_mean_of_their_weights(run, file, tmp_path, capsys):
    metadata, policy = load_checkpoint(str(run))
    other = jax.tree.map(lambda leaf: leaf + 3, policy)
    agent_file.write(tmp_path / "other.npz", other, metadata, config="")
    names = [str(run), str(file), str(tmp_path / "other.npz")]
    assert run_command(export.main, [*names, "--out", str(tmp_path / "mean.npz")]) == 0
    assert load_checkpoint(str(tmp_path / "mean.npz"))[0] == METADATA
    mean = load_checkpoint(str(tmp_path / "mean.npz"))[1]
    jax.tree.map(
        lambda leaf, whole: np.testing.assert_allclose(leaf, whole + 1, rtol=1e-5), mean, policy
    )
    for name, words in (("shipped", "another rules than"), ("noisy", "'noisy', a bot; allowed")):
        arguments = [str(run), name, "--out", str(tmp_path / "no.npz")]
        assert run_command(export.main, arguments) == 2
        error = capsys.readouterr().err
        assert words in error and error.count("\n") == 1
        assert not (tmp_path / "no.npz").exists()


def rewritten(file, **changed):
    """The file with some arrays replaced, added or (None) left out."""
    with np.load(file, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files} | changed
    with open(file, "wb") as out:
        np.savez(out, **{name: array for name, array in arrays.items() if array is not None})


HEAD = "advantage/0/card_head/bias"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({HEAD: np.zeros(3, np.float32)}, [HEAD, "float32[3]", "float32[4]"]),
        ({HEAD: np.zeros(4, np.float64)}, ["float64[4]"]),
        ({HEAD: None}, ["damaged", "KeyError"]),
        ({HEAD: np.array([print] * 4, object)}, ["damaged", "ValueError"]),
        ({"other": np.zeros(1)}, ["unknown array 'other'"]),
        ({"metadata": np.array("{")}, ["damaged"]),
        ({"metadata": np.array("[" * 100_000)}, ["damaged"]),
        ({"metadata": np.array('{"format_version": 1}')}, ["format version 1; allowed: 2 to 4"]),
        ({"metadata": np.array('{"format_version": 2}')}, ["damaged metadata"]),
    ],
)
def test_what_does_not_fit_is_one_line(file, changed, words):
    rewritten(file, **changed)
    with pytest.raises(UserError) as error:
        load_checkpoint(str(file))
    for word in words:
        assert word in str(error.value)


@pytest.fixture
def collecting_garbage():
    """The size of a collection as a setting, given back after the test."""
    threshold = gc.get_threshold()
    yield lambda allocations: gc.set_threshold(allocations, 1000, 1000)
    gc.set_threshold(*threshold)


class LetsOthersRun:
    """Garbage that only the collector finds, and that gives the interpreter away when it goes."""

    def __init__(self):
        self.me = self

    def __del__(self):
        time.sleep(0.002)


def test_threads_that_read_at_once_do_not_disturb_each_other(file, collecting_garbage):
    is_over = concurrent.futures.Future()

    def read():
        while not is_over.done():
            agent_file.read_metadata(file)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        other = pool.submit(read)
        try:
            for allocations in range(1, 300):  # one of them is in the middle of an array's head
                gc.collect(0)
                LetsOthersRun()
                collecting_garbage(allocations)
                agent_file.read_metadata(file)
        finally:
            is_over.set_result(None)
        other.result()


@pytest.mark.parametrize("keep", [0, 10, 1000, -1])
def test_a_cut_file_is_one_line(file, keep):
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(UserError, match="damaged"):
        load_checkpoint(str(file))


def test_an_archive_that_would_fill_the_memory_is_not_unpacked(tmp_path):
    path = tmp_path / "bomb.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("metadata.npy", "w") as entry,
    ):
        for _ in range(300):
            entry.write(bytes(2**20))
    assert path.stat().st_size < 2**20
    with pytest.raises(UserError, match="more than 268435456 bytes"):
        load_checkpoint(str(path))


def test_a_policy_too_large_to_be_read_is_not_written(tmp_path):
    policy = {"strategy": np.broadcast_to(np.float32(0.0), 2**26)}
    with pytest.raises(UserError, match="allowed: 268435456"):
        agent_file.write(tmp_path / "large.npz", policy, METADATA, "")
    assert list(tmp_path.iterdir()) == []


def test_the_shipped_agent_is_small_and_for_the_classic_game():
    assert 100_000 < agent_file.SHIPPED.stat().st_size < 1_000_000
    rules, (agent,) = load_agents(["shipped"], None, None)
    assert (rules, agent.name) == (CLASSIC, "shipped")
    assert not pathlib.Path("shipped").exists()


def test_an_agent_file_in_a_run_folder_does_not_stand_for_the_run(run, tmp_path, monkeypatch):
    folder = shutil.copytree(run, tmp_path / "run")
    monkeypatch.chdir(folder)
    assert run_command(export.main, ["."]) == 0
    (folder / "agent.npz").write_bytes(b"not what the run has come to")
    assert load_checkpoint(str(folder))[0] == METADATA


def test_an_agent_file_leaves_other_files_alone(run, tmp_path):
    (tmp_path / "agent.partial").write_text("mine")
    assert run_command(export.main, [str(run), "--out", str(tmp_path / "agent.npz")]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agent.npz", "agent.partial"]


def test_settings_that_are_no_text_are_not_exported(run, tmp_path, capsys):
    folder = shutil.copytree(run, tmp_path / "run")
    (folder / "config.yaml").write_bytes(b"\xff\xfe")
    assert run_command(export.main, [str(folder), "--out", str(tmp_path / "agent.npz")]) == 2
    error = capsys.readouterr().err
    assert "is not UTF-8 text" in error and error.count("\n") == 1
    assert not (tmp_path / "agent.npz").exists()


@pytest.mark.parametrize("name", ["fallback", "weighting", "solver"])
def test_a_policy_is_not_played_by_a_name_that_means_nothing(file, name):
    record = dataclasses.asdict(METADATA)
    record[name] = record[name][:-1]
    rewritten(file, metadata=np.array(json.dumps(record)))
    with pytest.raises(UserError, match=f"{name} is '.*did you mean {getattr(METADATA, name)!r}"):
        load_checkpoint(str(file))
