"""Match results as a table for the terminal."""

from collections.abc import Iterable

import rich.table

from lostcities_jax.evaluation.matches import MatchResult


def result_table(title: str, results: Iterable[MatchResult]) -> rich.table.Table:
    """One row a match: win rate with its 95 % interval, mean difference with its error."""
    table = rich.table.Table(title=title)
    for heading in (
        "opponent",
        "play",
        "games",
        "win % (95 %)",
        "tie %",
        "difference",
        "timeout %",
        "plies",
        "opened",
        "play %",
        "pile draw %",
    ):
        table.add_column(heading, justify="left" if heading in ("opponent", "play") else "right")
    for result in results:
        table.add_row(*_cells(result))
    return table


def _cells(result: MatchResult) -> list[str]:
    low, high = 100 * result.win_rate_low, 100 * result.win_rate_high
    return [
        result.opponent,
        "greedy" if result.greedy else "sampled",
        f"{result.games}",
        f"{100 * result.win_rate:.1f} ({low:.1f}-{high:.1f})",
        f"{100 * result.tie_rate:.1f}",
        f"{result.score_difference:+.1f} ± {result.score_difference_error:.1f}",
        f"{100 * result.timeout_rate:.1f}",
        f"{result.mean_plies:.0f}",
        f"{result.opened:.2f}",
        f"{100 * result.play_rate:.1f}",
        f"{100 * result.pile_draw_rate:.1f}",
    ]
