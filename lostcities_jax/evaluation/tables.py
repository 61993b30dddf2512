"""Results as tables for the terminal, and as JSON."""

import json
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import rich.box
import rich.console
import rich.markup
import rich.table

from lostcities_jax.evaluation.exactness import ExactResult
from lostcities_jax.evaluation.matches import MatchResult
from lostcities_jax.evaluation.rating import Rating, Standings
from lostcities_jax.files import write_text

_LEFT = ("opponent", "play")
_AMPLE = 10_000  # columns


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
    _print_whole(console, table)


def print_ratings(console: rich.console.Console, standings: Standings) -> None:
    """Prints one row an agent, best first: its rating with its 95 % interval, how far it is
    ahead of the next with the like, win share, points ahead and timeouts."""
    ratings = standings.ratings
    games = ratings[0].games // (len(ratings) - 1)
    title = f"{len(ratings)} agents, {games} games a pair, the same deals for all"
    table = rich.table.Table(title=title, box=rich.box.SIMPLE_HEAD)
    for heading in ("", "agent", "Elo [95 %]", "ahead of next", "win %", "points", "timeout %"):
        table.add_column(heading, justify="left" if heading == "agent" else "right", no_wrap=True)
    for place, rating in enumerate(ratings, 1):
        table.add_row(str(place), *_rating_cells(rating))
    _print_whole(console, table)


def print_cross(console: rich.console.Console, standings: Standings) -> None:
    """Prints by how many points a game the agent of each row leads that of each column."""
    table = rich.table.Table(title="points a game against", box=rich.box.SIMPLE_HEAD)
    table.add_column("")
    table.add_column("agent", no_wrap=True)
    for place in range(1, len(standings.ratings) + 1):
        table.add_column(str(place), justify="right", no_wrap=True)
    for place, (rating, row) in enumerate(zip(*standings, strict=True), 1):
        cells = ("" if math.isnan(points) else f"{points:+.1f}" for points in row)
        table.add_row(str(place), rich.markup.escape(rating.agent), *cells)
    _print_whole(console, table)


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


def write_json(path: pathlib.Path, record: Any) -> None:
    """Writes plain values to a file; NaN and infinity, which JSON has not, are null.

    Raises:
      UserError: for a file that cannot be written.
    """
    write_text(path, json.dumps(_finite(record), indent=2, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print_whole(console: rich.console.Console, table: rich.table.Table) -> None:
    """A pipe has no width, and a narrow terminal had better fold lines than lose figures."""
    wide = rich.console.Console(file=console.file, width=_AMPLE)
    fits = wide.measure(table).maximum <= console.width
    (console if fits else wide).print(table)


def _rating_cells(rating: Rating) -> list[str]:
    is_last = rating.lead is None
    return [
        rich.markup.escape(rating.agent),
        f"{rating.rating:.0f} [{rating.rating_low:.0f}, {rating.rating_high:.0f}]",
        "" if is_last else f"{rating.lead:.0f} ± {rating.lead_error:.0f}",
        f"{100 * rating.win_share:.1f}",
        f"{rating.points:+.1f} ± {rating.points_error:.1f}",
        f"{100 * rating.timeout_rate:.1f}",
    ]


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
