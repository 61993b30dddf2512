"""Promises of the settings: checked values, one-line errors, and a faithful round trip."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from lostcities_jax.config import (
    config_from_dict,
    config_keys,
    config_value,
    dump_config,
    find_config,
    load_config,
    with_values,
)
from lostcities_jax.errors import UserError, nearest, run_command, shown
from lostcities_jax.evaluation.agent_file import SHIPPED
from lostcities_jax.rules import MINI, Rules
from lostcities_jax.settings import Config, EvaluationConfig, LearnerConfig


def load(tmp_path, content):
    path = tmp_path / "run.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return load_config(path)


def error_of(call, *args):
    """Text of the UserError of a call, which must be one line."""
    with pytest.raises(UserError) as caught:
        call(*args)
    text = str(caught.value)
    assert text and len(text.splitlines()) == 1
    return text


def test_an_empty_file_means_the_defaults(tmp_path):
    assert load(tmp_path, "") == Config() == config_from_dict({})


def test_the_defaults_pass_their_own_checks():
    assert config_from_dict(dataclasses.asdict(Config())) == Config()


def test_absent_keys_keep_their_defaults(tmp_path):
    config = load(tmp_path, "traversal:\n  batch_width: 64\n")
    assert config == with_values(Config(), {"traversal.batch_width": 64})
    assert config != Config()


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        Config(rules=MINI, evaluation=EvaluationConfig(opponents=())),
        Config(learner=LearnerConfig(learning_rate=1e-5, weight_decay=1e-12)),
        *(Config(devices=text) for text in ("1e3", "010", "no", "~", "ä: #", "1:30", " x\n", "3")),
    ],
)
def test_dump_and_load_round_trip(tmp_path, config):
    assert load(tmp_path, dump_config(config)) == config


def test_a_setting_that_is_gone_is_read_where_it_changes_nothing(tmp_path):
    read = load(tmp_path, "scheduler: {kind: server, push_every: 1}")
    assert read == with_values(Config(), {"scheduler.kind": "server"})
    message = error_of(load, tmp_path, "scheduler: {push_every: 2}")
    assert "'scheduler.push_every' is no setting" in message


def test_the_settings_of_the_shipped_agent_can_be_trained_with(tmp_path):
    with np.load(SHIPPED) as file:
        text = str(file["config"])
    assert load(tmp_path, text).solver == "policy_gradient"


def test_exponents_are_numbers_as_yaml_1_2_has_them(tmp_path):
    assert load(tmp_path, "learner: {learning_rate: 1e-4}").learner.learning_rate == 1e-4


def test_a_whole_number_may_stand_for_a_real_one(tmp_path):
    epsilon = load(tmp_path, "traversal: {epsilon: 1}").traversal.epsilon
    assert isinstance(epsilon, float) and epsilon == 1.0


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("seed: '3'", ["seed is '3'", "a whole number"]),
        ("seed: true", ["seed is True", "a whole number"]),
        ("seed: 3.0", ["seed is 3.0", "a whole number"]),
        ("seed: 010", ["seed is '010'", "a whole number"]),
        ("seed: 1:30", ["seed is '1:30'", "a whole number"]),
        ("seed: -1", ["seed is -1", "at least 0"]),
        ("seed: null", ["seed is None", "a whole number"]),
        ("seed: 2000-01-01", ["seed is '2000-01-01'"]),
        (f"seed: {2**31}", ["less than 2147483648"]),
        ("devices: 3", ["devices is 3", "text"]),
        ("iterations: 0", ["iterations is 0", "at least 1"]),
        ("traversal: {epsilon: 0}", ["traversal.epsilon is 0", "more than 0"]),
        ("traversal: {epsilon: 1.5}", ["traversal.epsilon is 1.5", "at most 1"]),
        ("traversal: {epsilon: .nan}", ["traversal.epsilon is nan", "a finite number"]),
        ("traversal: {epsilon: .inf}", ["traversal.epsilon is inf", "a finite number"]),
        ("traversal: {epsilon: 1e999}", ["traversal.epsilon is inf", "a finite number"]),
        ("traversal: 3", ["traversal is 3", "a mapping"]),
        ("traversal:", ["traversal is None", "a mapping"]),
        ("learner: {warm_start: 1}", ["learner.warm_start is 1", "true or false"]),
        ("learner: {warm_start: yes}", ["learner.warm_start is 'yes'", "true or false"]),
        ("learner: {weighting: lcrf}", ["learner.weighting is 'lcrf'", "'lcfr'", "mean 'lcfr'?"]),
        ("network: {kind: []}", ["network.kind is []", "'mlp'"]),
        ("evaluation: {games: 3}", ["evaluation.games is 3", "a multiple of 2"]),
        ("evaluation: {opponents: random}", ["evaluation.opponents is 'random'", "a list"]),
        ("evaluation: {opponents: [randm]}", ["opponents.0 is 'randm'", "mean 'random'?"]),
        ("rules: {hand: '8'}", ["rules.hand is '8'", "a whole number"]),
        ("rules: {hand: 41}", ["rules.hand is 41; allowed: 1 to 40"]),
        ("rules: {hand: 30}", ["rules.hand is 30", "must leave a card"]),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(tmp_path, text, parts):
    message = error_of(load, tmp_path, text)
    assert "run.yaml" in message
    assert not [part for part in parts if part not in message], message


@pytest.mark.parametrize(
    ("text", "unknown", "near"),
    [
        ("sed: 3", "'sed'", "'seed'"),
        ("traversal: {batch_widht: 3}", "'traversal.batch_widht'", "'traversal.batch_width'"),
        ("batch_width: 3", "'batch_width'", "'traversal.batch_width'"),
        ("rules: {color: 3}", "'rules.color'", "'rules.colors'"),
        ("seed: x\nlearner: {learning-rate: 3}", "'learner.learning-rate'", "learning_rate'"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_one(tmp_path, text, unknown, near):
    message = error_of(load, tmp_path, text)
    assert f"{unknown} is no setting" in message
    assert near in message.partition("did you mean")[2]


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"\xff\xfe\x00", "not UTF-8"),
        ("seed: [1", "line 1"),
        ("seed: 1\n\tx: 2", "line 2"),
        ("seed: \x07", "not a YAML file"),
        ("- 1", "a mapping of keys to values"),
        ("just text", "a mapping of keys to values"),
        ("? [1, 2]\n: 3", "not a YAML file"),
        ("? {a: 1}\n: 3", "not a YAML file"),
        ("1: 2", "'1' is no setting"),
        ("~: 2", "'null' is no setting"),
        ("<<: {seed: 1}", "'<<' is no setting"),
        ("seed: 1\nseed: 2", "line 2: key 'seed' appears twice"),
        ("rules: {hand: 8, hand: 7}", "'hand' appears twice"),
        ("seed: 1\n---\nseed: 2", "not a YAML file"),
        ("a: &a [1]\nb: *a", "line 2: aliases are not allowed"),
        ("a: &a [*a]", "aliases are not allowed"),
        ("a: &a x\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]", "aliases are not allowed"),
        ("seed: !!python/object/apply:os.system [true]", "line 1"),
        ("seed: !!timestamp 2000-13-45", "not a YAML file"),
        ("seed: !!binary aGk=", "seed is"),
        ("seed: !!set {a, b}", "seed is"),
        ("seed: " + "9" * 5000, "YAML"),
        ("seed: " + "9" * 100, "less than"),
        ("seed: " + "[" * 5000, "nested too deeply"),
        ("seed: " + "[" * 150 + "]" * 150, "seed is"),
        ('devices: "\\ud800"', "no JSON value"),
        ("seed: " + "x" * 10_000, "xx..."),
        ("seed: 1 #" + "x" * 1_000_000, "too large"),
    ],
)
def test_a_hostile_file_gives_one_short_line(tmp_path, content, part):
    message = error_of(load, tmp_path, content)
    assert part in message
    assert len(message) < 600


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    assert "No such file" in error_of(load_config, tmp_path / "absent.yaml")
    assert "directory" in error_of(load_config, tmp_path)
    assert "null" in error_of(load_config, "a\0b")


def test_data_that_is_no_plain_mapping_is_refused():
    nested: dict = {}
    nested["rules"] = nested
    assert "no plain mapping" in error_of(config_from_dict, nested)
    assert "no plain mapping" in error_of(config_from_dict, {(1, 2): 3})


def test_every_setting_has_a_dotted_key():
    keys = config_keys()
    assert keys["traversal.batch_width"] is int
    assert keys["learner.warm_start"] is bool
    assert {f"rules.{field.name}" for field in dataclasses.fields(Rules)} <= keys.keys()
    for key in keys:
        value = config_value(Config(), key)
        assert not dataclasses.is_dataclass(value)
        assert with_values(Config(), {key: value}) == Config()


def test_every_setting_is_documented():
    for section in [Config(), *(getattr(Config(), f.name) for f in dataclasses.fields(Config))]:
        if dataclasses.is_dataclass(section):
            for field in dataclasses.fields(section):
                assert f"\n      {field.name}: " in (type(section).__doc__ or ""), field.name


def test_nearest_and_shown_are_short():
    assert nearest("trian", ["train", "play"]) == "; did you mean 'train'?"
    assert nearest("x", ["train"]) == ""
    assert shown("a\nb") == r"'a\nb'"
    assert len(shown("x" * 1000)) == 60


def test_a_user_error_is_always_one_line():
    assert str(UserError("a\n  b\r\nc\u2028d")) == "a b c d"


def test_a_command_reports_a_user_error_in_one_line(capsys):
    def main(argv):
        raise UserError(f"{argv[0]} is\nwrong")

    assert run_command(main, ["it"]) == 2
    assert capsys.readouterr() == ("", "error: it is wrong\n")


def test_a_command_returns_its_own_code(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["prog", "4"])
    assert run_command(lambda argv: int(argv[0])) == 4
    assert run_command(lambda argv: None, []) == 0


def test_a_command_can_be_interrupted(capsys):
    def main(argv):
        raise KeyboardInterrupt

    assert run_command(main, []) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_command_does_not_hide_a_bug():
    with pytest.raises(ZeroDivisionError):
        run_command(lambda argv: 1 // 0, [])


def test_a_closed_pipe_ends_a_command_quietly():
    script = (
        "import sys\n"
        "from lostcities_jax.errors import run_command\n"
        "main = lambda argv: [print('x' * 1000) for _ in range(10000)] and 0\n"
        "sys.exit(run_command(main, []))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    with process.stdout, process.stderr:
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
    assert (process.wait(), errors) == (141, b"")


def test_importing_the_settings_does_not_load_orbax():
    script = (
        "import sys, lostcities_jax.config, lostcities_jax.cli\n"
        "import lostcities_jax.tracking, lostcities_jax.checkpoint\n"
        "sys.exit('orbax.checkpoint' in sys.modules)\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_shipped_config_goes_by_its_name():
    assert load_config(find_config("mini")).rules == MINI
    assert load_config(find_config("default")) == Config()


def test_a_file_goes_before_a_shipped_config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smoke").write_text("seed: 5")
    assert load_config(find_config("smoke")).seed == 5
    for path in ("smoke.yaml", "./mini", str(tmp_path / "mini")):
        assert "cannot be read" in error_of(lambda path=path: load_config(find_config(path)))


def test_a_config_by_no_ones_name_is_told_the_nearest():
    message = error_of(find_config, "smok")
    assert message.startswith("config 'smok' is no file and no shipped config; allowed: a file, or")
    assert "default" in message and message.endswith("did you mean 'smoke'?")


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("maybe", "bool"),
        ("foo", "timestamp"),
        ('""', "int"),
        ('""', "float"),
        ("9:" * 400 + "9", "float"),
    ],
)
def test_a_tag_that_does_not_fit_its_text_is_refused(tmp_path, text, tag):
    message = error_of(load, tmp_path, f"seed: 1\niterations: !!{tag} {text}")
    assert "line 2" in message and f"is no {tag}" in message
