"""The memory a run is said to need is what XLA says its programs take."""

import contextlib
import dataclasses
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lostcities_jax import checkpoint, memory
from lostcities_jax.devices import one_process
from lostcities_jax.errors import UserError
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.networks import make_network
from lostcities_jax.rules import Rules
from lostcities_jax.run_state import Saver
from lostcities_jax.settings import (
    Config,
    CriticConfig,
    LearnerConfig,
    MemoryConfig,
    NetworkConfig,
    TraversalConfig,
)
from lostcities_jax.solvers import catalogue, feasibility
from lostcities_jax.solvers.feasibility import check_feasible, memory_needs
from lostcities_jax.solvers.opponents import SeatParams, traversal_policy
from lostcities_jax.solvers.scheduling import traversal_plan
from lostcities_jax.solvers.seating import Batch
from lostcities_jax.solvers.self_play import make_self_play
from lostcities_jax.traversal.critic import baselines
from lostcities_jax.traversal.lockstep import Seat
from lostcities_jax.traversal.sharded import sharded_traverse
from lostcities_jax.traversal.tape import sweep

RULES = Rules(colors=3, ranks=5, wagers=1, hand=4, penalty=-10, bonus_cards=4, bonus=10)
GAME = lost_cities(RULES)
NETWORK = make_network(GAME, "mlp", 4, 1)


def config_of(width, capacity=1000):
    return Config(
        rules=RULES,
        network=NetworkConfig(kind="mlp", hidden=4, layers=1),
        traversal=TraversalConfig(batch_width=width, traversals=2 * width),
        memory=MemoryConfig(advantage_capacity=capacity, strategy_capacity=capacity),
    )


def machine_of(devices):
    return one_process(jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("lane",)))


def compiled_bytes(width):
    """Bytes per lane that XLA plans for a traversal's result, and for what it is swept with."""
    config, machine = config_of(width), machine_of(1)
    params = NETWORK.init(jax.random.key(0))
    seat = Seat(SeatParams(params, jnp.asarray(False)), jnp.float32(0.5), jnp.asarray(True))
    policy = traversal_policy(NETWORK, "argmax")
    program = sharded_traverse(GAME, (policy, policy), traversal_plan(config, GAME), machine.lanes)
    arguments = ((seat, seat), jax.random.key(1))
    walked = program.lower(*arguments).compile().memory_analysis()
    tape, _ = jax.eval_shape(program, *arguments)

    def value(tape):
        tape = tape._replace(length=tape.length[0])
        critic = baselines(GAME, NETWORK, params, tape, 1.0)
        return critic, sweep(GAME, tape, critic)

    swept = jax.jit(value).lower(tape).compile().memory_analysis()
    return np.array(
        [
            walked.output_size_in_bytes + walked.temp_size_in_bytes,
            swept.output_size_in_bytes + swept.temp_size_in_bytes,
        ]
    )


@pytest.mark.slow
def test_bytes_of_a_lane_are_those_of_the_compiled_programs():
    # The difference of two widths leaves what grows with the lanes.
    tape, values = (compiled_bytes(512) - compiled_bytes(256)) / 256
    needs = memory_needs(config_of(512), GAME, machine_of(1))
    assert needs.tape_per_lane == pytest.approx(tape, rel=0.1)
    assert needs.values_per_lane == pytest.approx(values, rel=0.1)


def test_bytes_of_a_sample_are_those_of_the_reservoir():
    def size(capacity):
        new = jax.jit(lambda: memory.init(capacity, GAME.info_size, GAME.max_actions))
        return new.lower().compile().memory_analysis().output_size_in_bytes

    needs = memory_needs(config_of(8), GAME, machine_of(1))
    assert needs.per_sample == (size(30_000) - size(10_000)) / 20_000


def test_tapes_of_cpu_devices_share_a_memory_and_one_comes_home():
    one, four = (memory_needs(config_of(64), GAME, machine_of(devices)) for devices in (1, 4))
    per_lane = one.tape_per_lane + one.values_per_lane
    assert one.tapes == four.tapes == 64 * per_lane
    assert (one.at_home, four.at_home) == (0, 16 * per_lane)
    three = memory_needs(config_of(64), GAME, machine_of(3))
    assert (three.tapes, three.at_home) == (3 * 22 * per_lane, 22 * per_lane)  # 3 * 22 >= 64


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_any_number_of_devices_goes_with_any_width(devices):
    machine = machine_of(devices)
    for width in (1, 3, 64):
        check_feasible(config_of(width), GAME, machine)


def test_of_the_two_batches_against_an_opponent_one_tape_is_held_at_a_time(monkeypatch):
    """So the needs count the tape of one, as many as an iteration has."""
    sizes = dataclasses.replace(config_of(8).traversal, opponent="random")
    config, machine = dataclasses.replace(config_of(8), traversal=sizes), machine_of(1)
    tapes, held = [], []

    class FakeTape:
        pass

    def play(state, iteration, index):
        held.append(sum(tape() is not None for tape in tapes))
        tape = FakeTape()
        tapes.append(weakref.ref(tape))
        return Batch((index,), 1, tape, None)

    def fit(state, iteration):
        return state, np.zeros(2)

    steps = make_self_play(config, GAME, NETWORK, machine)._replace(
        play=play,
        statistics=lambda batch: 0,
        remember=lambda state, iteration, index, batch: state,
        fit_policy=fit,
        fit_critic=fit,
        keep_snapshot=lambda state, iteration: state,
    )
    monkeypatch.setattr(catalogue, "make_self_play", lambda *_: steps)
    solver = catalogue.make_solver(config, GAME, NETWORK, machine)
    solver.iterate("state", 1, lambda name, title: contextlib.nullcontext())
    assert held == [0, 0]


def test_a_critic_with_a_device_of_its_own_has_its_memory_there_too():
    config = config_of(64)
    one, four = (memory_needs(config, GAME, machine_of(devices)) for devices in (1, 4))
    capacity = config.critic.capacity
    assert four.memories - one.memories == pytest.approx(capacity * one.per_sample, rel=1e-5)


@pytest.mark.parametrize(
    ("solver", "accumulation"),
    [("deep_cfr", "bootstrap"), ("deep_cfr", "reservoir"), ("policy_gradient", "bootstrap")],
)
def test_memories_of_a_cpu_count_with_what_a_checkpoint_copies_of_them(
    solver, accumulation, tmp_path, monkeypatch
):
    learner = LearnerConfig(accumulation=accumulation)
    critic = CriticConfig(capacity=500)
    config = dataclasses.replace(config_of(8), solver=solver, learner=learner, critic=critic)
    machine, copied = machine_of(1), []
    trained = catalogue.make_solver(config, GAME, NETWORK, machine)
    state = trained.init()
    monkeypatch.setattr(checkpoint, "save", lambda *args: copied.append(args[3]))
    with Saver(config, tmp_path, trained, print) as saver:
        saver.save(state, 1)
    held = memory_bytes(state) + memory_bytes(copied)
    assert memory_needs(config, GAME, machine).memories == held


def memory_bytes(tree):
    """Bytes of the memories in a tree, and of nothing else that it holds."""
    nodes = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, memory.Memory))
    memories = [node for node in nodes if isinstance(node, memory.Memory)]
    return sum(leaf.nbytes for leaf in jax.tree.leaves(memories))


@pytest.mark.parametrize("devices", [1, 3])
def test_a_width_that_does_not_fit_is_refused_with_the_largest_that_does(devices, monkeypatch):
    machine = machine_of(devices)
    needs = memory_needs(config_of(64), GAME, machine)
    enough = needs.memories + needs.tapes + needs.at_home
    monkeypatch.setattr(feasibility, "USABLE", 1.0)
    monkeypatch.setattr(feasibility, "memory_limit_bytes", lambda device: enough)
    check_feasible(config_of(64), GAME, machine)
    wide = dataclasses.replace(
        config_of(64), traversal=TraversalConfig(batch_width=256, traversals=128)
    )
    with pytest.raises(UserError) as caught:
        check_feasible(wide, GAME, machine)
    allowed = int(str(caught.value).split("allowed: at most ")[1].split(",")[0])
    sizes = dataclasses.replace(wide.traversal, batch_width=allowed)
    check_feasible(dataclasses.replace(wide, traversal=sizes), GAME, machine)


def test_memories_that_do_not_fit_are_refused_with_the_samples_that_do(monkeypatch):
    machine = machine_of(1)
    monkeypatch.setattr(feasibility, "USABLE", 1.0)
    monkeypatch.setattr(feasibility, "memory_limit_bytes", lambda device: 10**6)
    each = memory_needs(config_of(8), GAME, machine).per_sample
    with pytest.raises(UserError, match=f"allowed: {10**6 // each} samples"):
        check_feasible(config_of(8, capacity=10**6), GAME, machine)
