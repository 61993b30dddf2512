"""Search by rounds: it climbs, it is repeatable, and it shows which lanes fail and why."""

import itertools
import json
import math

import numpy as np
import pytest

from lostcities_jax.bots import BOTS
from lostcities_jax.config import with_values
from lostcities_jax.devices import select_devices
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.evaluation.agents import bot_agent
from lostcities_jax.evaluation.matches import play_pair
from lostcities_jax.population import evolve as command
from lostcities_jax.population.bot_lanes import measure_bots, mutate_bot
from lostcities_jax.population.evolution import Score, evolve, failures_by_lane
from lostcities_jax.population.flight import Failure, Outcome
from lostcities_jax.population.revisions import Registry
from lostcities_jax.rules import MINI
from lostcities_jax.settings import Config

pytestmark = pytest.mark.usefixtures("quick_compile")

TARGET = 3.0


def climb(seed, rounds=12):
    """Numbers that are better the nearer they are to TARGET; those below 0 fail."""

    def measure(lanes, number):
        return [Score(-abs(lane - TARGET), 0.0, "below 0" if lane < 0 else None) for lane in lanes]

    def mutate(lane, random):
        return lane + random.normal()

    return evolve(0.0, mutate, measure, rounds, lanes=10, survivors=3, seed=seed)


def test_survivors_are_the_best_and_go_on_as_they_are():
    rounds = climb(0)
    for before, after in itertools.pairwise(rounds):
        points = sorted((s.points for s in before.scores if not s.failure), reverse=True)
        assert [before.scores[lane].points for lane in before.survivors] == points[:3]
        assert after.lanes[:3] == [before.lanes[lane] for lane in before.survivors]
    best = rounds[-1].lanes[rounds[-1].survivors[0]]
    assert abs(best - TARGET) < 0.2


def test_a_search_is_repeated_by_its_seed():
    assert climb(1) == climb(1) != climb(2)


def test_failures_are_told_by_lane_and_never_survive():
    rounds = climb(0)
    causes = failures_by_lane(rounds)
    failed = [
        (lane, f"round {number}: below 0")
        for number, one in enumerate(rounds)
        for lane, value in enumerate(one.lanes)
        if value < 0
    ]
    assert failed and sorted(failed) == sorted((k, c) for k, cs in causes.items() for c in cs)
    assert all(one.lanes[lane] >= 0 for one in rounds for lane in one.survivors)


def test_a_round_without_a_sound_lane_ends_the_search():
    def measure(lanes, number):
        return [Score(math.nan, math.nan, "the loss is not finite")] * len(lanes)

    with pytest.raises(UserError, match="all lanes of round 0 failed: the loss is not finite"):
        evolve(0.0, lambda lane, _: lane, measure, 1, 2, 1, 0)
    with pytest.raises(UserError, match="survivors is 3; allowed: 1 to 2"):
        evolve(0.0, lambda lane, _: lane, measure, 1, 2, 3, 0)


def test_bots_side_by_side_score_as_each_does_alone_whatever_the_devices():
    names, opponents = ("balanced", "discard-only"), ("random",)
    bots, mesh = [BOTS[name] for name in names], select_devices("cpu:3")
    scores = measure_bots(MINI, bots, opponents, 40, 20, seed=3, mesh=mesh)
    for name, score in zip(names, scores, strict=True):
        alone = play_pair(MINI, bot_agent(MINI, name), bot_agent(MINI, "random"), 40, 20, seed=3)
        assert score.points == pytest.approx(alone.score_difference)
        assert score.error == pytest.approx(alone.score_difference_error)
        assert score.failure is None


def test_a_mutation_leaves_a_bots_kind_alone():
    changed = mutate_bot(BOTS["noisy"], np.random.default_rng(0))
    assert (changed.uniform, changed.never_plays) == (BOTS["noisy"].uniform, False)
    pairs = zip(changed.judgement, BOTS["noisy"].judgement, strict=True)
    assert not [before for after, before in pairs if after == before]


def test_settings_are_mutated_within_what_is_allowed():
    random = np.random.default_rng(0)
    config = with_values(Config(), {"traversal.epsilon": 0.9})
    rates = []
    for _ in range(50):
        changed = command.mutate_config(
            config, ["traversal.epsilon", "learner.learning_rate"], 0.3, random
        )
        assert 0 < changed.traversal.epsilon <= 1
        rates.append(changed.learner.learning_rate)
    assert np.std(np.log(rates)) == pytest.approx(0.3, rel=0.4)


FLAGS = "--rounds 2 --lanes 3 --survivors 1 --evaluation.games 40 --evaluation.opponents random"


def records_of(folder):
    return [json.loads(line) for line in (folder / "population.jsonl").read_text().splitlines()]


RULES = [f"--rules.{key}={value}" for key, value in vars(MINI).items()]


def test_the_command_searches_a_bot(tmp_path, capsys):
    argv = [str(tmp_path), *FLAGS.split(), *RULES, "--traversal.batch-width=20"]
    assert run_command(command.main, argv) == 0
    rows = records_of(tmp_path)
    assert [(row["round"], row["lane"]) for row in rows] == [
        (r, n) for r in (0, 1) for n in (0, 1, 2)
    ]
    assert sum(row["survives"] for row in rows) == 2
    assert rows[0]["values"]["hope"] == pytest.approx(float(BOTS["expert"].judgement.hope))
    assert "best: {" in capsys.readouterr().out


def test_the_command_searches_settings_and_says_which_lanes_fail(tmp_path, capsys, monkeypatch):
    """What a lane would be trained to is given here: nothing, but for lanes of a high rate."""
    asked = []

    def train(variants, announce):
        asked.append(len(variants))
        return [
            Outcome(
                lane,
                variant,
                None,
                {},
                (Failure(lane, 4, 1, "the policy loss is not finite"),),
                1.0,
            )
            if variant.learner.learning_rate > 1.5e-3
            else Outcome(lane, variant, {"rate": variant.learner.learning_rate}, {}, (), 1.0)
            for lane, variant in enumerate(variants)
        ]

    parents = {}

    def register(self, policy, metadata, config, metrics, parent):
        parents[f"{policy['rate']:.16f}"] = parent
        return f"{policy['rate']:.16f}", False

    def measure(registry, name, settings, seed, mesh):
        return Score(-float(name), 0.0)

    monkeypatch.setattr(command, "train_population", train)
    monkeypatch.setattr(Registry, "register", register)
    monkeypatch.setattr(command, "measure_revision", measure)
    monkeypatch.setattr(command, "metadata_of", lambda *_: None)
    argv = [str(tmp_path), "--mutate", "learning_rate", "--seed=1", *FLAGS.split()]
    assert run_command(command.main, argv) == 0
    assert asked == [3, 2]  # the survivor was trained already
    out = capsys.readouterr().out
    rows = records_of(tmp_path)
    failed = {row["lane"] for row in rows if row["failure"]}
    assert failed == {int(line.split()[1]) for line in out.splitlines() if line.startswith("lane")}
    children = [row["values"] for row in rows if row["round"] == 1 and row["values"]["revision"]]
    survivor = next(row["values"] for row in rows if row["survives"])
    assert all(values["parent"] in (None, survivor["revision"]) for values in children)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--mutate hidden", "mutate is network.hidden; allowed: "),
        ("--rounds 0", "rounds is 0; allowed: a whole number from 1"),
        ("--spread -1", "spread is -1; allowed: a number above 0"),
        ("--bot best", "bot is 'best'; allowed: random"),
        ("--game kuhn", "game is kuhn; allowed: lost_cities"),
        ("--spread 1e9", "spread is 1000000000.0; allowed: a number above 0, at most 10"),
        ("--bot balancd", "did you mean 'balanced'?"),
        ("--mutate learning_rat", "did you mean 'learning_rate'?"),
        ("--mutate weight_decay --learner.weight-decay 0", "learner.weight_decay is 0"),
        ("--config exploit", "evaluation.opponents is empty; allowed for a search"),
        ("--devices gpuu", "did you mean 'gpu'?"),
    ],
)
def test_a_mistake_is_told_in_one_line(tmp_path, capsys, flags, message):
    assert run_command(command.main, [str(tmp_path), *flags.split()]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_registry_that_cannot_be_written_is_found_before_the_search(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run_command(command.main, [str(tmp_path / "file")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_every_round_has_a_seed_of_its_own_that_is_allowed():
    seeds = {command.seed_of_round(seed, n) for seed in (0, 2**31 - 1) for n in range(3)}
    assert len(seeds) == 6 and all(0 <= seed < 2**31 for seed in seeds)
