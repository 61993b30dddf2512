"""`python -m lostcities_jax.report`: runs as curves on one page, or a game to flip through."""

import sys
from collections.abc import Sequence

from lostcities_jax.cli import ReportArguments, parse_report
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.files import write_text
from lostcities_jax.recording import ReplayError
from lostcities_jax.replay import read_game
from lostcities_jax.report.flip import game_page
from lostcities_jax.report.runs import read_runs

PROG = "python -m lostcities_jax.report"


def main(argv: Sequence[str]) -> int:
    """Runs the command; raises UserError for whatever the user can mend."""
    arguments = parse_report(argv, prog=PROG)
    write_text(arguments.out, _page(arguments))
    print(f"wrote {arguments.out}")
    return 0


def _page(arguments: ReportArguments) -> str:
    if arguments.replay is not None:
        try:
            return game_page(read_game(arguments.replay, arguments.game))
        except ReplayError as error:
            raise UserError(str(error)) from error
    try:
        from lostcities_jax.report.page import runs_page
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise UserError("curves need matplotlib: pip install 'lostcities_jax[report]'") from None
    return runs_page(read_runs(arguments.runs))


if __name__ == "__main__":
    sys.exit(run_command(main))
