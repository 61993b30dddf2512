"""What a checkpoint or agent file was made for, as it says itself."""

import dataclasses
import importlib.metadata
import typing
from collections.abc import Mapping
from typing import Any

from lostcities_jax.errors import UserError, nearest, shown
from lostcities_jax.rules import Rules
from lostcities_jax.settings import Config, LearnerConfig, TraversalConfig

FORMAT_VERSION = 4
_OLDEST_VERSION = 2  # 3 goes on from the policy, 2 has no checksums; 1 had networks of other inputs
# What a policy is played by: a name that is none would play something else.
_NAMED_BY = {"fallback": TraversalConfig, "weighting": LearnerConfig, "solver": Config}


class DamagedError(UserError):
    """A checkpoint is not as it was written, or not whole."""


@dataclasses.dataclass(frozen=True)
class Metadata:
    """What a checkpoint was made for; JSON on disk.

    Attributes:
      rules: rules of the game.
      network: settings of the networks, as plain values.
      fallback: what regret matching does where no advantage is positive.
      game: the game's name.
      weighting: how the average strategy weighs iterations.
      snapshot_slots: past strategies that the policy has room for; 0 for none.
      solver: what it was trained by.
      advantage_networks: 1 for both seats, 2 for one each; 0 for a policy gradient.
      plays: the strategy to play with where none is asked for.
      iteration: iterations the run had finished; `save` fills it in.
      package_version: version of this package that wrote the checkpoint.
      format_version: version of this layout.
    """

    rules: Rules
    network: Mapping[str, Any]
    fallback: str = "argmax"
    game: str = "lost_cities"
    weighting: str = "lcfr"
    snapshot_slots: int = 0
    solver: str = "deep_cfr"
    advantage_networks: int = 2
    plays: str = "average"
    iteration: int = 0
    package_version: str = dataclasses.field(default_factory=lambda: _package_version())
    format_version: int = FORMAT_VERSION


def parse_metadata(record: dict[str, Any], version: Any, name: str) -> Metadata:
    """Metadata from its JSON record.

    Raises:
      UserError: naming `name`, for another format version or values that cannot be.
    """
    if type(version) is not int or not _OLDEST_VERSION <= version <= FORMAT_VERSION:
        raise UserError(
            f"{name} has format version {shown(version)}; "
            f"allowed: {_OLDEST_VERSION} to {FORMAT_VERSION}"
        )
    try:
        fields = dict(record)
        fields["rules"] = Rules(**fields["rules"])
        return _checked(Metadata(**fields))
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedError(f"{name} has damaged metadata: {brief(error)}") from error


def brief(error: Exception) -> str:
    """The kind of an error and the first line of what it says; of a long one both ends.

    Libraries that wrap an error say where first and why last.
    """
    text = f"{type(error).__name__}: {error}".splitlines()[0]
    return text if len(text) <= 200 else f"{text[:98]} ... {text[-97:]}"


def _checked(metadata: Metadata) -> Metadata:
    if not isinstance(metadata.network, Mapping):
        raise TypeError(f"network is {shown(metadata.network)}")
    for name in ("game", "fallback", "weighting", "solver", "plays"):
        if not isinstance(getattr(metadata, name), str):
            raise TypeError(f"{name} is {shown(getattr(metadata, name))}")
    for name, settings in _NAMED_BY.items():
        value = getattr(metadata, name)
        allowed = typing.get_args(typing.get_type_hints(settings)[name])
        if value not in allowed:
            near = nearest(value, allowed)
            raise ValueError(f"{name} is {shown(value)}; allowed: {', '.join(allowed)}{near}")
    bounds = {"snapshot_slots": 10**9, "advantage_networks": 2, "iteration": 10**9}
    for name, largest in bounds.items():
        number = getattr(metadata, name)
        if type(number) is not int or not 0 <= number <= largest:
            raise TypeError(f"{name} is {shown(number)}")
    return metadata


def _package_version() -> str:
    try:
        return importlib.metadata.version("lostcities_jax")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
