"""How charts look, and figures as SVG to put into a page: one place for colours, lines and fonts.

A run has one colour and one marker in every chart, after the palette of Okabe and Ito (2008),
"Color universal design".
"""

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v")
QUIET = "#9a9a9a"
_PANEL = (3.2, 2.1)  # inches
_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#707070",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
    "svg.fonttype": "none",  # letters stay letters
    "svg.hashsalt": "lostcities_jax",  # the same page for the same run
}


def color_of(place: int) -> str:
    """The colour of the run in this place."""
    return PALETTE[place % len(PALETTE)]


def marker_of(place: int) -> str:
    """The marker of the run in this place."""
    return MARKERS[place % len(MARKERS)]


@contextmanager
def panels(
    titles: Sequence[str], columns: int = 3, share_y: bool | Literal["row"] = False
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure with one panel a title, in rows of `columns`."""
    columns = min(columns, len(titles))
    rows = -(-len(titles) // columns)
    with matplotlib.rc_context(_STYLE):
        width = _PANEL[0] if columns <= 3 else 9.6 / columns
        figure = Figure(figsize=(width * columns, _PANEL[1] * rows), layout="constrained")
        grid = figure.subplots(rows, columns, sharey=share_y, squeeze=False)
        axes = list(grid.flat)
        for ax, title in zip(axes, titles, strict=False):
            ax.set_title(title)
            ax.margins(x=0.02)
        for ax in axes[len(titles) :]:
            ax.remove()
        yield figure, axes[: len(titles)]


def whole_numbers(ax: Axes, label: str) -> None:
    """An x axis that counts something."""
    ax.set_xlabel(label)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))


def logarithmic(ax: Axes) -> None:
    """A logarithmic y axis with plain numbers, for what is already drawn."""
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 200 * low else (1.0,)))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_locator(NullLocator())


def many(ax: Axes) -> None:
    """A y axis of large counts that starts at 0."""
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,.9g}"))


def to_svg(figure: Figure, name: str) -> str:
    """A figure as an SVG element; `name` keeps its ids apart from those of other figures."""
    buffer = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg)
    return svg.strip()
