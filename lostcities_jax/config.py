"""The settings of a training run: frozen dataclasses, read from YAML and checked by pydantic.

A setting is one field below: its type is its check, its docstring line its `--help` text.
"""

import dataclasses
import functools
import json
import pathlib
import re
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config

from lostcities_jax.errors import UserError, nearest, shown
from lostcities_jax.rules import CLASSIC, Rules
from lostcities_jax.strict_yaml import dump_yaml, parse_yaml

_MAX_FILE_BYTES = 1_000_000
_T = TypeVar("_T")

Seed = Annotated[int, Field(ge=0, lt=2**31)]
Count = Annotated[int, Field(ge=1, le=10**9)]
CountOrZero = Annotated[int, Field(ge=0, le=10**9)]
BatchWidth = Annotated[int, Field(ge=1, le=2**20)]
Games = Annotated[int, Field(ge=2, le=10**9, multiple_of=2)]
Devices = Annotated[str, Field(min_length=1, max_length=100)]
Positive = Annotated[float, Field(gt=0, le=1e6)]
Opponent = Literal["random", "discard-only", "cautious", "balanced", "aggressive", "noisy"]


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """Shape of the advantage and strategy networks.

    Attributes:
      kind: mlp over flat features, or one network shared by all colours.
      hidden: units of a hidden layer.
      layers: hidden layers.
    """

    kind: Literal["mlp", "color_shared"] = "color_shared"
    hidden: Annotated[int, Field(ge=1, le=16384)] = 64
    layers: Annotated[int, Field(ge=1, le=64)] = 3


@dataclasses.dataclass(frozen=True)
class TraversalConfig:
    """How an iteration samples the game tree.

    Attributes:
      batch_width: lanes that walk the game in lockstep.
      traversals: traversals per player and iteration.
      epsilon: share of uniform exploration in the traverser's sampling policy.
      opponent: policy the opponent samples from.
      fallback: strategy where no advantage is positive.
      estimator: of regrets: by importance weights alone, around a critic's values, or by
        those values alone.
      max_depth: decisions after which a traversal is cut; 0 for no limit.
    """

    batch_width: BatchWidth = 256
    traversals: Count = 512
    epsilon: Annotated[float, Field(gt=0, le=1)] = 0.1
    opponent: Literal["current", "average"] = "current"
    fallback: Literal["argmax", "uniform"] = "argmax"
    estimator: Literal["outcome", "baseline", "critic"] = "critic"
    max_depth: CountOrZero = 0


@dataclasses.dataclass(frozen=True)
class CriticConfig:
    """The network that values actions with both hands open; only some estimators use it.

    Attributes:
      steps: steps of each fit, after every batch of traversals.
      trace: share of the sampled return in its targets, against its own value (lambda).
      capacity: samples of the newest batch to fit to.
    """

    steps: Count = 150
    trace: Annotated[float, Field(ge=0, le=1)] = 0.9
    capacity: Count = 200_000


@dataclasses.dataclass(frozen=True)
class MemoryConfig:
    """Size of the reservoirs.

    Attributes:
      advantage_capacity: samples each player's advantage memory holds.
      strategy_capacity: samples the strategy memory holds.
    """

    advantage_capacity: Count = 500_000
    strategy_capacity: Count = 500_000


@dataclasses.dataclass(frozen=True)
class LearnerConfig:
    """How the networks are fitted to the reservoirs.

    Attributes:
      batch_size: samples of one step.
      advantage_steps: steps per advantage network and iteration.
      strategy_steps: steps of each fit of the strategy network.
      learning_rate: of AdamW.
      weight_decay: of AdamW.
      max_grad_norm: norm the gradient is clipped to.
      weighting: weight of a sample by the iteration it comes from.
      warm_start: go on from the last iteration's advantage network, not from a new one.
      target_scale: points that make 1.0 of a regression target.
    """

    batch_size: Count = 1024
    advantage_steps: Count = 100
    strategy_steps: Count = 500
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 2e-3
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    max_grad_norm: Positive = 1.0
    weighting: Literal["none", "lcfr", "dcfr"] = "lcfr"
    warm_start: bool = True
    target_scale: Positive = 30.0


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """Matches against rule-based players during the run.

    Attributes:
      every: iterations between evaluations; 0 for one at the end only.
      games: games per opponent, even so that both seats play each deal.
      opponents: rule-based players to meet.
    """

    every: CountOrZero = 15
    games: Games = 1000
    opponents: tuple[Opponent, ...] = typing.get_args(Opponent)


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """Checkpoints of the run.

    Attributes:
      every: iterations between checkpoints.
      keep: newest checkpoints to keep.
    """

    every: Count = 15
    keep: Count = 2


# JSON has no tuples or dataclasses, so `strict` bans "3", 3.0 and true where 3 is meant
# and still builds them. Nested dataclasses inherit this configuration.
checked = with_config(ConfigDict(strict=True, extra="forbid", allow_inf_nan=False))


@checked
@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that decides the outcome of a run; the defaults are `configs/default.yaml`.

    Values are checked by `config_from_dict` and `load_config`, not on construction.

    Attributes:
      seed: seed of every random draw of the run.
      iterations: iterations; each updates both players.
      devices: auto (all GPUs, else one CPU device for each core), gpu, or cpu:N.
      rules: rules of the game.
      network: shape of the networks.
      traversal: sampling of the game tree.
      critic: valuing of actions.
      memory: size of the reservoirs.
      learner: fitting of the networks.
      evaluation: matches during the run.
      checkpoint: checkpoints of the run.
    """

    seed: Seed = 0
    iterations: Count = 45
    devices: Devices = "auto"
    rules: Rules = CLASSIC
    network: NetworkConfig = NetworkConfig()
    traversal: TraversalConfig = TraversalConfig()
    critic: CriticConfig = CriticConfig()
    memory: MemoryConfig = MemoryConfig()
    learner: LearnerConfig = LearnerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()


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
    return validated(Config, data)


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


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """`config` with other values for some of `config_keys`, checked like a file's.

    Raises:
      UserError: for a value that is not allowed.
    """
    data = dataclasses.asdict(config)
    for key, value in values.items():
        *sections, name = key.split(".")
        functools.reduce(dict.__getitem__, sections, data)[name] = value
    return config_from_dict(data)


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
