"""Settings from YAML, checked by pydantic, and as dotted keys."""

import dataclasses
import functools
import json
import pathlib
import re
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from lostcities_jax.errors import UserError, nearest, shown
from lostcities_jax.settings import Config
from lostcities_jax.strict_yaml import dump_yaml, parse_yaml

_MAX_FILE_BYTES = 1_000_000
# Settings that saved configs may still have, with the value that says what is so without them.
_RETIRED = {("scheduler", "push_every"): 1}
_T = TypeVar("_T")


def find_config(name: str) -> pathlib.Path:
    """Path of a config file: a file, or a config shipped with the package by its bare name.

    Raises:
      UserError: for a bare name that is neither.
    """
    path = pathlib.Path(name)
    if path.name != name or path.suffix or path.is_file():
        return path
    shipped = {file.stem: file for file in sorted(_shipped_folder().glob("*.yaml"))}
    if name not in shipped:
        raise UserError(
            f"config {shown(name)} is no file and no shipped config; allowed: a file, or "
            f"{', '.join(shipped)}{nearest(name, shipped)}"
        )
    return shipped[name]


def load_config(path: str | pathlib.Path) -> Config:
    """Config of a YAML file; keys it leaves out keep their defaults.

    Raises:
      UserError: for a file that cannot be read, is not a YAML mapping of known keys
        without duplicates or aliases, or has a value that is not allowed.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"config {shown(str(path))} cannot be read: {reason}") from error
    if len(content) > _MAX_FILE_BYTES:
        raise UserError(f"config {path} is too large; allowed: {_MAX_FILE_BYTES} bytes")
    try:
        data = parse_yaml(content)
        return config_from_dict({} if data is None else data)
    except UserError as error:
        raise UserError(f"config {path}: {error}") from error


def dump_config(config: Config) -> str:
    """YAML text of a config that `load_config` reads back as an equal config."""
    return dump_yaml(dataclasses.asdict(config))


def config_from_dict(data: Mapping[str, Any]) -> Config:
    """Config of nested mappings, as YAML or JSON has them; absent keys keep their defaults.

    Raises:
      UserError: names the dotted key, its value and what is allowed.
    """
    return validated(Config, _without_retired(data))


def validated(kind: type[_T], data: Mapping[str, Any]) -> _T:
    """Instance of a `checked` dataclass from nested mappings; absent keys keep their defaults.

    Raises:
      UserError: names the dotted key, its value and what is allowed.
    """
    try:
        text = json.dumps(data, default=repr)
        return _adapter(kind).validate_json(text)
    except ValidationError as error:
        raise UserError(_describe(error, kind)) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"config is no plain mapping of keys to values: {error}") from error


def config_keys(config_type: type = Config, prefix: str = "") -> dict[str, Any]:
    """Dotted key of every setting, with its type."""
    keys = {}
    for name, kind in typing.get_type_hints(config_type).items():
        if dataclasses.is_dataclass(kind):
            keys |= config_keys(typing.cast(type, kind), f"{prefix}{name}.")
        else:
            keys[prefix + name] = kind
    return keys


def config_value(config: Config, key: str) -> Any:
    """Value of a dotted key, such as `traversal.epsilon`."""
    return functools.reduce(getattr, key.split("."), config)


def with_values(config: _T, values: Mapping[str, Any]) -> _T:
    """A `checked` dataclass with other values for some of its `config_keys`, checked too.

    Raises:
      UserError: for a value that is not allowed.
    """
    data = dataclasses.asdict(typing.cast(Any, config))
    for key, value in values.items():
        *sections, name = key.split(".")
        functools.reduce(dict.__getitem__, sections, data)[name] = value
    return validated(type(config), data)


def _without_retired(data: Mapping[str, Any]) -> Mapping[str, Any]:
    for (section, name), value in _RETIRED.items():
        settings = data.get(section) if isinstance(data, Mapping) else None
        if isinstance(settings, Mapping) and settings.get(name) == value:
            rest = {key: settings[key] for key in settings if key != name}
            data = {**data, section: rest}
    return data


def _shipped_folder() -> pathlib.Path:
    package = pathlib.Path(__file__).parent
    in_wheel = package / "configs"
    return in_wheel if in_wheel.is_dir() else package.parent / "configs"


@functools.cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _describe(error: ValidationError, kind: type) -> str:
    """The first of pydantic's errors in one line; unknown keys first, as they cause others."""
    errors = error.errors(include_url=False)
    unknown = [item for item in errors if item["type"] == "unexpected_keyword_argument"]
    if unknown:
        return _describe_unknown([str(part) for part in unknown[0]["loc"]], kind)
    item = errors[0]
    context = item.get("ctx", {})
    if item["type"] == "value_error":
        return str(context["error"])
    if item["type"] == "json_invalid":
        return f"a value is no JSON value: {context['error']}"
    name = ".".join(str(part) for part in item["loc"]) or "config"
    guess = ""
    if item["type"] == "literal_error" and isinstance(item["input"], str):
        guess = nearest(item["input"], re.findall(r"'([^']*)'", context["expected"]))
    return f"{name} is {shown(item['input'])}; allowed: {_allowed(item)}{guess}"


def _describe_unknown(parts: list[str], kind: type) -> str:
    key = ".".join(parts)
    section = kind
    for part in parts[:-1]:
        section = typing.get_type_hints(section)[part]
    siblings = [field.name for field in dataclasses.fields(section)]
    prefix = "".join(f"{part}." for part in parts[:-1])
    near = nearest(key, [prefix + name for name in siblings]) or nearest(key, config_keys(kind))
    return f"{shown(key)} is no setting; allowed: {', '.join(siblings)}{near}"


def _allowed(item: Any) -> str:
    context = item.get("ctx", {})
    texts = {
        "int_type": "a whole number",
        "int_from_float": "a whole number",
        "float_type": "a number",
        "finite_number": "a finite number",
        "bool_type": "true or false",
        "string_type": "text",
        "tuple_type": "a list",
        "dataclass_type": "a mapping of keys to values",
        "string_too_short": f"{context.get('min_length')} or more characters",
        "string_too_long": f"{context.get('max_length')} or fewer characters",
        "too_short": f"{context.get('min_length')} or more entries",
        "literal_error": context.get("expected"),
        "greater_than": f"more than {context.get('gt')}",
        "greater_than_equal": f"at least {context.get('ge')}",
        "less_than": f"less than {context.get('lt')}",
        "less_than_equal": f"at most {context.get('le')}",
        "multiple_of": f"a multiple of {context.get('multiple_of')}",
    }
    return texts.get(item["type"]) or item["msg"]
