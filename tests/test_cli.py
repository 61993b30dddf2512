"""Promises of the commands' flags."""

import pathlib
import typing

import pytest

from lostcities_jax.bots import BOTS
from lostcities_jax.cli import (
    EvaluateArguments,
    Preset,
    RateArguments,
    check_overrides,
    parse_evaluate,
    parse_play,
    parse_rate,
    parse_report,
    parse_train,
)
from lostcities_jax.config import config_keys, config_value, dump_config, with_values
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.rules import PRESETS
from lostcities_jax.settings import Config, SearchConfig


def error_of(*argv, parse=parse_train):
    """Text of the UserError of a command line, which must be one line."""
    with pytest.raises(UserError) as caught:
        parse(argv)
    text = str(caught.value)
    assert text and len(text.splitlines()) == 1
    return text


def test_no_flags_mean_the_defaults():
    arguments = parse_train([])
    assert arguments.config == Config()
    assert (arguments.run_dir, arguments.resume, arguments.overrides) == (None, False, ())


@pytest.mark.parametrize(
    "argv",
    [
        ["--traversal.batch-width", "64"],
        ["--traversal.batch_width", "64"],
        ["--traversal.batch-width=64"],
        ["--traversal.batch_width=64"],
        ["--traversal.batch-width", "8", "--traversal.batch_width", "64"],
    ],
)
def test_a_flag_has_two_spellings_and_the_last_one_wins(argv):
    arguments = parse_train(argv)
    assert arguments.config == with_values(Config(), {"traversal.batch_width": 64})
    assert arguments.overrides == ("traversal.batch_width",)


@pytest.mark.parametrize("key", config_keys())
def test_every_setting_has_a_flag(key):
    assert parse_train([f"--{key}={_other_text(key)}"]).overrides == (key,)


def _other_text(key):
    """A value that is allowed and not the default."""
    kind, default = config_keys()[key], config_value(Config(), key)
    if typing.get_origin(kind) is typing.Literal:
        return next(value for value in typing.get_args(kind) if value != default)
    texts = {
        "devices": "cpu",
        "rules.colors": "4",
        "rules.penalty": "-4",
        "traversal.epsilon": "1e-2",
        "learner.learning_rate": "1e-4",
        "learner.warm_start": "false",
        "rival.greedy": "true",
        "evaluation.opponents": "random",
        "traversal.sparring": "noisy",
        "evaluation.games": "2",
    }
    return texts.get(key, "1")


@pytest.mark.parametrize(
    ("argv", "value"),
    [
        (["--learner.warm-start"], True),
        (["--learner.no-warm-start"], False),
        (["--learner.no_warm_start"], False),
        (["--learner.warm-start", "false"], False),
        (["--learner.warm-start=true"], True),
    ],
)
def test_a_truth_value_is_set_with_and_without_no(argv, value):
    arguments = parse_train(argv)
    assert arguments.config.learner.warm_start is value
    assert arguments.overrides == ("learner.warm_start",)


def test_a_list_takes_any_number_of_values():
    argv = ["--evaluation.opponents", "random", "noisy", "--seed", "3"]
    config = parse_train(argv).config
    assert (config.evaluation.opponents, config.seed) == (("random", "noisy"), 3)
    assert parse_train(["--evaluation.opponents"]).config.evaluation.opponents == ()


def test_a_negative_number_is_a_value():
    assert parse_train(["--rules.penalty", "-30"]).config.rules.penalty == -30


def test_a_text_setting_keeps_its_text():
    assert parse_train(["--devices", "2"]).config.devices == "2"


def test_run_dir_and_resume_are_no_settings():
    arguments = parse_train(["--run-dir", "runs/a", "--resume", "--seed", "1"])
    assert arguments.run_dir == pathlib.Path("runs/a")
    assert arguments.resume
    assert arguments.overrides == ("seed",)
    assert parse_train(["--run_dir=runs/a=b"]).run_dir == pathlib.Path("runs/a=b")


def test_a_flag_wins_over_the_file_and_the_file_over_the_defaults(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("seed: 5\niterations: 7\n")
    arguments = parse_train(["--seed", "6", "--config", str(path)])
    assert arguments.config == with_values(Config(), {"seed": 6, "iterations": 7})
    assert set(arguments.overrides) == set(config_keys())


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (["--traversal.batch-widht", "3"], ["'--traversal.batch-widht'", "mean '--traversal.ba"]),
        (["--batch-width", "3"], ["'--batch-width'", "mean '--traversal.batch-width'?"]),
        (["--sed=3"], ["'--sed' is no flag", "mean '--seed'?"]),
        (["--learner.no-learning-rate"], ["'--learner.no-learning-rate' is no flag"]),
        (["--no-resume"], ["'--no-resume' is no flag", "mean '--resume'?"]),
        (["-s", "3"], ["'-s' is no flag"]),
        (["seed=3"], ["'seed=3' is no flag", "mean '--seed'?"]),
        (["--seed", "-s"], ["--seed is missing"]),
        (["--seed", "3", "-s"], ["'-s' is no flag"]),
        (["--evaluation.opponents=random", "noisy"], ["'noisy' is no flag"]),
        (["--"], ["'--' is no flag"]),
        ([""], ["'' is no flag"]),
        (["--settings.seed", "3"], ["'--settings.seed' is no flag"]),
        (["--\nseed"], [r"'--\nseed' is no flag"]),
        (["--seed"], ["--seed is missing"]),
        (["--seed", "--iterations", "3"], ["--seed is missing"]),
        (["--seed", "1", "2"], ["--seed is '1 2'", "one value"]),
        (["--config"], ["--config is missing"]),
        (["--run-dir"], ["--run-dir is missing"]),
        (["--seed", "x"], ["seed is 'x'", "a whole number"]),
        (["--seed", ""], ["seed is ''", "a whole number"]),
        (["--seed", "1.0"], ["seed is 1.0", "a whole number"]),
        (["--seed", "010"], ["seed is '010'", "a whole number"]),
        (["--seed", "true"], ["seed is True", "a whole number"]),
        (["--seed", "[1]"], ["seed is '[1]'", "a whole number"]),
        (["--seed", "1 # x"], ["seed is '1 # x'", "a whole number"]),
        (["--seed", "9" * 5000], ["seed is '999", "a whole number"]),
        (["--learner.learning-rate", "nan"], ["learner.learning_rate is 'nan'", "a number"]),
        (["--learner.learning-rate", ".nan"], ["learner.learning_rate is nan", "finite"]),
        (["--traversal.epsilon", "0"], ["traversal.epsilon is 0", "more than 0"]),
        (["--traversal.opponent", "curent"], ["'curent'", "'average'", "mean 'current'?"]),
        (["--evaluation.opponents", "random", "nosy"], ["opponents.1 is 'nosy'", "mean 'noisy'?"]),
        (["--rules.hand", "50"], ["rules.hand is 50; allowed: 1 to 40"]),
        (["--learner.warm-start", "maybe"], ["--learner.warm-start is 'maybe'", "true or false"]),
        (["--learner.no-warm-start", "true"], ["--learner.no-warm-start is 'true'", "no value"]),
        (["--devices", "\udc80"], ["no JSON value"]),
        (["--resume"], ["--resume needs --run-dir"]),
        (["--config", "absent.yaml"], ["'absent.yaml' cannot be read"]),
    ],
)
def test_a_mistake_is_named_in_one_line(argv, parts):
    message = error_of(*argv)
    assert not [part for part in parts if part not in message], message
    assert len(message) < 400


def test_a_mistake_is_exit_code_2_without_a_traceback(capsys):
    assert run_command(lambda argv: print(parse_train(argv)), ["--sed", "3"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: '--sed' is no flag") and err.count("\n") == 1


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["--seed", "3", "--help"]])
def test_help_lists_every_flag_with_its_default(argv, capsys):
    with pytest.raises(SystemExit) as caught:
        parse_train(argv, default=with_values(Config(), {"memory.strategy_capacity": 12345}))
    out, err = capsys.readouterr()
    assert (caught.value.code, err) == (0, "")
    missing = [key for key in config_keys() if f"--{key.replace('_', '-')}" not in out]
    assert not missing
    assert "--config" in out and "--run-dir" in out and "--resume" in out
    assert "12345" in out and "--settings" not in out


def test_resume_accepts_the_settings_the_run_has(tmp_path):
    run = with_values(Config(), {"seed": 4})
    path = tmp_path / "run.yaml"
    path.write_text(dump_config(run))
    resume = ["--resume", "--run-dir", str(tmp_path)]
    for argv in ([], ["--seed", "4"], ["--config", str(path)]):
        check_overrides(parse_train(resume + argv), run)


def test_resume_refuses_other_settings(tmp_path):
    run = with_values(Config(), {"seed": 4})
    path = tmp_path / "run.yaml"
    path.write_text("iterations: 3")
    resume = ["--resume", "--run-dir", str(tmp_path)]
    for argv, part in (
        (["--seed", "5"], "seed is 5, but the run in"),
        (["--config", str(path)], "seed is 0, but the run in"),
    ):
        with pytest.raises(UserError, match=part):
            check_overrides(parse_train(resume + argv), run)


def test_an_agent_meets_every_bot_by_default():
    assert parse_evaluate(["runs/a"]) == EvaluateArguments(agent="runs/a", against=tuple(BOTS))


def test_the_presets_of_the_flags_are_those_of_the_rules():
    assert typing.get_args(Preset) == tuple(PRESETS)


def test_every_flag_of_evaluate_sets_its_field():
    argv = (
        "runs/a --against noisy runs/b --games 10 --seed 3 --batch-width 64 --policy current "
        "--rules mini --devices 2 --json out.json --search.worlds 32 --search.actions 4 "
        "--search.depth 2 --search.margin 2 --search.play sampled "
        "--search.least-probability 0.1"
    )
    assert parse_evaluate(argv.split()) == EvaluateArguments(
        agent="runs/a",
        against=("noisy", "runs/b"),
        games=10,
        seed=3,
        batch_width=64,
        policy="current",
        search=SearchConfig(
            worlds=32, actions=4, depth=2, margin=2.0, play="sampled", least_probability=0.1
        ),
        rules="mini",
        devices="2",
        json=pathlib.Path("out.json"),
    )


@pytest.mark.parametrize("flag", ["--batch-width 64", "--batch_width 64", "--batch_width=64"])
def test_a_flag_of_evaluate_has_two_spellings(flag):
    assert parse_evaluate(["noisy", *flag.split()]).batch_width == 64


@pytest.mark.parametrize(
    "line",
    [
        "me --games 10 --against a b",
        "--games 10 me --against a b",
        "--against a b --games 10 me",
        "--against a b --games=10 me",
        "--against a --games 10 me --against a b",
    ],
)
def test_the_agent_may_stand_wherever_no_list_takes_it(line):
    arguments = parse_evaluate(line.split())
    assert (arguments.agent, arguments.against, arguments.games) == ("me", ("a", "b"), 10)
    assert parse_evaluate(["--against=a", "me"]).agent == "me"


def test_a_replay_needs_no_agent():
    arguments = parse_evaluate(["--replay", "game.json"])
    assert (arguments.agent, arguments.replay) == (None, pathlib.Path("game.json"))


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("", ["AGENT is missing", "before --against, or --replay FILE"]),
        ("--against a me", ["AGENT is missing", "before --against"]),
        ("me --replay game.json", ["AGENT is 'me' with --replay", "either AGENT"]),
        ("me you", ["AGENT is 'me you'", "one value"]),
        ("me --games 10 you", ["AGENT is 'me you'", "one value"]),
        ("me --game 10", ["'--game' is no flag", "mean '--games'?"]),
        ("me --batch_widht 10", ["'--batch_widht' is no flag", "mean '--batch-width'?"]),
        ("me --traversal.batch-width 10", ["is no flag", "mean '--batch-width'?"]),
        ("me -g 10", ["'-g' is no flag"]),
        ("me --against a -g 10", ["'-g' is no flag"]),
        ("--agent me", ["'--agent' is no flag"]),
        ("me --no-games", ["'--no-games' is no flag", "mean '--games'?"]),
        ("me --games", ["--games is missing", "one value"]),
        ("me --replay", ["--replay is missing"]),
        ("me --games --seed 1", ["--games is missing"]),
        ("me --against", ["against is []", "1 or more entries"]),
        ("me --against=", ["against.0 is ''", "1 or more characters"]),
        ("me --games x", ["games is 'x'", "a whole number"]),
        ("me --games 10.0", ["games is 10.0", "a whole number"]),
        ("me --games true", ["games is True", "a whole number"]),
        ("me --games 3", ["games is 3", "a multiple of 2"]),
        ("me --games 0", ["games is 0", "at least 2"]),
        ("me --seed -1", ["seed is -1", "at least 0"]),
        ("me --batch-width 0", ["batch_width is 0", "at least 1"]),
        ("me --batch-width 1048577", ["batch_width is 1048577", "at most 1048576"]),
        ("me --policy avrage", ["policy is 'avrage'", "'current'", "mean 'average'?"]),
        ("me --rules six-colors", ["rules is 'six-colors'", "'mini'", "mean 'six_colors'?"]),
        ("me --rules None", ["rules is 'None'", "'classic'"]),
        ("me --search.worlds 1", ["search.worlds is 1; allowed: 0 for no search, or 2 and more"]),
        ("me --search.worlds 5000", ["search.worlds is 5000", "at most 4096"]),
        ("me --search.worlds 4 --search.actions 1", ["search.actions is 1", "at least 2"]),
        ("me --search.worlds 4 --search.depth -1", ["search.depth is -1", "at least 0"]),
        ("me --search.worlds 4 --search.margin nan", ["search.margin is 'nan'", "a number"]),
        ("me --search.least-probability 1", ["search.least_probability is 1", "less than 1"]),
        (
            "me --search.worlds 4 --search.play gready",
            ["search.play is 'gready'", "mean 'greedy'?"],
        ),
        ("me --search.margin 2", ["search.margin without a search", "search.worlds of 2 and more"]),
        ("me --search.world 4", ["'--search.world' is no flag", "mean '--search.worlds'?"]),
        ("me --devices=", ["devices is ''", "1 or more characters"]),
        ("me --json \udc80", ["no JSON value"]),
    ],
)
def test_a_mistake_of_evaluate_is_named_in_one_line(line, parts):
    message = error_of(*line.split(), parse=parse_evaluate)
    assert not [part for part in parts if part not in message], message
    assert len(message) < 400


def test_an_empty_agent_is_a_mistake():
    assert "agent is ''; allowed: 1 or more characters" in error_of("", parse=parse_evaluate)


def test_help_of_evaluate_lists_every_flag_with_its_default(capsys):
    with pytest.raises(SystemExit) as caught:
        parse_evaluate(["me", "--games", "3", "-h"], prog="python -m lostcities")
    out, err = capsys.readouterr()
    assert (caught.value.code, err) == (0, "")
    assert "python -m lostcities" in out and "[AGENT]" in out and "2000" in out
    flags = [f"--{key.replace('_', '-')}" for key in config_keys(EvaluateArguments)]
    assert [flag for flag in flags if flag not in out] == ["--agent"]
    assert not [name for name in (*BOTS, *PRESETS) if name not in out]


def test_all_bots_are_rated_by_default():
    assert parse_rate([]) == RateArguments(agents=(), bots=tuple(BOTS))


def test_every_flag_of_rate_sets_its_field():
    argv = (
        "runs/a runs/b --bots random --policy current --greedy false --games 20 --seed 3 "
        "--batch-width 64 --rules mini --devices cpu:1 --cross --json out.json"
    )
    assert parse_rate(argv.split()) == RateArguments(
        agents=("runs/a", "runs/b"),
        bots=("random",),
        policy="current",
        greedy=False,
        games=20,
        seed=3,
        batch_width=64,
        rules="mini",
        devices="cpu:1",
        cross=True,
        json=pathlib.Path("out.json"),
    )
    assert parse_rate(["a", "--no-greedy", "--games", "20", "b"]).agents == ("a", "b")


@pytest.mark.parametrize("flag", ["--cross=runs/b", "--cross=", "--no-greedy=runs/b"])
def test_a_value_joined_to_its_flag_is_no_agent(flag):
    name, _, value = flag.partition("=")
    message = error_of("runs/a", flag, "runs/c", parse=parse_rate)
    assert f"{name} is {value!r}; allowed: no value" in message


@pytest.mark.parametrize(
    ("parse", "line", "words"),
    [
        (parse_evaluate, "--replay f --json g", "--json is given with --replay"),
        (parse_evaluate, "--replay f --batch-width 64", "--batch-width is given with --replay"),
        (parse_evaluate, "--replay f --against random", "--against is given with --replay"),
        (parse_report, "runs/a --game 2", "--game is given without --replay"),
        (parse_play, "random --text --port 80", "--port is given with --text"),
        (parse_play, "random --policy current", "--policy is given with bots alone"),
        (parse_play, "--rules mini --policy current", "--policy is given with bots alone"),
        (
            parse_evaluate,
            "noisy --against random --policy current",
            "--policy is given with bots alone",
        ),
        (parse_rate, "noisy --policy average", "--policy is given with bots alone"),
        (parse_rate, "--no-greedy", "--greedy is given with bots alone"),
    ],
)
def test_a_flag_that_would_be_ignored_is_refused(parse, line, words):
    assert words in error_of(*line.split(), parse=parse)


@pytest.mark.parametrize(
    ("parse", "line"),
    [
        (parse_play, "--policy current"),
        (parse_play, "shipped --rules classic --policy current"),
        (parse_evaluate, "noisy --against random runs/a --policy current"),
        (parse_evaluate, "runs/a --against random --policy current"),
        (parse_rate, "noisy runs/a --policy average --no-greedy"),
    ],
)
def test_what_a_checkpoint_among_the_agents_hears_is_not_refused(parse, line):
    assert parse(line.split()).policy in ("current", "average")


def test_resume_accepts_a_rival_by_the_name_of_its_run(tmp_path):
    own = with_values(Config(), {"rival.agent": "runs/a/checkpoints/7"})
    for name in ("runs/a", "runs/a/", "runs/a/checkpoints/7"):
        asked = ["--resume", "--run-dir", str(tmp_path), "--rival.agent", name]
        check_overrides(parse_train(asked), own)
    for name in ("runs/b", "runs/a/checkpoints/8", ""):
        asked = ["--resume", "--run-dir", str(tmp_path), f"--rival.agent={name}"]
        with pytest.raises(UserError, match=r"rival\.agent is .* but the run in"):
            check_overrides(parse_train(asked), own)
