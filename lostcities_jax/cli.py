"""The train command's flags: one dotted flag for every setting, checked like a config file.

tyro draws the help from the dataclasses. Names and values are checked here, since tyro
answers a mistake with a box of many lines and without the bounds of `config`.
"""

import dataclasses
import pathlib
import typing
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import tyro

from lostcities_jax.config import (
    Config,
    config_keys,
    config_value,
    load_config,
    parse_scalar,
    with_values,
)
from lostcities_jax.errors import UserError, nearest, shown

_HELP = ("-h", "--help")
_TRUTH_VALUES = {"true": True, "false": False}


@dataclasses.dataclass(frozen=True)
class TrainArguments:
    """What the train command was asked to do.

    Attributes:
      config: the settings, with those of the command line on top of those of the file.
      run_dir: folder of the run.
      resume: continue the run in `run_dir`.
      overrides: dotted keys whose values were given: by flag, or all of them with `--config`.
    """

    config: Config
    run_dir: pathlib.Path | None = None
    resume: bool = False
    overrides: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class _Flags:
    """Train a Lost Cities policy; a flag wins over the config file.

    Attributes:
      config: YAML file of settings; the defaults below apply without it.
      run_dir: folder of the run.
      resume: continue the run in --run-dir with its own settings.
    """

    config: Annotated[pathlib.Path | None, tyro.conf.arg(metavar="FILE")] = None
    run_dir: Annotated[pathlib.Path | None, tyro.conf.arg(metavar="DIR")] = None
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    settings: Annotated[Config, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Config)


def parse_train(
    argv: Sequence[str], default: Config | None = None, prog: str = "lostcities-train"
) -> TrainArguments:
    """Parse the train command's flags; `--help` prints them and exits with 0.

    Args:
      argv: arguments without the program's name.
      default: settings without `--config`; `Config()` by default.
      prog: the command as the help names it.

    Raises:
      UserError: for an unknown flag, a missing value or a value that is not allowed.
    """
    default = default or Config()
    if any(token in _HELP for token in argv):
        tyro.cli(_Flags, args=["--help"], prog=prog, default=_Flags(settings=default))
    given = dict(_read_flags(argv))
    path = given.pop("config", None)
    run_dir = given.pop("run_dir", None)
    resume = given.pop("resume", False)
    if resume and run_dir is None:
        raise UserError("--resume needs --run-dir, the folder of the run to continue")
    base = default if path is None else load_config(path)
    return TrainArguments(
        config=with_values(base, given),
        run_dir=None if run_dir is None else pathlib.Path(run_dir),
        resume=resume,
        overrides=tuple(given) if path is None else tuple(config_keys()),
    )


def check_overrides(arguments: TrainArguments, run_config: Config) -> None:
    """Refuse to resume a run with settings other than those it was started with.

    Raises:
      UserError: for the first given setting that differs from the run's.
    """
    for key in arguments.overrides:
        asked, own = config_value(arguments.config, key), config_value(run_config, key)
        if asked != own:
            raise UserError(
                f"{key} is {shown(asked)}, but the run in {arguments.run_dir} has {shown(own)}; "
                f"allowed with --resume: the run's own settings"
            )


def _read_flags(argv: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Key and value of every flag of the command line, in its order."""
    kinds = {"config": str, "run_dir": str, "resume": bool} | config_keys()
    tokens = list(argv)
    while tokens:
        flag, equals, inline = tokens.pop(0).partition("=")
        values = [inline] if equals else []
        while not equals and tokens and not tokens[0].startswith("--"):
            values.append(tokens.pop(0))
        key, negated = _find_key(flag, kinds)
        yield key, _read_value(flag, kinds[key], values, negated)


def _find_key(flag: str, kinds: dict[str, Any]) -> tuple[str, bool]:
    """Key of a flag in either spelling, and whether it is the `no-` form of a truth value."""
    key = flag.removeprefix("--").replace("-", "_")
    if flag.startswith("--"):
        if key in kinds:
            return key, False
        section, dot, name = key.rpartition(".")
        positive = section + dot + name.removeprefix("no_")
        if positive != key and kinds.get(positive) is bool and positive != "resume":
            return positive, True
    names = [_flag(name) for name in kinds]
    near = nearest(flag.replace("_", "-"), names)
    raise UserError(f"{shown(flag)} is no flag; allowed: those of --help{near}")


def _read_value(flag: str, kind: Any, values: list[str], negated: bool) -> Any:
    if kind is bool:
        if not values:
            return not negated
        allowed = "no value" if negated else "no value, true or false"
        if negated or len(values) > 1 or values[0] not in _TRUTH_VALUES:
            raise UserError(f"{flag} is {shown(' '.join(values))}; allowed: {allowed}")
        return _TRUTH_VALUES[values[0]]
    if typing.get_origin(kind) is tuple:
        return values
    if len(values) != 1:
        got = shown(" ".join(values)) if values else "missing"
        raise UserError(f"the value of {flag} is {got}; allowed: one value")
    return parse_scalar(values[0]) if kind in (int, float) else values[0]


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")
