"""The folder of a run: its settings, its environment, and whether it may be written."""

import datetime
import json
import pathlib

from lostcities_jax import checkpoint
from lostcities_jax.config import dump_config, load_config
from lostcities_jax.errors import UserError, shown
from lostcities_jax.settings import Config
from lostcities_jax.tracking import environment_record

CONFIG_FILE = "config.yaml"
ENVIRONMENT_FILE = "environment.json"


def create(path: pathlib.Path | None, config: Config) -> pathlib.Path:
    """Makes the folder of a new run and writes what it was asked to do.

    Args:
      path: the folder; None for a new one under `runs/` named by the time.
      config: the resolved settings.

    Raises:
      UserError: for a folder that has something in it, or cannot be made.
    """
    path = path or pathlib.Path("runs") / f"{datetime.datetime.now():%Y-%m-%d-%H%M%S}"
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise UserError(
                f"run folder {shown(str(path))} is not empty; "
                f"allowed: a new folder, or --resume to continue a run"
            )
        (path / CONFIG_FILE).write_text(dump_config(config), encoding="utf-8")
        record = json.dumps(environment_record(), indent=2) + "\n"
        (path / ENVIRONMENT_FILE).write_text(record, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"run folder {shown(str(path))} cannot be written: {error.strerror}"
        ) from error
    return path


def reopen(path: pathlib.Path) -> Config:
    """The settings of a run to continue.

    Raises:
      UserError: for a folder that is no run, or a run without a checkpoint.
    """
    if not (path / CONFIG_FILE).is_file():
        raise UserError(
            f"{shown(str(path))} is no run folder; allowed with --resume: one with {CONFIG_FILE}"
        )
    config = load_config(path / CONFIG_FILE)
    if checkpoint.latest(path / checkpoint.FOLDER) is None:
        raise UserError(f"run {shown(str(path))} has no checkpoint to resume from")
    return config
