"""The tune command: it finds the fastest setting, and leaves a config that differs in it alone."""

import collections
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from benchmarks import tuning as tuning_benchmark
from lostcities_jax import tune, tuning
from lostcities_jax.assembly import Assembly
from lostcities_jax.config import load_config, with_values
from lostcities_jax.devices import SAME
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.games.kuhn import kuhn
from lostcities_jax.tuning import Setting, Timing, widths_to_try
from lostcities_jax.tuning import tune as find

pytestmark = pytest.mark.usefixtures("quick_compile")

TINY = """
iterations: 3
game: kuhn
network: {kind: mlp, hidden: 4, layers: 1}
traversal: {batch_width: 8, traversals: 16}
memory: {advantage_capacity: 500, strategy_capacity: 500}
learner: {batch_size: 8, advantage_steps: 2, strategy_steps: 2}
critic: {steps: 2, capacity: 500}
"""


def timed(seconds):
    return Timing(seconds, seconds / 2, 1000)


@pytest.mark.parametrize("seed", range(20))
def test_the_setting_found_is_within_5_percent_of_the_best_on_a_noisy_machine(seed):
    random = np.random.default_rng(seed)
    settings = [Setting(2**k, "cpu:1") for k in range(6, 14)]
    true = {one: 1.0 + 0.15 * abs(k - 4) for k, one in enumerate(settings)}

    def measure(setting, iterations):
        return [timed(true[setting] * random.uniform(1, 1.1)) for _ in range(iterations)]

    found = find(settings, measure, 5, lambda _: None)
    assert true[found[0].setting] <= 1.05 * min(true.values())
    assert sorted(one.setting for one in found) == sorted(settings)


@pytest.mark.parametrize(("hurry", "missed", "code"), [(1.0, 0, 0), (10.0, 60, 1)])
def test_the_benchmark_of_tune_says_what_its_choice_misses(
    hurry, missed, code, monkeypatch, capsys
):
    """The widest is the fastest, unless the others seem faster to tune than in the sweep."""
    true = {32: 2.0, 64: 1.8, 128: 1.6, 256: 1.0}
    calls = collections.Counter()

    def measure(config, setting, iterations):
        calls[setting] += 1
        in_sweep = calls[setting] == 1
        return [timed(true[setting.width] / (1 if in_sweep or setting.width == 256 else hurry))]

    monkeypatch.setattr(tuning_benchmark, "measure_setting", measure)
    monkeypatch.setattr(tuning_benchmark, "places_to_try", lambda: [("cpu:1", SAME)])
    flags = "--widths 32 64 128 256 --repeats 1"
    assert run_command(tuning_benchmark.main, flags.split()) == code
    assert f"the choice of tune is {missed}.0 % slower" in capsys.readouterr().out


def test_the_benchmark_of_tune_says_which_settings_it_leaves_out(monkeypatch, capsys):
    def measure(config, setting, iterations):
        if setting.width > 32:
            raise UserError("too wide")
        return [timed(1.0)] * iterations

    monkeypatch.setattr(tuning_benchmark, "measure_setting", measure)
    monkeypatch.setattr(tuning_benchmark, "places_to_try", lambda: [("cpu:1", SAME)])
    assert run_command(tuning_benchmark.main, ["--widths", "32", "64"]) == 0
    printed = capsys.readouterr().out
    assert "left out: 64 lanes on cpu:1: too wide" in printed
    assert "the choice of tune is 0.0 % slower" in printed
    assert run_command(tuning_benchmark.main, ["--widths", "64"]) == 2
    assert "every setting is refused" in capsys.readouterr().err


def test_settings_that_cannot_be_are_told_and_left_out():
    def measure(setting, iterations):
        if setting.width == 64:
            raise UserError("too wide")
        return [timed(1.0)] * iterations

    told = []
    settings = [Setting(32, "cpu:1"), Setting(64, "cpu:1")]
    found = find(settings, measure, 2, told.append)
    assert found[0].setting.width == 32
    assert found[1].refusal == "too wide" and found[1] in told
    with pytest.raises(UserError, match="too wide"):
        find(settings[1:], measure, 2, told.append)


def test_the_command_writes_the_config_with_a_measured_setting(tmp_path, capsys):
    (tmp_path / "tiny.yaml").write_text(TINY)
    out = tmp_path / "tuned.yaml"
    flags = f"--config {tmp_path}/tiny.yaml --widths 3 --places cpu:1/cpu:2 cpu:9999 --repeats 1"
    assert run_command(tune.main, [*flags.split(), "--seed", "3", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "devices is cpu:9999; allowed: at most cpu:" in " ".join(printed.split())
    tuned, given = load_config(out), load_config(tmp_path / "tiny.yaml")
    changed = {
        "seed": 3,
        "devices": "cpu:1",
        "traversal.batch_width": 3,
        "traversal.devices": "cpu:2",
    }
    assert tuned == with_values(given, changed)
    assert "--traversal.batch-width 3" in printed
    assert run_command(tune.main, ["--out", str(out)]) == 2
    assert "exists; allowed: a new file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("--widths 0", "widths.0 is 0"),
        ("--widths many", "widths.0 is 'many'"),
        ("--places cpu:0 --widths 32", "devices is 'cpu:0'"),
        ("--repeats 0", "repeats is 0"),
        ("--scheduler.kind server", "scheduler.kind is server"),
        ("--width 3", "'--width' is no flag"),
        ("--devices cpu:1", "--devices is given to tune; allowed: what to try as --places"),
        ("--traversal.devices cpu:1", "--traversal.devices is given to tune"),
        ("--traversal.batch-width 64", "--traversal.batch-width is given to tune; allowed: what"),
    ],
)
def test_a_wrong_flag_is_one_line(flags, named, capsys):
    assert run_command(tune.main, flags.split()) == 2
    error = capsys.readouterr().err
    assert named in error and "allowed" in error and error.count("\n") == 1


def test_no_more_lanes_than_traversals_are_tried(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)
    config = load_config(tmp_path / "tiny.yaml")
    assert widths_to_try(config) == [32]
    assert widths_to_try(with_values(config, {"traversal.traversals": 300})) == [32, 64, 128, 256]


def test_a_finalist_that_cannot_be_measured_again_is_left_out_and_no_other():
    def measure(setting, iterations):
        if setting.width == 32 and iterations > 1:
            raise UserError("out of memory")
        return [timed(setting.width)] * iterations

    settings = [Setting(width, "cpu:1") for width in (32, 64, 128)]
    found = find(settings, measure, 2, lambda _: None)
    assert [one.setting.width for one in found] == [64, 128, 32]
    assert found[-1].refusal == "out of memory"
    with pytest.raises(UserError, match="no setting can be measured: out of memory"):
        find(settings[:1], measure, 2, lambda _: None)


class Solver:
    """A solver whose iterations end as they are told to."""

    def __init__(self, iterate):
        self.init, self.close, self.iterate = dict, lambda: None, iterate


def broken(*_):
    raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")


def too_long(state, iteration, timed):
    with timed("traversal", ""):
        pass
    batch = SimpleNamespace(nodes=np.ones(1), overflows=0, unfinished=3)
    return state, SimpleNamespace(statistics=[batch])


@pytest.mark.parametrize(
    ("iterate", "message"),
    [(broken, "out of memory.*lower traversal.batch_width"), (too_long, "too few for 3 trav")],
)
def test_what_train_would_stop_at_is_no_measurement(iterate, message, tmp_path, monkeypatch):
    (tmp_path / "tiny.yaml").write_text(TINY)
    assembled = Assembly(kuhn(), None, None, Solver(iterate))
    monkeypatch.setattr(tuning, "assemble", lambda *_: assembled)
    with pytest.raises(UserError, match=message):
        tuning.measure_setting(load_config(tmp_path / "tiny.yaml"), Setting(8, "cpu:1"), 1)
