"""`python -m lostcities_jax.export`: the policy of one or more checkpoints as one small file."""

import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from lostcities_jax import checkpoint
from lostcities_jax.bots import BOTS
from lostcities_jax.cli import parse_export
from lostcities_jax.errors import UserError, run_command, shown
from lostcities_jax.evaluation import agent_file
from lostcities_jax.evaluation.loading import load_checkpoint, pinned, without_snapshots
from lostcities_jax.run_folder import CONFIG_FILE

PROG = "python -m lostcities_jax.export"
_SHAPE = ("game", "rules", "network", "solver", "advantage_networks", "plays")


def main(argv: Sequence[str]) -> int:
    """Runs the command; raises UserError for whatever the user can mend."""
    arguments = parse_export(argv, prog=PROG)
    out = pathlib.Path(arguments.out)
    names = [_pinned(name) for name in arguments.runs or (".",)]
    read = [load_checkpoint(name) for name in names]
    for name, (metadata, _) in zip(names[1:], read[1:], strict=True):
        _check_alike(name, metadata, names[0], read[0][0])
    metadata, policy = read[0]
    if len(read) > 1:
        slim = [without_snapshots(*one) for one in read]
        metadata, policy = slim[0][0], mean_policy([policy for _, policy in slim])
    agent_file.write(out, policy, metadata, _config_text(pathlib.Path(names[0]).absolute()))
    print(f"{out}: {out.stat().st_size / 1000:.0f} kB, after iteration {metadata.iteration}")
    return 0


def mean_policy(policies: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The policy whose weights are the mean of others', which began with the same ones.

    Runs that differ in their luck, or in whom they met, agree on most of what helps, and their
    mean loses less of what they began with than each does (Wortsman et al. 2022, "Model soups").
    """
    return jax.tree.map(lambda *leaves: np.mean(np.stack(leaves), axis=0), *policies)


def _pinned(name: str) -> str:
    if name in BOTS:
        raise UserError(
            f"the value of RUN is {shown(name)}, a bot; allowed: runs, checkpoints and agent files"
        )
    return pinned(name)


def _check_alike(
    name: str, metadata: checkpoint.Metadata, first_name: str, first: checkpoint.Metadata
) -> None:
    for field in _SHAPE:
        if getattr(metadata, field) != getattr(first, field):
            raise UserError(
                f"{shown(name)} has another {field.replace('_', ' ')} than {shown(first_name)}; "
                f"allowed for a mean: agents that began with the same weights"
            )


def _config_text(source: pathlib.Path) -> str:
    """The settings of a checkpoint's run, for people to read; nothing where there are none."""
    path = source.parents[1] / CONFIG_FILE
    if not (source.is_dir() and path.is_file()):
        return ""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"config {shown(str(path))} is not UTF-8 text; allowed: the file that the run wrote"
        ) from error


if __name__ == "__main__":
    sys.exit(run_command(main))
