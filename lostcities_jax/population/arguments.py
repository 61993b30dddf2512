"""The flags of the population command: its own, and every setting of training."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Annotated

import tyro

from lostcities_jax.bots import BOTS
from lostcities_jax.config import config_keys, find_config, load_config, with_values
from lostcities_jax.errors import UserError, shown
from lostcities_jax.flags import help_if_asked, read_flags
from lostcities_jax.population.flight import RETRIES
from lostcities_jax.settings import Config

BEST = "best"
_Once = tyro.conf.FlagCreatePairsOff


@dataclasses.dataclass(frozen=True)
class PopulationArguments:
    """Train variants side by side, keep them as revisions, and rate them with the bots.

    Nothing that is trained is put in use by itself. The tournament plays evaluation.games a pair,
    with the bots of evaluation.opponents.

    Attributes:
      registry: folder of the revisions.
      config: YAML file of settings, or the name of a shipped one; the defaults below apply
        without it.
      vary: values of settings, as in `seed=0:8` or `learning_rate=1e-3,2e-3`; a lane is trained
        for each combination. Without it nothing is trained.
      limit: lanes in flight at a time; all by default.
      retries: failures of a lane that are mended before it is given up.
      tournament: rate all revisions of the registry.
      activate: put in use a revision by its id, or the best of the tournament.
      rollback: put the revision in use that was before the last, and do nothing else.
    """

    registry: Annotated[pathlib.Path, tyro.conf.Positional] = pathlib.Path("population")
    config: Annotated[pathlib.Path | None, tyro.conf.arg(metavar="FILE")] = None
    vary: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SETTING=VALUE,... ...")] = ()
    limit: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    retries: int = RETRIES
    tournament: bool = True
    activate: Annotated[str | None, tyro.conf.arg(metavar="best | ID")] = None
    rollback: Annotated[bool, _Once] = False
    settings: Annotated[Config, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Config)

    @property
    def plays_tournament(self) -> bool:
        """Whether revisions are rated: to say how they do, or to find the best."""
        if self.rollback:
            return False
        return self.activate == BEST or (self.tournament and self.activate is None)


def parse_population(argv: Sequence[str], prog: str) -> PopulationArguments:
    """Parse the population command's flags; `--help` prints them and exits with 0.

    Args:
      argv: arguments without the program's name.
      prog: the command as the help names it.

    Raises:
      UserError: for an unknown flag, a missing value or a value that is not allowed.
    """
    help_if_asked(argv, prog, PopulationArguments())
    own = {"registry": str, "config": str, "vary": tuple[str, ...], "limit": int, "retries": int}
    own |= {"tournament": bool, "activate": str, "rollback": bool}
    given = read_flags(argv, own | config_keys(), positional="registry", repeated=("vary",))
    asked = {key: given.pop(key) for key in own if key in given}
    for key, least in (("limit", 1), ("retries", 0)):
        value = asked.get(key, least)
        if type(value) is not int or value < least:
            raise UserError(f"{key} is {shown(value)}; allowed: a whole number from {least}")
    if "registry" not in asked:
        raise UserError("the value of REGISTRY is missing; allowed: a folder")
    if asked.get("rollback") and len({*asked, *given}) > 2:
        raise UserError("--rollback with other flags; allowed: REGISTRY alone")
    path = asked.pop("config", None)
    base = Config() if path is None else load_config(find_config(path))
    asked["registry"] = pathlib.Path(asked["registry"])
    asked["vary"] = tuple(asked.get("vary", ()))
    arguments = PopulationArguments(settings=with_values(base, given), **asked)
    if arguments.plays_tournament:
        check_opponents(arguments.settings, "a tournament")
    return arguments


def check_opponents(settings: Config, purpose: str) -> None:
    """Refuses settings without the bots that are to be met after the training.

    Raises:
      UserError: where evaluation.opponents is empty.
    """
    if not settings.evaluation.opponents:
        raise UserError(
            f"evaluation.opponents is empty; allowed for {purpose}: one or more of "
            f"{', '.join(BOTS)}"
        )
