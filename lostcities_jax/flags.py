"""Flags from the command line, by the keys of settings: names and shapes, not yet values.

tyro draws the help from the dataclasses. Names and values are checked here, since tyro answers
a mistake with a box of many lines and without the bounds of `config`.
"""

import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import tyro

from lostcities_jax.errors import UserError, nearest, shown
from lostcities_jax.strict_yaml import parse_scalar

_FLAG = re.compile(r"--|-[A-Za-z]")  # negative numbers are values
_TRUTH_VALUES = {"true": True, "false": False}


def help_if_asked(argv: Sequence[str], prog: str, default: Any) -> None:
    """Prints the help of a dataclass of flags and exits with 0, if it is asked for."""
    if not {"-h", "--help"}.isdisjoint(argv):
        tyro.cli(type(default), args=["--help"], prog=prog, default=default)


def read_flags(
    argv: Sequence[str],
    kinds: dict[str, Any],
    positional: str | None = None,
    repeated: Sequence[str] = (),
) -> dict[str, Any]:
    """Value of every given key, the last one winning; that of `positional` has no flag.

    The values of `repeated` keys, which are tuples, are put together.
    """
    flags = {key: kind for key, kind in kinds.items() if key != positional}
    given = {}
    groups, loose = _group(argv)
    for flag, values, is_inline in groups:
        key, negated = _find_key(flag, flags)
        if positional and not is_inline and typing.get_origin(kinds[key]) is not tuple:
            is_bare = kinds[key] is bool and values[:1] and values[0] not in _TRUTH_VALUES
            own = 0 if is_bare else 1
            loose += values[own:]
            values = values[:own]
        value = _read_value(flag, kinds[key], values, negated)
        given[key] = [*given[key], *value] if key in repeated and key in given else value
    if loose and positional:
        given[positional] = _read_value(positional.upper(), kinds[positional], loose, False)
    elif loose:
        raise _no_flag(loose[0], flags)
    return given


def refuse_idle(given: Mapping[str, Any], keys: Sequence[str], when: str, allowed: str) -> None:
    """Refuses flags that would be ignored, so that nobody believes that they were heard.

    Args:
      given: what `read_flags` found.
      keys: those that would be.
      when: what they are given with that ignores them.
      allowed: what they would go with.

    Raises:
      UserError: for the first of them that was given.
    """
    for key in keys:
        if key in given:
            raise UserError(f"{_flag(key)} is given {when}; allowed: {allowed}")


def _group(argv: Sequence[str]) -> tuple[list[tuple[str, list[str], bool]], list[str]]:
    """Every flag with the texts that may be its values, and the texts that follow none.

    A value that is joined to its flag by "=" is marked: it can be nothing else.
    """
    groups, loose = [], []
    values = loose
    for token in argv:
        if not _FLAG.match(token):
            values.append(token)
            continue
        flag, equals, inline = token.partition("=")
        values = loose if equals else []
        groups.append((flag, [inline] if equals else values, bool(equals)))
    return groups, loose


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
    raise _no_flag(flag, kinds)


def _no_flag(text: str, kinds: dict[str, Any]) -> UserError:
    near = nearest(text.replace("_", "-"), [_flag(key) for key in kinds])
    return UserError(f"{shown(text)} is no flag; allowed: those of --help{near}")


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
    return parse_scalar(values[0]) if kind in (int, int | None, float) else values[0]


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")
