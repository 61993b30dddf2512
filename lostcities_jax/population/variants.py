"""Variants: the configurations of a population, and which of them one program can train.

A number that only enters arithmetic may differ from lane to lane of one program, as an array
with an entry for each. What decides shapes, or which code runs, splits the variants into groups,
each of which is compiled and run in turn.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lostcities_jax.config import config_keys, config_value, with_values
from lostcities_jax.errors import UserError, nearest, shown
from lostcities_jax.settings import Config
from lostcities_jax.strict_yaml import parse_scalar

IN_LANES = (  # settings that may differ between the lanes of one program
    "seed",
    "traversal.epsilon",
    "league.current",
    "league.recent",
    "league.older",
    "league.anchor",
    "critic.trace",
    "critic.target_scale",
    "learner.learning_rate",
    "learner.weight_decay",
    "learner.max_grad_norm",
    "learner.weighting",
    "learner.target_scale",
    "learner.horizon",
    "gradient.clip",
    "gradient.entropy",
    "gradient.final_entropy",
    "utility.points",
    "utility.win",
)
_NOT_TRAINING = ("devices", "evaluation.", "checkpoint.")  # do not decide what is learned
_MOST = 10_000  # values of one setting, and variants
_MOST_DIGITS = 10  # more than any whole number that is allowed has


class Group(NamedTuple):
    """Variants that one program trains.

    Attributes:
      config: the settings they share; those of IN_LANES are of the first.
      members: their places among all variants, in order.
    """

    config: Config
    members: tuple[int, ...]


def expand(config: Config, vary: Sequence[str]) -> list[Config]:
    """Every combination of values of the settings that vary, the last of them fastest.

    Args:
      config: what the variants have in common.
      vary: texts such as `learner.learning_rate=1e-3,2e-3` or `seed=0:8` (0 to 7). A section
        may be left out where the name is unique.

    Raises:
      UserError: for a text that is none of these, an unknown setting or one given twice, a
        value that is not allowed or there twice, or more than 10,000 variants.
    """
    axes: dict[str, list[Any]] = {}
    for text in vary:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise UserError(f"vary is {shown(text)}; allowed: SETTING=VALUE,... or SETTING=FROM:TO")
        key = full_key(name)
        if key in axes:
            raise UserError(f"{key} varies twice; allowed: all its values after one =")
        axes[key] = _values(key, values)
    count = math.prod(len(values) for values in axes.values())
    if count > _MOST:
        raise UserError(f"the values of vary make {count} variants; allowed: at most {_MOST}")
    return [
        with_values(config, dict(zip(axes, combination, strict=True)))
        for combination in itertools.product(*axes.values())
    ]


def full_key(name: str) -> str:
    """Dotted key of a setting that a population may vary, given it or its last part.

    Raises:
      UserError: for an unknown name, or one that several sections have.
    """
    keys = [key for key in config_keys() if not key.startswith(_NOT_TRAINING)]
    name = name.strip().replace("-", "_")
    found = [name] if name in keys else [key for key in keys if key.endswith(f".{name}")]
    if len(found) > 1:
        raise UserError(f"{shown(name)} may be {', '.join(found)}; allowed: one of these")
    if not found:
        names = keys if "." in name else [key.rpartition(".")[2] for key in keys]
        raise UserError(
            f"{shown(name)} is no setting of training; allowed: those of "
            f"--help{nearest(name, names)}"
        )
    return found[0]


def group(variants: Sequence[Config]) -> list[Group]:
    """The variants by what one program can train, in the order of their first members."""
    groups: dict[Config, list[int]] = {}
    for place, variant in enumerate(variants):
        groups.setdefault(_shared(variant), []).append(place)
    return [Group(variants[members[0]], tuple(members)) for members in groups.values()]


def differences(variants: Sequence[Config]) -> dict[str, list[Any]]:
    """The settings in which variants differ, each with the value of every variant."""
    columns = {key: [config_value(variant, key) for variant in variants] for key in config_keys()}
    return {key: column for key, column in columns.items() if len(set(column)) > 1}


def with_numbers(config: Config, numbers: Mapping[str, Any]) -> Config:
    """The config with other values for some keys, unchecked: traced scalars in a lane's program."""
    for key, number in numbers.items():
        config = _replaced(config, key.split("."), number)
    return config


def _replaced(settings: Any, path: Sequence[str], value: Any) -> Any:
    name, *rest = path
    new = _replaced(getattr(settings, name), rest, value) if rest else value
    return dataclasses.replace(settings, **{name: new})


def _shared(variant: Config) -> Config:
    """The variant with the defaults of whatever may differ within a group."""
    free = [key for key in config_keys() if key in IN_LANES or key.startswith(_NOT_TRAINING)]
    return with_numbers(variant, {key: config_value(Config(), key) for key in free})


def _values(key: str, text: str) -> list[Any]:
    first, colon, last = (part.strip() for part in text.partition(":"))
    if colon:
        ends = [int(end) for end in (first, last) if end.isdecimal() and len(end) <= _MOST_DIGITS]
        if len(ends) < 2 or ends[0] >= ends[1]:
            raise UserError(
                f"{key} is {shown(text)}; allowed: FROM:TO of whole numbers, the second larger"
            )
        if ends[1] - ends[0] > _MOST:
            raise UserError(f"{key} is {shown(text)}; allowed: at most {_MOST} values")
        return list(range(*ends))
    is_text = config_keys()[key] not in (int, float, bool)
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > _MOST:
        raise UserError(f"{key} has {len(parts)} values; allowed: at most {_MOST}")
    values = parts if is_text else [parse_scalar(part) for part in parts]
    for place, value in enumerate(values):
        if value in values[:place]:
            raise UserError(f"{key} is {shown(value)} twice; allowed: once")
    return values
