"""The charts of runs: what was learnt, how it played, and what it took."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes

from lostcities_jax.report.drawn import (
    PALETTE,
    QUIET,
    color_of,
    logarithmic,
    many,
    marker_of,
    panels,
    to_svg,
    whole_numbers,
)
from lostcities_jax.report.runs import PLAYS, Match, RunRecord, in_order

Along = Literal["iterations", "seconds"]
_LABELS = {"iterations": "iteration", "seconds": "seconds of training"}
_MANNER = {
    "opened": "expeditions opened",
    "play_rate": "cards played, share",
    "pile_draw_rate": "draws from piles, share",
    "timeout_rate": "timeouts, share",
    "mean_plies": "plies a game",
}
_SPEED = {
    "traversal/nodes_per_second": "nodes a second",
    "traversal/utilisation": "utilisation of lanes",
    "traversal/realised_batch": "realised batch",
    "traversal/fallback_rate": "regret matching fell back, share",
}
_APART = {"compile": "compiling", "evaluation": "evaluation"}


def strength(
    runs: Sequence[RunRecord], section: str, figure: str, along: Along, name: str
) -> str | None:
    """Win rate, or points ahead, against each opponent, with 95 % intervals.

    Args:
      runs: the runs.
      section: of the metrics.
      figure: "win_rate" or "score_difference".
      along: what the x axis is.
      name: of the figure.

    Returns:
      an SVG element; None where there is nothing to draw.
    """
    opponents = _opponents(runs, section)
    if not opponents:
        return None
    is_rate = figure == "win_rate"
    with panels(opponents, share_y=is_rate) as (drawn, axes):
        for ax, opponent in zip(axes, opponents, strict=True):
            ax.axhline(50 if is_rate else 0, color=QUIET, linewidth=0.8)
            for place, run in enumerate(runs):
                for play in PLAYS:
                    _draw_match(ax, run, place, Match(section, opponent, play), figure, along)
            whole_numbers(ax, _LABELS[along])
            if is_rate:
                ax.set_ylim(-2, 102)
        _label_rows(axes, 3, "games won, %" if is_rate else "points ahead a game")
        return to_svg(drawn, name)


def spread(runs: Sequence[RunRecord], section: str, name: str) -> str | None:
    """Quantiles of the points ahead: median, middle half and middle nine tenths of the games."""
    wanted = [match for run in runs for match in run.matches() if match.section == section]
    play = next((play for play in PLAYS if any(match.play == play for match in wanted)), "")
    opponents = [
        opponent
        for opponent in _opponents(runs, section)
        if any(_quantiles(run, Match(section, opponent, play))[0].size for run in runs)
    ]
    if not opponents:
        return None
    with panels(opponents) as (drawn, axes):
        for ax, opponent in zip(axes, opponents, strict=True):
            ax.axhline(0, color=QUIET, linewidth=0.8)
            for place, run in enumerate(runs):
                x, parts = _quantiles(run, Match(section, opponent, play))
                if not x.size:
                    continue
                color = color_of(place)
                ax.plot(x, parts[:, 2], color=color, marker=marker_of(place))
                ax.fill_between(x, parts[:, 0], parts[:, 4], color=color, alpha=0.12, linewidth=0)
                ax.fill_between(x, parts[:, 1], parts[:, 3], color=color, alpha=0.25, linewidth=0)
            whole_numbers(ax, _LABELS["iterations"])
        _label_rows(axes, 3, f"points ahead, {play}")
        return to_svg(drawn, name)


def manner(runs: Sequence[RunRecord], section: str, name: str) -> str | None:
    """How a strategy played: one row a figure, one column an opponent."""
    opponents = _opponents(runs, section)
    if not opponents:
        return None
    columns = len(opponents)
    titles = [*opponents, *[""] * columns * (len(_MANNER) - 1)]
    with panels(titles, columns, share_y="row") as (drawn, axes):
        for row, (figure, label) in enumerate(_MANNER.items()):
            own = axes[row * columns : (row + 1) * columns]
            own[0].set_ylabel(label)
            for ax, opponent in zip(own, opponents, strict=True):
                for place, run in enumerate(runs):
                    for play in PLAYS:
                        metric = f"{section}/{opponent}/{play}/{figure}"
                        _draw(ax, run, place, metric, play != PLAYS[0], is_marked=True)
                whole_numbers(ax, _LABELS["iterations"] if figure == "mean_plies" else "")
            own[0].set_ylim(bottom=0)
        return to_svg(drawn, name)


def exactness(
    runs: Sequence[RunRecord], sections: dict[str, str], along: Along, name: str
) -> str | None:
    """NashConv of each strategy of a small game, on a logarithmic axis."""
    found = {
        section: title
        for section, title in sections.items()
        if any(np.isfinite(run.values(f"{section}/exact/nash_conv")).any() for run in runs)
    }
    if not found:
        return None
    with panels(list(found.values()), share_y=True) as (drawn, axes):
        for ax, section in zip(axes, found, strict=True):
            for place, run in enumerate(runs):
                metric = f"{section}/exact/nash_conv"
                _draw(ax, run, place, metric, is_marked=True, along=along)
            logarithmic(ax)
            whole_numbers(ax, _LABELS[along])
        axes[0].set_ylabel("NashConv")
        return to_svg(drawn, name)


def losses(runs: Sequence[RunRecord], name: str) -> str | None:
    """Loss of every fit: at its first step dashed, at its last solid."""
    fits = in_order(run.names("loss/") for run in runs)
    fits = list(dict.fromkeys(fit.removesuffix("_first").removesuffix("_last") for fit in fits))
    # The losses of a critic that the estimator does without are written as 0.
    fits = [fit for fit in fits if any(run.values(f"{fit}_last").any() for run in runs)]

    def draw(ax: Axes, fit: str) -> None:
        for place, run in enumerate(runs):
            _draw(ax, run, place, f"{fit}_first", is_dashed=True)
            _draw(ax, run, place, f"{fit}_last")
        _log_if_positive(ax)

    return _small_multiples(fits, [_words(fit) for fit in fits], draw, name)


def speed(runs: Sequence[RunRecord], name: str) -> str | None:
    """Throughput and utilisation of the traversals."""

    def draw(ax: Axes, metric: str) -> None:
        for place, run in enumerate(runs):
            _draw(ax, run, place, metric)
        many(ax)

    return _small_multiples(list(_SPEED), list(_SPEED.values()), draw, name)


def memories(runs: Sequence[RunRecord], name: str) -> str | None:
    """Samples that each memory holds, solid, and has seen, dashed."""
    kept = in_order(run.names("memory/") for run in runs)
    kept = list(dict.fromkeys(metric.rpartition("_")[0] for metric in kept))

    def draw(ax: Axes, memory: str) -> None:
        for place, run in enumerate(runs):
            _draw(ax, run, place, f"{memory}_seen", is_dashed=True)
            _draw(ax, run, place, f"{memory}_size")
        many(ax)

    return _small_multiples(kept, [_words(memory) for memory in kept], draw, name)


def phases(run: RunRecord, name: str) -> str:
    """Seconds of each phase of an iteration, stacked; compiling and evaluation apart."""
    spent = {
        metric.removeprefix("time/").removesuffix("_seconds"): np.nan_to_num(run.values(metric))
        for metric in run.names("time/")
    }
    whole = spent.pop("iteration", np.zeros(len(run.rows)))
    apart = {title: spent.pop(key) for key, title in _APART.items() if key in spent}
    rest = whole - sum([*spent.values(), *apart.values()], np.zeros(len(run.rows)))
    named = {_words(phase): seconds for phase, seconds in spent.items()}
    with panels(["training", "besides"], columns=2) as (drawn, axes):
        drawn.set_size_inches(9.6, 2.6)
        for ax, parts in zip(axes, (named | {"the rest": rest.clip(0)}, apart), strict=True):
            _stack(ax, run.iterations, parts)
            whole_numbers(ax, _LABELS["iterations"])
        axes[0].set_ylabel("seconds")
        return to_svg(drawn, name)


def depths(runs: Sequence[RunRecord], name: str) -> str | None:
    """Traversals by the decisions they took, in the last iteration of each run."""
    with panels(["last iteration"], columns=1) as (drawn, (ax,)):
        for place, run in enumerate(runs):
            counts = run.lists("traversal/depth_histogram")[-1]
            size = run.values("traversal/depth_bin_size")[-1]
            if counts is None or not counts.sum() or not np.isfinite(size):
                continue
            edges = np.arange(len(counts) + 1) * size
            ax.stairs(100 * counts / counts.sum(), edges, color=color_of(place), linewidth=1.4)
        if not ax.patches:
            return None
        whole_numbers(ax, "decisions of a traversal")
        ax.set_ylabel("traversals, %")
        return to_svg(drawn, name)


def _opponents(runs: Sequence[RunRecord], section: str) -> list[str]:
    return in_order(
        [match.opponent for match in run.matches() if match.section == section] for run in runs
    )


def _draw_match(
    ax: Axes, run: RunRecord, place: int, match: Match, figure: str, along: Along
) -> None:
    """A curve with 95 % intervals, as areas and, since one evaluation has no area, as lines."""
    prefix = "/".join(match)
    x, middle = getattr(run, along), run.values(f"{prefix}/{figure}")
    if figure == "win_rate":
        low, high = (100 * run.values(f"{prefix}/win_rate_{end}") for end in ("low", "high"))
        middle = 100 * middle
    else:
        half = 1.96 * run.values(f"{prefix}/{figure}_error")
        low, high = middle - half, middle + half
    _line(ax, x, middle, place, match.play != PLAYS[0], is_marked=True)
    there, color = np.isfinite(low) & np.isfinite(high), color_of(place)
    ax.fill_between(x[there], low[there], high[there], color=color, alpha=0.15, linewidth=0)
    ax.vlines(x[there], low[there], high[there], color=color, alpha=0.5, linewidth=0.8)


def _draw(
    ax: Axes,
    run: RunRecord,
    place: int,
    metric: str,
    is_dashed: bool = False,
    is_marked: bool = False,
    along: Along = "iterations",
) -> None:
    _line(ax, getattr(run, along), run.values(metric), place, is_dashed, is_marked)


def _line(
    ax: Axes, x: np.ndarray, y: np.ndarray, place: int, is_dashed: bool, is_marked: bool
) -> None:
    """A run's curve through the values that there are; markers of a dashed one are hollow."""
    there, color = np.isfinite(y), color_of(place)
    ax.plot(
        x[there],
        y[there],
        color=color,
        linestyle=(0, (4, 2)) if is_dashed else "-",
        marker=marker_of(place) if is_marked or there.sum() == 1 else "",
        markerfacecolor="white" if is_dashed else color,
    )


def _quantiles(run: RunRecord, match: Match) -> tuple[np.ndarray, np.ndarray]:
    """Iterations int[n] and the five quantiles of each of them float[n, 5]."""
    found = run.lists("/".join(match) + "/score_quantiles")
    rows = [
        (iteration, parts)
        for iteration, parts in zip(run.iterations, found, strict=True)
        if parts is not None and parts.shape == (5,)
    ]
    return np.array([row[0] for row in rows]), np.array([row[1] for row in rows])


def _small_multiples(
    metrics: Sequence[str], titles: Sequence[str], draw: Callable[[Axes, str], None], name: str
) -> str | None:
    """One panel a metric over the iterations."""
    if not metrics:
        return None
    with panels(titles) as (drawn, axes):
        for ax, metric in zip(axes, metrics, strict=True):
            draw(ax, metric)
            whole_numbers(ax, _LABELS["iterations"])
        return to_svg(drawn, name)


def _stack(ax: Axes, iterations: np.ndarray, parts: dict[str, np.ndarray]) -> None:
    edges = np.append(iterations - 0.5, iterations[-1] + 0.5)
    base = np.zeros(len(iterations))
    palette = (*PALETTE[:-1], QUIET)
    for place, (label, seconds) in enumerate(parts.items()):
        color = QUIET if label == "the rest" else palette[place % len(palette)]
        ax.stairs(base + seconds, edges, baseline=base, fill=True, color=color, label=label)
        base = base + seconds
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        # In the order of the stack, beside it.
        ax.legend(
            handles[::-1], labels[::-1], frameon=False, loc="upper left", bbox_to_anchor=(1, 1)
        )


def _log_if_positive(ax: Axes) -> None:
    values = [np.asarray(line.get_ydata(), float) for line in ax.lines]
    if all((part > 0).all() for part in values) and any(part.size for part in values):
        logarithmic(ax)


def _label_rows(axes: Sequence[Axes], columns: int, label: str) -> None:
    for ax in axes[::columns]:
        ax.set_ylabel(label)


def _words(metric: str) -> str:
    return metric.rpartition("/")[2].replace("_", " ")
