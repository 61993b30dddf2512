"""Match results as a table for the terminal."""

from collections.abc import Sequence

import rich.box
import rich.console
import rich.table

from lostcities_jax.evaluation.exactness import ExactResult
from lostcities_jax.evaluation.matches import MatchResult

_LEFT = ("opponent", "play")
_WIDTH = 116


def print_results(console: rich.console.Console, name: str, results: Sequence[MatchResult]) -> None:
    """Prints one row a match: the win rate with its 95 % interval, points ahead with their
    standard error, and how the agent played."""
    title = f"{name}, {results[0].games} games a row, both seats of each deal"
    table = rich.table.Table(title=title, box=rich.box.SIMPLE_HEAD)
    for heading in (*_LEFT, "win % [95 %]", "points", "timeout %", "plies", "opened"):
        table.add_column(heading, justify="left" if heading in _LEFT else "right", no_wrap=True)
    for heading in ("played %", "off piles %"):  # of own cards, and of own draws
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        table.add_row(*_cells(result))
    # A pipe has no width; a narrow terminal had better fold the lines than lose figures.
    if console.width < _WIDTH:
        console = rich.console.Console(file=console.file, width=_WIDTH)
    console.print(table)


def print_exact(console: rich.console.Console, game: str, results: Sequence[ExactResult]) -> None:
    """Prints one row a strategy: how far it is from an equilibrium, and its value."""
    table = rich.table.Table(title=f"{game}, exact", box=rich.box.SIMPLE_HEAD)
    table.add_column("strategy")
    for heading in ("NashConv", "exploitability", "value of player 0"):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        figures = (result.nash_conv, result.exploitability, result.value)
        table.add_row(result.strategy, *(f"{figure:.5f}" for figure in figures))
    console.print(table)


def _cells(result: MatchResult) -> list[str]:
    low, high = 100 * result.win_rate_low, 100 * result.win_rate_high
    return [
        result.opponent,
        "greedy" if result.greedy else "sampled",
        f"{100 * result.win_rate:.1f} [{low:.1f}, {high:.1f}]",
        f"{result.score_difference:+.1f} ± {result.score_difference_error:.1f}",
        f"{100 * result.timeout_rate:.1f}",
        f"{result.mean_plies:.0f}",
        f"{result.opened:.1f}",
        f"{100 * result.play_rate:.0f}",
        f"{100 * result.pile_draw_rate:.0f}",
    ]
