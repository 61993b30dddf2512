"""Lanes of a population: each comes to what it would alone, and fails alone."""

import dataclasses

import jax
import numpy as np
import pytest

from lostcities_jax.config import with_values
from lostcities_jax.devices import one_process
from lostcities_jax.errors import UserError
from lostcities_jax.games.kuhn import kuhn
from lostcities_jax.networks import make_network
from lostcities_jax.population.flight import SHRINK, Crew, Outcome, Run, fly
from lostcities_jax.population.lanes import Lanes, Report, make_lanes
from lostcities_jax.population.training import train_population
from lostcities_jax.population.variants import IN_LANES, differences, expand, full_key, group
from lostcities_jax.settings import (
    Config,
    CriticConfig,
    LearnerConfig,
    MemoryConfig,
    NetworkConfig,
    TraversalConfig,
)
from lostcities_jax.solvers.self_play import make_self_play

pytestmark = pytest.mark.usefixtures("quick_compile")

# Kuhn poker: the smallest programs there are.
CONFIG = Config(
    iterations=2,
    devices="cpu:2",
    game="kuhn",
    network=NetworkConfig(kind="mlp", hidden=4, layers=1),
    traversal=TraversalConfig(batch_width=8, traversals=16),
    memory=MemoryConfig(advantage_capacity=200, strategy_capacity=200),
    learner=LearnerConfig(batch_size=16, advantage_steps=4, strategy_steps=4),
    critic=CriticConfig(steps=4, capacity=200),
)
BROKEN = 1e-38  # points that make 1.0 of the critic's targets: they become infinite
VARIANTS = [
    with_values(CONFIG, {"seed": seed, "learner.learning_rate": rate, "critic.target_scale": scale})
    for seed, rate, scale in ((0, 1e-3, 30.0), (1, 2e-3, BROKEN), (2, 3e-3, 20.0), (3, 1e-3, 30.0))
]


@pytest.fixture(scope="module")
def trained():
    """Outcomes of four lanes, one of which is bound to fail, and what was told meanwhile."""
    kept, noted = [], []
    outcomes = train_population(VARIANTS, keep=kept.append, note=noted.append)
    return outcomes, kept, noted


def equal(left, right, tolerance=0.0):
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def test_outcomes_are_in_the_order_of_the_variants(trained):
    outcomes, kept, (batch,) = trained
    assert [outcome.config for outcome in outcomes] == VARIANTS
    assert [outcome.lane for outcome in outcomes] == [0, 1, 2, 3]
    assert sorted(outcome.lane for outcome in kept) == [0, 1, 2, 3]
    assert (batch.size, batch.iterations) == (4, 3 * CONFIG.iterations)
    assert all(0 < outcome.seconds <= batch.seconds for outcome in outcomes)
    assert 0 < batch.serial_seconds < batch.seconds


def test_a_lane_that_is_not_finite_is_given_up_after_its_retries(trained):
    outcomes, kept, _ = trained
    failures = outcomes[1].failures
    assert outcomes[1].policy is None
    assert [failure.attempt for failure in failures] == [1, 2, 3, 4]
    assert {(failure.lane, failure.iteration) for failure in failures} == {(1, 1)}
    assert {failure.cause for failure in failures} == {"the critic loss is not finite"}
    assert all(not outcome.failures for outcome in outcomes if outcome.lane != 1)
    assert kept[-1].lane == 1  # the others had ended before, and waited for nothing


def test_siblings_of_a_lane_that_fails_are_bit_for_bit_as_without_it(trained):
    outcomes, _, _ = trained
    without = train_population([VARIANTS[0], VARIANTS[2], VARIANTS[3]])
    for place, outcome in zip((0, 2, 3), without, strict=True):
        equal(outcomes[place].policy, outcome.policy)
        assert outcomes[place].metrics == outcome.metrics


def test_a_lane_comes_to_what_a_run_of_its_settings_comes_to(trained):
    outcomes, _, _ = trained
    config, game = VARIANTS[2], kuhn()
    network = make_network(game, **dataclasses.asdict(config.network))
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("lane",))
    steps = make_self_play(config, game, network, one_process(mesh))
    state = steps.init()
    for iteration in range(1, config.iterations + 1):
        state = steps.remember(state, iteration, 0, steps.play(state, iteration, 0))
        state, _ = steps.fit_policy(state, iteration)
        state, _ = steps.fit_critic(state, iteration)
    state, _ = steps.fit_strategy(state, config.iterations)
    expected = {"strategy": state.strategy.params, "advantage": [state.policy.params]}
    equal(outcomes[2].policy, expected, 1e-5)
    moved = jax.tree.map(lambda leaf: float(np.abs(leaf).max()), expected["advantage"])
    assert min(jax.tree.leaves(moved)) > 1e-4  # it learned something to compare


@pytest.mark.slow
def test_lanes_that_are_one_batch_come_to_the_same():
    """And numbers of every kind may differ from lane to lane."""
    config = dataclasses.replace(CONFIG, iterations=2)  # the first has no critic to learn from
    values = {
        "seed": 5,
        "traversal.epsilon": 0.3,
        "critic.trace": 0.5,
        "critic.target_scale": 10.0,
        "learner.learning_rate": 2e-3,
        "learner.weight_decay": 0.1,
        "learner.max_grad_norm": 0.5,
        "learner.weighting": "dcfr",
        "learner.target_scale": 2.0,
        "learner.horizon": 7,
        "utility.points": 2.0,
        "utility.win": 1.0,
    }
    variants = [config, with_values(config, values)]
    game = kuhn()
    network = make_network(game, **dataclasses.asdict(config.network))
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("lane",))
    results = []
    for is_batched in (False, True):
        lanes = make_lanes(config, game, network, mesh, is_batched=is_batched)
        crew = Crew(lanes, 2, tuple(values), lambda state: state.policy.params, lambda *_: None)
        kept = []
        fly(crew, [Run(0, v, 0) for v in variants], kept.append, lambda _: None)
        results.append([outcome.policy for outcome in kept])
    equal(*results, tolerance=1e-5)
    same = jax.tree.map(np.array_equal, *results[0])
    assert not any(jax.tree.leaves(same["bet_head"]))  # the two lanes differ


def faulty(faults):
    """Programs that train nothing: a step is good unless `faults` say how often it is not.

    Args:
      faults: failures to come by (lane, iteration).
    """
    calls = []

    def step(name, turn, state):
        calls.append((name, turn))
        good = []
        for lane, (runs, iteration) in enumerate(zip(turn.runs, turn.iteration, strict=True)):
            left = faults.get((lane, int(iteration)), 0)
            good.append(not (runs and left))
            faults[lane, int(iteration)] = max(left - bool(runs), 0)
        return state, Report(np.array(good), {name: np.zeros((len(good), 2))}, ())

    lanes = Lanes(
        init=lambda numbers: None,
        iterate=lambda turn, state: step("policy", turn, state),
        finish=lambda turn, state: step("strategy", turn, state),
    )
    crew = Crew(lanes, 4, ("learner.learning_rate",), lambda _: np.arange(4), lambda *_: None)
    return crew, calls


def flown(faults, retries=3):
    """Outcomes in the order of their ends, and the turns, of three lanes of two iterations."""
    crew, calls = faulty(faults)
    kept: list[Outcome] = []
    fly(crew, [Run(lane, CONFIG, retries) for lane in range(3)], kept.append, lambda _: None)
    return kept, calls


def test_a_lane_that_fails_for_a_time_ends_later_with_a_smaller_step():
    kept, calls = flown({(1, 2): 2})
    assert [outcome.lane for outcome in kept] == [0, 2, 1]
    assert [outcome.policy for outcome in kept] == [0, 2, 1]  # its own slot's
    failures = kept[-1].failures
    assert [(one.attempt, one.iteration) for one in failures] == [(1, 2), (2, 2)]
    first = CONFIG.learner.learning_rate
    rates = [turn.numbers["learner.learning_rate"][1] for _, turn in calls if turn.runs[1]]
    shrunk = [first, first, first * SHRINK, first * SHRINK**2, first * SHRINK**2]
    np.testing.assert_allclose(rates, shrunk, rtol=1e-6)
    others = [turn.numbers["learner.learning_rate"][[0, 2]] for _, turn in calls]
    np.testing.assert_allclose(others, first, rtol=1e-6)
    # The siblings ran their two iterations and one fit, and no step more.
    assert sum(turn.runs[0] for _, turn in calls) == 3
    assert not any(turn.runs[3] for _, turn in calls)  # a slot without a lane


def test_the_fit_of_the_average_strategy_may_fail_too():
    kept, _ = flown({(2, CONFIG.iterations + 1): 9}, retries=1)
    assert [outcome.lane for outcome in kept] == [0, 1, 2]
    assert kept[-1].policy is None and len(kept[-1].failures) == 2


def test_a_grid_of_values_makes_the_variants():
    variants = expand(CONFIG, ["seed=3:5", "learning_rate=1e-3,2e-3"])
    found = [(variant.seed, variant.learner.learning_rate) for variant in variants]
    assert found == [(3, 1e-3), (3, 2e-3), (4, 1e-3), (4, 2e-3)]
    assert list(differences(variants)) == ["seed", "learner.learning_rate"]


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        (["seed"], "vary is 'seed'; allowed: SETTING=VALUE"),
        (["sede=1"], "'sede' is no setting of training.*did you mean 'seed'"),
        (["target_scale=1"], "may be critic.target_scale, learner.target_scale"),
        (["seed=1", "seed=2"], "seed varies twice"),
        (["seed=1,1"], "seed is 1 twice"),
        (["seed=5:2"], "seed is '5:2'; allowed: FROM:TO"),
        (["epsilon=2.0"], "traversal.epsilon is 2.0; allowed: less than or equal|at most 1"),
        (["evaluation.games=4"], "is no setting of training"),
    ],
)
def test_a_mistake_in_vary_is_told_in_one_line(vary, message):
    with pytest.raises(UserError, match=message):
        expand(CONFIG, vary)


def test_what_changes_shapes_or_code_makes_groups_and_numbers_do_not():
    variants = expand(CONFIG, ["hidden=4,8", "weighting=none,lcfr", "seed=0,1"])
    groups = group(variants)
    assert [one.members for one in groups] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert [one.config.network.hidden for one in groups] == [4, 8]
    assert all(full_key(key) == key for key in IN_LANES)


def test_a_limit_above_the_lanes_is_an_error():
    for limit in (5, 0):
        with pytest.raises(UserError, match=f"limit is {limit}; allowed: 1 to 4"):
            train_population(VARIANTS, limit)
    with pytest.raises(UserError, match="number of variants is 0"):
        train_population([])
    reservoir = with_values(CONFIG, {"learner.accumulation": "reservoir"})
    with pytest.raises(UserError, match="accumulation is reservoir; allowed in a population"):
        train_population([reservoir])


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        (["seed=0:" + "9" * 5000], "seed is '0:999.*; allowed: FROM:TO"),
        (["seed=0:10000", "epsilon=0.1,0.2"], "make 20000 variants; allowed: at most 10000"),
        (["epsilon=" + "0.1," * 10_000], "epsilon has 10001 values; allowed: at most 10000"),
        (["learning_rat=1"], "did you mean 'learning_rate'"),
    ],
)
def test_more_variants_than_anyone_trains_are_not_built(vary, message):
    with pytest.raises(UserError, match=message):
        expand(CONFIG, vary)
