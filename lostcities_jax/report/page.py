"""The page of some runs: one HTML file with everything in it."""

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lostcities_jax.config import config_keys, config_value
from lostcities_jax.report import charts
from lostcities_jax.report.documents import html_page
from lostcities_jax.report.drawn import color_of, marker_of
from lostcities_jax.report.runs import STRATEGIES, RunRecord, in_order
from lostcities_jax.settings import Config

_SIGNS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼"}
_STRENGTH = {"win_rate": "Games won", "score_difference": "Points ahead"}


def runs_page(runs: Sequence[RunRecord]) -> str:
    """The HTML page of runs, to be opened by itself; nothing is loaded from elsewhere."""
    names = ", ".join(run.name for run in runs)
    has_matches = any(run.matches() for run in runs)
    body = [
        f"<h1>{html.escape(names)}</h1>",
        _legend(runs, has_matches),
        "<h2>What was run</h2>",
        _summary(runs),
        _differences(runs),
        *_evaluations(runs, has_matches),
        *_training(runs),
    ]
    return html_page(names, "\n".join(part for part in body if part))


def _legend(runs: Sequence[RunRecord], has_matches: bool) -> str:
    keys = [
        f'<span><b style="color:{color_of(place)}">{_SIGNS[marker_of(place)]}</b> '
        f"{html.escape(run.name)}</span>"
        for place, run in enumerate(runs)
    ]
    if has_matches:
        keys.append("<span>━ greedy, ╍ sampled (hollow); shaded: 95 % intervals</span>")
    return f'<p class="legend">{" ".join(keys)}</p>'


def _summary(runs: Sequence[RunRecord]) -> str:
    """Machine, versions and totals."""
    facts = [_facts(run) for run in runs]
    names = in_order(list(fact) for fact in facts)
    return _table(runs, {name: [fact.get(name, "") for fact in facts] for name in names})


def _facts(run: RunRecord) -> dict[str, str]:
    environment = run.environment
    versions = environment.get("versions", {})
    compiled = np.nan_to_num(run.values("time/compile_seconds")).sum()
    whole = np.nan_to_num(run.values("time/iteration_seconds")).sum()
    nodes = np.nan_to_num(run.values("traversal/nodes")).sum()
    changed = " and changes" if environment.get("git_changed") else ""
    return {
        "iterations": f"{run.iterations[-1]} of {run.config.iterations}",
        "training": f"{run.seconds[-1]:,.0f} s",
        "compiling": f"{compiled:,.0f} s",
        "everything": f"{whole:,.0f} s",
        "nodes": f"{nodes:,.0f}",
        "game": run.config.game,
        "solver": run.config.solver,
        "machine": f"{environment.get('platform', '')}, {environment.get('cpu_count', '?')} cores",
        "python": str(environment.get("python", "")),
        "packages": ", ".join(f"{name} {version}" for name, version in versions.items() if version),
        "commit": f"{str(environment.get('git_commit') or 'none')[:10]}{changed}",
    }


def _differences(runs: Sequence[RunRecord]) -> str:
    """Settings of any run that are not the defaults."""
    default = Config()
    rows = {
        key: [_plain(config_value(default, key))]
        + [_plain(config_value(run.config, key)) for run in runs]
        for key in config_keys()
        if any(config_value(run.config, key) != config_value(default, key) for run in runs)
    }
    if not rows:
        return "<h3>Settings</h3><p>All as by default.</p>"
    return "<h3>Settings that are not the defaults</h3>" + _table(runs, rows, ("default",))


def _evaluations(runs: Sequence[RunRecord], has_matches: bool) -> Iterator[str]:
    drawn = [charts.exactness(runs, STRATEGIES, *_along("exact", i)) for i in (0, 1)]
    exact = _tabs("exact", drawn)
    if exact:
        yield "<h2>Distance from an equilibrium</h2>" + exact
    if not has_matches and not exact:
        yield "<p>No evaluation has been made yet.</p>"
    for section, title in STRATEGIES.items():
        if not any(match.section == section for run in runs for match in run.matches()):
            continue
        yield f"<h2>The {title}</h2>"
        for figure, heading in _STRENGTH.items():
            name = f"{section}-{figure}"
            drawn = [charts.strength(runs, section, figure, *_along(name, i)) for i in (0, 1)]
            yield f"<h3>{heading}</h3>" + _tabs(name, drawn)
        yield _figure("How far ahead", charts.spread(runs, section, f"{section}-spread"),
                      "Median, middle half and middle nine tenths of the games.")  # fmt: skip
        yield _figure("How it played", charts.manner(runs, section, f"{section}-manner"))
        yield "<h3>Last evaluation</h3>" + _last(runs, section)


def _along(name: str, which: int) -> tuple[charts.Along, str]:
    along: charts.Along = ("iterations", "seconds")[which]
    return along, f"{name}-{along}"


def _training(runs: Sequence[RunRecord]) -> Iterator[str]:
    yield "<h2>Training</h2>"
    yield _figure("Losses", charts.losses(runs, "losses"),
                  "Of every fit: dashed at its first step, solid at its last.")  # fmt: skip
    yield _figure("Traversals", charts.speed(runs, "speed"))
    yield _figure("Depth of traversals", charts.depths(runs, "depths"))
    yield _figure("Samples", charts.memories(runs, "memories"),
                  "Solid: kept; dashed: seen. A memory is full where they part.")  # fmt: skip
    yield "<h3>Time of an iteration</h3>"
    for place, run in enumerate(runs):
        yield f"<p>{html.escape(run.name)}</p>{_box(charts.phases(run, f'phases-{place}'))}"


def _last(runs: Sequence[RunRecord], section: str) -> str:
    """The newest figures of every match."""
    heads = ["run", "iteration", "opponent", "play", "win % [95 %]", "points", "games"]
    rows = []
    for run in runs:
        for match in run.matches():
            if match.section != section:
                continue
            found = {
                figure: run.values("/".join(match) + "/" + figure)
                for figure in ("win_rate", "win_rate_low", "win_rate_high", "score_difference",
                               "score_difference_error", "games")
            }  # fmt: skip
            last = np.flatnonzero(np.isfinite(found["win_rate"]))
            if not last.size:
                continue
            at = {figure: values[last[-1]] for figure, values in found.items()}
            low, high = 100 * at["win_rate_low"], 100 * at["win_rate_high"]
            rows.append([
                run.name, str(run.iterations[last[-1]]), match.opponent, match.play,
                f"{100 * at['win_rate']:.1f} [{low:.1f}, {high:.1f}]",
                f"{at['score_difference']:+.1f} ± {at['score_difference_error']:.1f}",
                f"{at['games']:.0f}",
            ])  # fmt: skip
    return _raw_table(heads, rows)


def _tabs(name: str, drawn: Sequence[str | None]) -> str:
    """Two charts of which one shows, as the reader chooses; works without a script."""
    parts = []
    for which, (svg, title) in enumerate(zip(drawn, ("iterations", "seconds"), strict=True)):
        if svg is None:
            return ""
        checked = "" if which else " checked"
        parts.append(
            f'<input type="radio" name="{name}" id="{name}-tab{which}"{checked}>'
            f'<label for="{name}-tab{which}">over {title}</label>{_box(svg)}'
        )
    return f'<div class="tabs">{"".join(parts)}</div>'


def _figure(title: str, svg: str | None, note: str = "") -> str:
    if svg is None:
        return ""
    return f"<h3>{title}</h3>{f'<p>{note}</p>' if note else ''}{_box(svg)}"


def _box(svg: str) -> str:
    return f"<figure>{svg}</figure>"


def _table(
    runs: Sequence[RunRecord], rows: Mapping[str, Sequence[str]], heads: Sequence[str] = ()
) -> str:
    """A row a name and a column a run."""
    columns = ["", *heads, *[run.name for run in runs]]
    return _raw_table(columns, [[name, *cells] for name, cells in rows.items()])


def _raw_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>\n"
        for row in rows
    )
    return f'<div class="wide"><table><tr>{head}</tr>\n{body}</table></div>'


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "none"
    return "none" if value == "" else str(value)
