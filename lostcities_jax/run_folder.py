"""The folder of a run: its settings, its environment, and whether it may be written."""

import contextlib
import datetime
import fcntl
import json
import os
import pathlib
from collections.abc import Callable, Iterator

from lostcities_jax import checkpoint
from lostcities_jax.config import dump_config, load_config
from lostcities_jax.errors import UserError, shown
from lostcities_jax.files import replacing
from lostcities_jax.settings import Config
from lostcities_jax.tracking import environment_record

CONFIG_FILE = "config.yaml"
ENVIRONMENT_FILE = "environment.json"
LOCK_FILE = "lock"


def create(
    path: pathlib.Path | None,
    config: Config,
    fill: Callable[[pathlib.Path], None] = lambda path: None,
) -> pathlib.Path:
    """Makes the folder of a new run and writes what it was asked to do.

    Args:
      path: the folder; None for a new one under `runs/` named by the time.
      config: the resolved settings.
      fill: writes what else the run cannot go on without into the folder.

    Raises:
      UserError: for a folder that has something in it, cannot be made or cannot have checkpoints.
    """
    path = path or pathlib.Path("runs") / f"{datetime.datetime.now():%Y-%m-%d-%H%M%S}"
    checkpoint.check_path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise UserError(
                f"run folder {shown(str(path))} is not empty; "
                f"allowed: a new folder, or --resume to continue a run"
            )
        try:
            fill(path)
        except UserError:  # another try finds no run that never was
            with contextlib.suppress(OSError):  # what somebody else has put there stays
                path.rmdir()
            raise
        record = json.dumps(environment_record(), indent=2) + "\n"
        (path / ENVIRONMENT_FILE).write_text(record, encoding="utf-8")
        # The last file, and whole from the start: what has it is a run that can be resumed.
        with replacing(path / CONFIG_FILE) as file:
            file.write(dump_config(config).encode())
    except OSError as error:
        raise UserError(
            f"run folder {shown(str(path))} cannot be written: {error.strerror}"
        ) from error
    return path


def reopen(path: pathlib.Path) -> Config:
    """The settings of a run to continue.

    Raises:
      UserError: for a folder that is no run.
    """
    if not (path / CONFIG_FILE).is_file():
        raise UserError(
            f"{shown(str(path))} is no run folder; allowed with --resume: one with {CONFIG_FILE}"
        )
    return load_config(path / CONFIG_FILE)


@contextlib.contextmanager
def locked(path: pathlib.Path) -> Iterator[None]:
    """Keeps a run folder from being written by two processes; the lock ends with its process.

    Raises:
      UserError: for a folder that another process writes, or that cannot be written.
    """
    try:
        file = open(path / LOCK_FILE, "a+", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise UserError(
            f"run folder {shown(str(path))} cannot be written: {error.strerror}"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            raise UserError(
                f"run folder {shown(str(path))} is being written by process "
                f"{shown(file.read(20).strip())}; allowed: one at a time"
            ) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
