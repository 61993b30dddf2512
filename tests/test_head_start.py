"""A policy gradient that begins with the network of an agent."""

import pathlib
import shutil

import jax
import numpy as np
import pytest

from lostcities_jax import checkpoint, export, train
from lostcities_jax.errors import run_command
from lostcities_jax.evaluation.loading import load_checkpoint
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.networks import make_network
from lostcities_jax.population import __main__ as population
from lostcities_jax.rules import MINI

pytestmark = pytest.mark.usefixtures("quick_compile", "compiled_once")

NETWORK = {"kind": "mlp", "hidden": 4, "layers": 1}
# One step, too small to see, so that the end shows the beginning.
TINY = """
iterations: 1
solver: policy_gradient
devices: cpu:1
rules: {colors: 2, ranks: 2, lowest: 2, wagers: 1, hand: 2,
  penalty: -4, bonus_cards: 3, bonus: 2, max_turns: 4}
network: {kind: mlp, hidden: 4, layers: 1}
traversal: {batch_width: 8, traversals: 8}
memory: {advantage_capacity: 200}
learner: {batch_size: 8, learning_rate: 1.0e-9}
gradient: {steps: 1}
critic: {steps: 1, capacity: 200}
evaluation: {every: 0, games: 2, opponents: [random]}
"""


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    """A run folder with a checkpoint of random numbers, and its average strategy."""
    folder = tmp_path_factory.mktemp("agent")
    shapes = jax.eval_shape(make_network(lost_cities(MINI), **NETWORK).init, jax.random.key(0))
    random = np.random.default_rng(0)
    params, other = (
        jax.tree.map(lambda leaf: random.normal(size=leaf.shape).astype(np.float32), shapes)
        for _ in range(2)
    )
    metadata = checkpoint.Metadata(rules=MINI, network=NETWORK, advantage_networks=1)
    policy = {"strategy": params, "advantage": [other]}
    checkpoint.save(folder / "checkpoints", 40, policy, {"none": np.zeros(1)}, metadata)
    return folder, params


@pytest.fixture(autouse=True)
def params(agent, tmp_path, monkeypatch):
    """The average strategy of the agent `a` of an empty folder with settings, which is entered."""
    folder, params = agent
    shutil.copytree(folder, tmp_path / "a")
    (tmp_path / "tiny.yaml").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    return params


def run_train(capsys, *flags):
    code = run_command(train.main, ["--config", "tiny.yaml", *flags])
    return code, capsys.readouterr().err


def distance(one, other):
    """The largest difference between two parameter trees."""
    differences = jax.tree.map(lambda a, b: np.abs(np.asarray(a) - np.asarray(b)).max(), one, other)
    return max(jax.tree.leaves(differences))


def test_a_policy_begins_with_an_average_strategy_or_with_another_policy(params, capsys):
    assert run_train(capsys, "--run-dir", "b", "--gradient.start-from", "a")[0] == 0
    assert run_train(capsys, "--run-dir", "c", "--gradient.start-from", "b")[0] == 0
    assert run_train(capsys, "--run-dir", "d")[0] == 0
    far, *near = (distance(load_checkpoint(run)[1]["policy"], params) for run in ("d", "b", "c"))
    assert max(near) < 1e-6 < 1e-2 < far


def test_a_run_says_which_checkpoint_it_started_from_and_goes_on_without_it(tmp_path, capsys):
    flags = ["--iterations", "2", "--checkpoint.every", "1", "--gradient.start-from", "a"]
    assert run_train(capsys, "--run-dir", "b", *flags)[0] == 0
    whole = load_checkpoint("b")[1]["policy"]
    shutil.rmtree("b/checkpoints/2")
    shutil.rmtree("a")
    assert "start_from: a/checkpoints/40" in (tmp_path / "b" / "config.yaml").read_text()
    assert run_command(train.main, ["--resume", "--run-dir", "b", *flags[-2:]]) == 0
    assert distance(load_checkpoint("b")[1]["policy"], whole) == 0


def test_a_run_ended_before_its_first_checkpoint_starts_the_same_again(params, capsys):
    assert run_train(capsys, "--run-dir", "b", "--gradient.start-from", "a")[0] == 0
    shutil.rmtree("b/checkpoints")
    shutil.rmtree("a")
    shutil.move("b/start.npz", "elsewhere.npz")
    for content, words in ((None, "is missing, the run's copy of 'a/"), (b"PK", "is damaged")):
        if content is not None:
            pathlib.Path("b/start.npz").write_bytes(content)
        assert run_command(train.main, ["--resume", "--run-dir", "b"]) == 2
        error = capsys.readouterr().err
        assert f"b/start.npz {words}" in error and error.count("\n") == 1
    shutil.move("elsewhere.npz", "b/start.npz")
    assert run_command(train.main, ["--resume", "--run-dir", "b"]) == 0
    assert distance(load_checkpoint("b")[1]["policy"], params) < 1e-6


def test_a_damaged_start_leaves_no_run(tmp_path, capsys):
    damaged = next(path for path in pathlib.Path("a/checkpoints/40/policy").rglob("d/*"))
    damaged.write_bytes(b"")
    code, error = run_train(capsys, "--run-dir", "b", "--gradient.start-from", "a")
    assert (code, error.count("\n")) == (2, 1) and "a/checkpoints/40 has a damaged" in error
    assert not (tmp_path / "b").exists()


def test_a_run_of_poker_may_start_from_another(capsys):
    kuhn = ["--game", "kuhn", "--evaluation.opponents", "--rules.colors", "3"]
    assert run_train(capsys, "--run-dir", "b", *kuhn)[0] == 0
    start = ["--gradient.start-from", "b", *kuhn[:3]]
    assert run_train(capsys, "--run-dir", "c", *start) == (0, "")
    one, other = (load_checkpoint(run)[1]["policy"] for run in ("b", "c"))
    assert distance(one, other) < 1e-6


def test_an_exploiter_may_start_from_the_file_of_its_rival(params, capsys):
    assert run_command(export.main, ["a", "--out", "mine.npz"]) == 0
    capsys.readouterr()
    flags = ["--rival.agent", "mine.npz", "--gradient.start-from", "mine.npz"]
    assert run_train(capsys, "--run-dir", "b", *flags) == (0, "")
    assert distance(load_checkpoint("b")[1]["policy"], params) < 1e-6


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--gradient.start-from", "balanced"], "'balanced', which has no network; allowed: a"),
        (["--gradient.start-from", "nobody"], "gradient.start_from: 'nobody' is neither"),
        (["--gradient.start-from", "a", "--network.hidden", "8"], "network.hidden is 4 there but"),
        (["--gradient.start-from", "a", "--rules.colors", "3"], "rules.colors is 2 there but 3"),
        (["--gradient.start-from", "a", "--game", "kuhn"], "an agent for lost_cities"),
        (["--gradient.start-from", "a", "--solver", "deep_cfr"], "policy_gradient alone"),
    ],
)
def test_a_start_that_is_none_is_one_line_and_leaves_no_run(flags, words, tmp_path, capsys):
    code, error = run_train(capsys, "--run-dir", "b", *flags)
    assert code == 2
    assert error.startswith("error: ") and error.count("\n") == 1 and words in error
    assert not (tmp_path / "b").exists()


def test_a_population_begins_with_new_networks_alone(capsys):
    arguments = ["pop", "--config", "tiny.yaml", "--vary", "seed=0:2", "--gradient.start-from", "a"]
    assert run_command(population.main, arguments) == 2
    assert "allowed in a population: none" in capsys.readouterr().err
