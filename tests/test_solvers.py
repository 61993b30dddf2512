"""Every solver behind the same train command: a run, its checkpoints, resuming, evaluation."""

import json
import shutil

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from lostcities_jax import assembly, evaluate, train
from lostcities_jax.devices import select_machine
from lostcities_jax.errors import run_command
from lostcities_jax.settings import Config, LearnerConfig, MemoryConfig, NetworkConfig
from lostcities_jax.tracking import read_metrics

pytestmark = pytest.mark.usefixtures("quick_compile", "compiled_once")

TINY = """
iterations: 3
devices: cpu:1
network: {kind: mlp, hidden: 8, layers: 1}
traversal: {batch_width: 8, traversals: 16, opponent: league}
snapshots: {every: 1, slots: 2}
memory: {advantage_capacity: 300, strategy_capacity: 300}
learner: {batch_size: 32, advantage_steps: 5, strategy_steps: 5, accumulation: bootstrap}
gradient: {steps: 5}
critic: {steps: 5, capacity: 300}
utility: {points: 0.5, win: 10.0}
evaluation: {every: 0, games: 4, opponents: [random]}
checkpoint: {every: 1, keep: 3}
"""
# Kuhn poker has the smallest programs there are. Runs of Deep CFR are resumed and evaluated in the
# tests of small games, of the commands and of faults too.
GAMES = {
    "kuhn": "game: kuhn",
    "lost_cities": "rules: {colors: 2, ranks: 3, wagers: 1, hand: 3, max_turns: 12}",
}
RUNS = [
    pytest.param((solver, game), id=f"{solver}-{game}", marks=marks)
    for solver, game, marks in (
        ("policy_gradient", "kuhn", ()),
        ("deep_cfr", "kuhn", pytest.mark.slow),
        ("policy_gradient", "lost_cities", pytest.mark.slow),
        ("deep_cfr", "lost_cities", pytest.mark.slow),
    )
]


@pytest.fixture(scope="module", params=RUNS)
def run(request, tmp_path_factory):
    solver, game = request.param
    folder = tmp_path_factory.mktemp("runs")
    (folder / "tiny.yaml").write_text(f"solver: {solver}\n{TINY}{GAMES[game]}\n")
    arguments = ["--config", str(folder / "tiny.yaml"), "--run-dir", str(folder / "run")]
    assert run_command(train.main, arguments) == 0
    return solver, game, folder / "run"


def leaves(folder, item):
    path = (folder / "checkpoints" / "3" / item).absolute()
    with ocp.StandardCheckpointer() as checkpointer:
        return jax.tree.leaves(checkpointer.restore(path))


def test_a_run_resumed_in_the_middle_ends_bit_for_bit_as_one_never_stopped(run, tmp_path):
    _, _, folder = run
    resumed = tmp_path / "run"
    shutil.copytree(folder, resumed)
    for iteration in (2, 3):
        shutil.rmtree(resumed / "checkpoints" / str(iteration))
    assert run_command(train.main, ["--resume", "--run-dir", str(resumed)]) == 0
    for name in ("policy", "training"):
        for left, right in zip(leaves(resumed, name), leaves(folder, name), strict=True):
            np.testing.assert_array_equal(left, right)
    for left, right in zip(read_metrics(resumed), read_metrics(folder), strict=True):
        for key in left.keys() | right.keys():
            if not key.startswith("time/") and not key.endswith("_per_second"):
                assert left[key] == right[key], key


def test_every_strategy_of_a_checkpoint_can_be_evaluated(run, tmp_path, capsys):
    solver, game, folder = run
    held = ["current"] if solver == "policy_gradient" else ["average", "current", "iterates"]
    # Two best responses in Kuhn poker win at most two chips each.
    figure, most = ("nash_conv", 4) if game == "kuhn" else ("win_rate", 1)
    matches = [] if game == "kuhn" else ["--against", "random", "--games", "4"]
    for policy in held:
        file = tmp_path / f"{policy}.json"
        arguments = [str(folder), "--policy", policy, *matches, "--json", str(file)]
        assert run_command(evaluate.main, arguments) == 0
        results = json.loads(file.read_text())
        assert results and all(0 <= result[figure] <= most for result in results)
    capsys.readouterr()
    if solver == "policy_gradient":
        arguments = [str(folder), "--policy", "average"]
        assert run_command(evaluate.main, arguments) == 2
        assert "holds no average strategy; allowed: current" in capsys.readouterr().err


@pytest.mark.parametrize("accumulation", ["reservoir", "bootstrap"])
def test_a_run_goes_on_from_the_strategy_of_its_training_whatever_it_plays(accumulation):
    network = NetworkConfig(kind="mlp", hidden=4, layers=1)
    sizes = MemoryConfig(advantage_capacity=20, strategy_capacity=20)
    learner = LearnerConfig(accumulation=accumulation)
    config = Config(game="kuhn", devices="cpu:1", network=network, memory=sizes, learner=learner)
    solver = assembly.assemble(config, select_machine("cpu:1", "same")).solver
    policy, training = solver.split(solver.init())
    played = policy | {"strategy": jax.tree.map(lambda leaf: leaf + 1, policy["strategy"])}
    again, _ = solver.split(solver.join(played, training))
    jax.tree.map(np.testing.assert_array_equal, again, policy)
    del training["strategy"]  # as in the format before
    again, _ = solver.split(solver.join(played, training))
    jax.tree.map(np.testing.assert_array_equal, again, played)


def test_what_one_network_in_both_seats_cannot_do_is_refused(capsys):
    for flag, value, word in (
        ("--traversal.estimator", "outcome", "critic"),
        ("--traversal.sampling", "external", "outcome"),
        ("--scheduler.kind", "recursive", "lockstep"),
        ("--traversal.opponent", "average", "league"),
        ("--learner.warm_start", "false", "true"),
    ):
        assert run_command(train.main, ["--solver", "policy_gradient", flag, value]) == 2
        error = capsys.readouterr().err
        assert f"{flag[2:]} is {value}; allowed with solver policy_gradient: " in error
        assert word in error and error.count("\n") == 1
        assert "others need solver deep_cfr and learner.accumulation reservoir" in error
    assert run_command(train.main, ["--traversal.sampling", "external"]) == 2
    error = capsys.readouterr().err
    assert "bootstrap: outcome; others need learner.accumulation reservoir" in error


@pytest.mark.parametrize(
    ("flags", "allowed"),
    [
        ("noisy --learner.accumulation reservoir", "solver policy_gradient or learner.accum"),
        ("noisy --traversal.opponent random", "traversal.opponent current and without a rival"),
        ("noisy --rival.agent random", "traversal.opponent current and without a rival"),
    ],
)
def test_bots_to_spar_with_are_refused_where_nobody_would_meet_them(capsys, flags, allowed):
    assert run_command(train.main, ["--traversal.sparring", *flags.split()]) == 2
    error = capsys.readouterr().err
    assert "traversal.sparring is noisy" in error and error.count("\n") == 1
    assert f"allowed with {allowed}" in error
