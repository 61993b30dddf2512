"""`python -m lostcities_jax.export`: the policy of a checkpoint as one small file."""

import pathlib
import sys
from collections.abc import Sequence

from lostcities_jax import checkpoint
from lostcities_jax.cli import parse_export
from lostcities_jax.errors import UserError, run_command, shown
from lostcities_jax.evaluation import agent_file
from lostcities_jax.evaluation.loading import load_checkpoint
from lostcities_jax.run_folder import CONFIG_FILE

PROG = "python -m lostcities_jax.export"


def main(argv: Sequence[str]) -> int:
    """Runs the command; raises UserError for whatever the user can mend."""
    arguments = parse_export(argv, prog=PROG)
    out = pathlib.Path(arguments.out)
    source = checkpoint.resolve(arguments.run)
    metadata, policy = load_checkpoint(str(source))
    agent_file.write(out, policy, metadata, _config_text(source.parents[1] / CONFIG_FILE))
    print(f"{out}: {out.stat().st_size / 1000:.0f} kB, after iteration {metadata.iteration}")
    return 0


def _config_text(path: pathlib.Path) -> str:
    """The settings of a run, for people to read; nothing for a checkpoint that lies alone."""
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else ""
    except UnicodeDecodeError as error:
        raise UserError(
            f"config {shown(str(path))} is not UTF-8 text; allowed: the file that the run wrote"
        ) from error


if __name__ == "__main__":
    sys.exit(run_command(main))
