"""Revisions never change, and one of them is in use: whole, for every reader, at every moment."""

import concurrent.futures
import dataclasses
import json
import pathlib
import pickle
import random
import shutil
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from lostcities_jax.config import with_values
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.evaluation.loading import load_policy
from lostcities_jax.evaluation.matches import play_pair
from lostcities_jax.evaluation.rating import Rating, Standings
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.networks import make_network
from lostcities_jax.population import __main__ as command
from lostcities_jax.population.flight import Batch, Failure, Outcome
from lostcities_jax.population.revisions import HISTORY, Registry
from lostcities_jax.population.tournament import best_revision, play_tournament
from lostcities_jax.rules import MINI
from lostcities_jax.run_state import metadata_of
from lostcities_jax.settings import Config, EvaluationConfig, NetworkConfig

pytestmark = pytest.mark.usefixtures("quick_compile")

CONFIG = Config(rules=MINI, network=NetworkConfig(kind="mlp", hidden=2, layers=1))


@pytest.fixture(scope="module")
def policies():
    """Policies of different parameters: card outputs of one bias each."""
    network = make_network(lost_cities(MINI), **dataclasses.asdict(CONFIG.network))
    params = jax.device_get(network.init(jax.random.key(0)))

    def biased(action):
        bias = np.zeros_like(params["card_head"]["bias"])
        bias[action] = 5.0
        changed = params | {"card_head": params["card_head"] | {"bias": bias}}
        return {"strategy": changed, "advantage": [changed]}

    return [biased(action) for action in range(2 * MINI.hand)]


@pytest.fixture
def registry(tmp_path):
    return Registry(tmp_path / "registry")


def register(registry, policy, config=CONFIG, metrics=None, parent=None):
    return registry.register(policy, metadata_of(config, policy), config, metrics or {}, parent)


def test_what_is_registered_is_loaded_bit_for_bit(registry, policies):
    parent, _ = register(registry, policies[1])
    name, is_duplicate = register(registry, policies[0], metrics={"loss/a": 0.1}, parent=parent)
    revision = registry.load(name)
    assert not is_duplicate
    assert (revision.id, revision.parent, revision.metrics) == (name, parent, {"loss/a": 0.1})
    for left, right in zip(
        jax.tree.leaves(revision.policy), jax.tree.leaves(policies[0]), strict=True
    ):
        np.testing.assert_array_equal(left, right)
    assert "kind: mlp" in revision.config
    assert registry.active() is None  # nothing is published by registering


def test_equal_content_is_one_revision_and_any_difference_another(registry, policies):
    first, _ = register(registry, policies[0])
    copy = jax.tree.map(np.copy, policies[0])
    assert register(registry, copy) == (first, True)
    others = [
        register(registry, policies[1]),
        register(registry, policies[0], with_values(CONFIG, {"seed": 1})),
        register(registry, policies[0], metrics={"loss/a": 1.0}),
        register(registry, policies[0], parent=first),
    ]
    names = [name for name, is_duplicate in others if not is_duplicate]
    assert len({first, *names}) == 5
    assert set(registry.ids()) == {first, *names}


def test_content_that_was_changed_is_not_loaded(registry, policies):
    name, _ = register(registry, policies[0])
    record = registry.path / "revisions" / name / "revision.json"
    record.write_text(json.dumps({"parent": None, "metrics": {"loss/a": 2.0}}))
    with pytest.raises(UserError, match=f"{name} is damaged"):
        registry.load(name)


def test_activation_switches_and_goes_back(registry, policies):
    names = [register(registry, policy)[0] for policy in policies[:3]]
    with pytest.raises(UserError, match="no revision to go back to"):
        registry.rollback()
    for name in names:
        registry.activate(name)
    assert registry.active() == names[2]
    assert registry.rollback() == names[1] == registry.active()
    assert registry.rollback() == names[0] == registry.active()
    with pytest.raises(UserError, match="no revision to go back to"):
        registry.rollback()
    with pytest.raises(UserError, match="is no revision"):
        registry.activate("../../etc")
    assert registry.active() == names[0]


def test_a_pinned_revision_stays_in_use_until_its_evaluation_is_over(registry, policies):
    first, second = (register(registry, policy)[0] for policy in policies[:2])
    registry.activate(first)
    with registry.pinned() as revision, registry.pinned():
        assert revision.id == first
        with pytest.raises(UserError, match="in use by an evaluation in flight"):
            registry.activate(second)
        assert registry.active() == first
    registry.activate(second)
    assert registry.active() == second


def test_readers_see_whole_revisions_alone_while_they_are_switched(registry, policies):
    names = [register(registry, policy)[0] for policy in policies[:4]]
    registry.activate(names[0])

    def read(_):
        seen = 0
        while not is_over.done():
            assert registry.active() in names
            seen += 1
            time.sleep(0.05)  # leaves the one who switches a share of the interpreter
        return registry.load(registry.active()).id, seen

    def switch():
        chooser = random.Random(0)
        for _ in range(1000):
            registry.activate(chooser.choice(names))

    with concurrent.futures.ThreadPoolExecutor(65) as pool:
        is_over = concurrent.futures.Future()
        readers = [pool.submit(read, place) for place in range(64)]
        try:
            pool.submit(switch).result()
        finally:
            is_over.set_result(None)
        results = [reader.result() for reader in readers]
    assert {name for name, _ in results} == {registry.active()}
    assert all(seen > 0 for _, seen in results)
    assert len(json.loads((registry.path / "active.json").read_bytes())["before"]) == HISTORY


# Registers and activates for ever; killed at some moment, again and again. A fork, since a new
# process would take seconds to import JAX.
VICTIMS = """
import os, pathlib, pickle, random, signal, sys, time
from lostcities_jax.population import __main__ as command
from lostcities_jax.population.flight import Batch, Failure, Outcome
from lostcities_jax.population.revisions import Registry
registry = Registry(pathlib.Path(sys.argv[1]))
policies, metadata, config = pickle.load(sys.stdin.buffer)
chooser = random.Random(1)
for kill in range(20):
    heard, told = os.pipe()
    victim = os.fork()
    if victim == 0:
        for count in range(10**9):
            metrics = {"kill": kill, "count": count}
            name, _ = registry.register(policies[count % 2], metadata, config, metrics)
            registry.activate(name)
            os.write(told, b".")
    os.read(heard, 1)
    time.sleep(chooser.uniform(0.0, 0.1))
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
    print(registry.active(), len(registry.ids()), flush=True)
"""


def test_a_process_killed_at_any_moment_leaves_whole_revisions_and_one_in_use(registry, policies):
    first, _ = register(registry, policies[0])
    registry.activate(first)
    given = pickle.dumps((policies[:2], metadata_of(CONFIG, policies[0]), CONFIG))
    done = subprocess.run(
        [sys.executable, "-c", VICTIMS, str(registry.path)], input=given, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    lines = [line.split() for line in done.stdout.decode().splitlines()]
    assert len(lines) == 20
    ids = registry.ids()
    assert len(ids) > 20  # they were killed at work
    assert all(active in ids for active, _ in lines)
    for name in {ids[0], ids[-1], *(active for active, _ in lines)}:
        registry.load(name)
    folder = registry.path / "revisions"
    assert all(len(list((folder / name).iterdir())) == 3 for name in ids)
    name, _ = register(registry, policies[2])  # whatever the last left behind is no obstacle
    registry.activate(name)
    assert sorted(path.name for path in folder.iterdir()) == registry.ids()


def test_a_revision_plays_wherever_an_agent_is_named(registry, policies):
    name, _ = register(registry, policies[0])
    agent = load_policy(str(registry.path / "revisions" / name), "current")
    result = play_pair(MINI, agent, registry.load(name).agent("current"), 20, 10, 0, greedy=True)
    assert result.games == 20


def test_a_tournament_rates_revisions_and_bots_and_names_the_best(registry, policies):
    """Always to play the first card of a sorted hand is worse than always to discard it."""
    plays, _ = register(registry, policies[0])
    discards, _ = register(registry, policies[MINI.hand])
    registry.activate(plays)
    told = []
    settings = EvaluationConfig(games=40, opponents=("random",))

    def announce(pair):
        told.append(pair)
        with pytest.raises(UserError, match="in flight"):
            registry.activate(discards)

    standings = play_tournament(registry, settings, 20, 0, announce)
    assert {rating.agent for rating in standings.ratings} == {plays, discards, "random"}
    assert len(told) == 3
    assert best_revision(standings, registry.ids()) == discards
    assert registry.active() == plays


def test_the_best_revision_is_no_bot():
    def row(name):
        return Rating(name, 0.0, 0.0, 0.0, 0.0, 0.0, 1, 0.5, 0.0, 0.0, 0.0)

    standings = Standings((row("balanced"), row("b" * 16), row("a" * 16)), np.zeros((3, 3)))
    assert best_revision(standings, ["a" * 16, "b" * 16]) == "b" * 16


def test_a_registry_that_cannot_be_written_is_a_mistake_in_one_line(tmp_path, policies):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        register(Registry(pathlib.Path(blocked)), policies[0])


def test_the_command_keeps_what_it_trains_and_activates_the_best_when_asked(
    tmp_path, capsys, monkeypatch, policies
):
    """What the lanes are trained to is given here: two policies, one of them twice."""

    def train(variants, limit, retries, keep, note, announce):
        assert (limit, retries, len(variants)) == (2, 1, 4)
        given = [policies[0], policies[MINI.hand], policies[0], None]
        for lane, policy in enumerate(given):
            config = variants[0] if lane == 2 else variants[lane]
            failures = () if policy else (Failure(lane, 2, 1, "the policy loss is not finite"),)
            keep(Outcome(lane, config, policy, {}, failures, 1.0))
        note(Batch(4, 2.0, 0.5, 3))

    monkeypatch.setattr(command, "train_population", train)
    folder = tmp_path / "registry"
    settings = {f"rules.{key}": value for key, value in vars(MINI).items()}
    settings |= {"network.kind": "mlp", "network.hidden": 2, "network.layers": 1}
    settings |= {"evaluation.games": 40, "evaluation.opponents": "random"}
    flags = [f"--{key}={value}" for key, value in settings.items()]
    training = "--vary seed=0,1 --vary epsilon=0.1,0.2 --limit=2 --retries=1 --no-tournament"
    assert run_command(command.main, [str(folder), *flags, *training.split()]) == 0
    assert "2 registered, 1 duplicate, 1 given up" in capsys.readouterr().out
    registry = Registry(folder)
    assert registry.active() is None and len(registry.ids()) == 2
    rows = [json.loads(line) for line in (folder / "population.jsonl").read_text().splitlines()]
    assert [row["kind"] for row in rows] == ["lane"] * 3 + ["failure", "lane", "batch"]
    assert rows[1]["settings"] == {"seed": 0, "traversal.epsilon": 0.2}
    assert [row["seconds"] for row in rows if row["kind"] == "lane"] == [1.0] * 4
    assert rows[-1] == {
        "kind": "batch",
        "size": 4,
        "seconds": 2.0,
        "serial_seconds": 0.5,
        "iterations": 3,
    }
    assert run_command(command.main, [str(folder), "--activate", "best", *flags]) == 0
    best = registry.load(registry.active())
    np.testing.assert_array_equal(
        best.policy["strategy"]["card_head"]["bias"],
        policies[MINI.hand]["strategy"]["card_head"]["bias"],
    )
    other = next(name for name in registry.ids() if name != best.id)
    assert run_command(command.main, [str(folder), "--activate", other]) == 0
    assert registry.active() == other
    assert run_command(command.main, [str(folder), "--rollback"]) == 0
    assert registry.active() == best.id


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--vary seed=0,1 --limit 3", "limit is 3; allowed: 1 to 2"),
        ("--limit 0", "limit is 0; allowed: a whole number from 1"),
        ("--activate nobody", "'nobody' is no revision"),
        ("--rollback --seed 1", "--rollback with other flags"),
        ("", "has no revision"),
    ],
)
def test_a_mistake_of_the_command_is_told_in_one_line(tmp_path, capsys, flags, message):
    assert run_command(command.main, [str(tmp_path / "registry"), *flags.split()]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_revision_that_is_gone_is_not_put_in_use_and_one_in_use_may_be_gone(registry, policies):
    names = [register(registry, policy)[0] for policy in policies[:2]]
    for name in names:
        registry.activate(name)
    shutil.rmtree(registry.path / "revisions" / names[0])
    with pytest.raises(UserError, match="is no revision"):
        registry.rollback()
    assert registry.active() == names[1]
    shutil.rmtree(registry.path / "revisions" / names[1])
    other, _ = register(registry, policies[2])
    registry.activate(other)
    assert registry.active() == other


@pytest.mark.parametrize(
    ("registry", "flags", "message"),
    [
        ("file", "", "cannot be written"),
        ("new", "--activate nobody", "'nobody' is no revision"),
        ("new", "--config exploit", "evaluation.opponents is empty; allowed for a tournament"),
    ],
)
def test_what_would_be_in_vain_is_found_before_the_training(
    tmp_path, capsys, monkeypatch, registry, flags, message
):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(command, "train_population", lambda *_: pytest.fail("it was trained"))
    argv = [str(tmp_path / registry), "--vary", "seed=0,1", *flags.split()]
    assert run_command(command.main, argv) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
