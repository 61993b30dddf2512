"""Other places for the metrics of a run: TensorBoard and Weights & Biases.

Both take the numbers of an iteration; lists and texts are in `metrics.jsonl` alone. Neither package
is needed without them.
"""

import contextlib
import hashlib
import importlib.util
import math
import pathlib
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from lostcities_jax.errors import UserError, nearest, shown
from lostcities_jax.files import write_text

Tracker = Literal["tensorboard", "wandb"]
# (iteration, plain values by slash-separated names)
Sink = Callable[[int, Mapping[str, Any]], None]

_WANDB_ID = "wandb-id.txt"  # in the run folder
_PACKAGES: dict[str, str] = {"tensorboard": "tensorboardX", "wandb": "wandb"}


def check_tracker(kind: str) -> None:
    """Refuses a tracker that there is not, or that is not installed.

    Raises:
      UserError: for no such tracker, or one whose package is not installed.
    """
    if kind not in _PACKAGES:
        allowed = ", ".join(_PACKAGES)
        raise UserError(f"--track is {shown(kind)}; allowed: {allowed}{nearest(kind, _PACKAGES)}")
    if importlib.util.find_spec(_PACKAGES[kind]) is None:
        raise UserError(
            f"--track {kind} needs {_PACKAGES[kind]}: pip install 'lostcities_jax[tracking]'"
        )


@contextlib.contextmanager
def open_tracker(
    kind: Tracker, folder: pathlib.Path, settings: Mapping[str, Any], done: int
) -> Iterator[Sink]:
    """Where to send the values of every iteration after `done` of the run in `folder`.

    TensorBoard's files go into the folder `tensorboard` of the run; what they held of later
    iterations is marked as void. Weights & Biases knows the run again by a random id in its
    folder, and is set by its own environment variables, such as WANDB_MODE=offline.

    Args:
      kind: which tracker.
      folder: the run folder.
      settings: the run's settings, as plain values.
      done: iterations finished before.

    Raises:
      UserError: for Weights & Biases that cannot be reached, or without a login; for an id that
        is none, or cannot be written.
    """
    opened = _open_tensorboard if kind == "tensorboard" else _open_wandb
    with opened(folder, settings, done) as sink:
        yield sink


@contextlib.contextmanager
def _open_tensorboard(
    folder: pathlib.Path, settings: Mapping[str, Any], done: int
) -> Iterator[Sink]:
    from tensorboardX import SummaryWriter

    del settings  # config.yaml lies beside
    purge = done + 1 if done else None
    # Files of one second have one name, and the later one would replace the other.
    suffix = f".{done}"
    with SummaryWriter(
        str(folder / "tensorboard"), purge_step=purge, filename_suffix=suffix
    ) as writer:

        def write(iteration: int, values: Mapping[str, Any]) -> None:
            for name, value in _numbers(values).items():
                writer.add_scalar(name, value, iteration)
            writer.flush()

        yield write


@contextlib.contextmanager
def _open_wandb(folder: pathlib.Path, settings: Mapping[str, Any], done: int) -> Iterator[Sink]:
    import wandb

    del done  # a resumed run repeats the iterations after its checkpoint, under their numbers
    name = "-".join(folder.absolute().parts[-2:])
    try:
        run = wandb.init(
            project="lostcities_jax",
            name=name,
            id=_wandb_id(folder),
            resume="allow",
            dir=str(folder),
            config=dict(settings),
        )
    except wandb.Error as error:
        raise UserError(
            f"--track wandb could not begin: {error}; allowed: also WANDB_MODE=offline"
        ) from error
    with run:
        run.define_metric("iteration")
        run.define_metric("*", step_metric="iteration")
        yield lambda iteration, values: run.log({"iteration": iteration} | _numbers(values))


def _wandb_id(folder: pathlib.Path) -> str:
    """The id of a run: as it was when the run was first tracked, and else a new one."""
    path = folder / _WANDB_ID
    if path.exists():
        return _checked_id(path)
    if (folder / "wandb").is_dir():  # of a run that was begun when ids were the path's
        return hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:16]
    name = secrets.token_hex(8)
    write_text(path, f"{name}\n")
    return name


def _checked_id(path: pathlib.Path) -> str:
    try:
        name = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    if not re.fullmatch(r"[0-9a-f]{16}", name):
        raise UserError(
            f"{path} holds {shown(name)}; allowed: 16 hexadecimal digits, or no such file and "
            f"folder wandb, for a curve of its own"
        )
    return name


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers among the values."""
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }
