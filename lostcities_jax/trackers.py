"""Other places for the metrics of a run: TensorBoard and Weights & Biases.

Both take the numbers of an iteration; lists and texts are in `metrics.jsonl` alone. Neither package
is needed without them.
"""

import contextlib
import hashlib
import importlib.util
import math
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from lostcities_jax.errors import UserError, nearest, shown

Tracker = Literal["tensorboard", "wandb"]
# (iteration, plain values by slash-separated names)
Sink = Callable[[int, Mapping[str, Any]], None]

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
    iterations is marked as void. Weights & Biases knows the run again by its folder's path, and
    is set by its own environment variables, such as WANDB_MODE=offline.

    Args:
      kind: which tracker.
      folder: the run folder.
      settings: the run's settings, as plain values.
      done: iterations finished before.

    Raises:
      UserError: for Weights & Biases that cannot be reached, or without a login.
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
            id=hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:16],
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


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers among the values."""
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }
