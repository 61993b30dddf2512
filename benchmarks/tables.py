"""`python -m benchmarks.tables`: the tables of README and RESULTS, from the stored results.

A table stands on one of the pages between two comments with its name and is replaced as a whole,
so that no figure is copied by hand. Of several records of one setting the newest counts, and none
from another machine than the newest, but for runs of equal time: those have a table a machine.
"""

import dataclasses
import json
import pathlib
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import harness
from benchmarks.ablation import OPPONENTS
from benchmarks.harness import parse_flags
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.settings import checked

NAME = "tables"
PAGES = (
    pathlib.Path(__file__).parents[1] / "README.md",
    pathlib.Path(__file__).parent / "RESULTS.md",
)
Record = dict[str, Any]


@checked
@dataclasses.dataclass(frozen=True)
class Flags:
    """Write the stored results of the benchmarks into the tables of the pages.

    Attributes:
      check: write nothing; exit with 1 if a table is not that of the stored results.
    """

    check: bool = False


def main(argv: Sequence[str]) -> int:
    """Runs the command; raises UserError for whatever the user can mend."""
    flags = parse_flags(Flags, argv, NAME)
    old = [page.read_text(encoding="utf-8") for page in PAGES]
    new = with_tables(old)
    if flags.check:
        print("the pages have the stored results" if new == old else "a page is out of date")
        return int(new != old)
    for page, text in zip(PAGES, new, strict=True):
        page.write_text(text, encoding="utf-8")
    return 0


def with_tables(pages: Sequence[str]) -> list[str]:
    """The texts of the pages with every table in its place.

    Raises:
      UserError: for a table that has no place, or several.
    """
    pages = list(pages)
    for name, make in TABLES.items():
        begin, end = f"<!-- {name}: python -m benchmarks.tables -->", f"<!-- end of {name} -->"
        place = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        found = [index for index, page in enumerate(pages) for _ in place.findall(page)]
        if len(found) != 1:
            times = f"{len(found)} times"
            raise UserError(f"{begin} is on the pages {times}; allowed: once, with {end}")
        table = f"{begin}\n{make()}\n{end}"
        pages[found[0]] = place.sub(lambda _, table=table: table, pages[found[0]])
    return pages


def stored(name: str) -> list[Record]:
    """Records of a benchmark from the machine of the newest, the newest of each setting."""
    return stored_by_machine(name)[-1]


def stored_by_machine(name: str) -> list[list[Record]]:
    """The newest record of each setting, machine by machine; that of the newest record is last."""
    path = harness.RESULTS / f"{name}.jsonl"
    machines: dict[str, dict[str, Record]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        machine = machine_of(record)
        rows = machines[machine] = machines.pop(machine, {})
        rows[_row_of(record)] = record
    return [list(rows.values()) for rows in machines.values()]


def machine_of(record: Record) -> str:
    """The machine of a record in words."""
    kind = record["device_kind"]
    processor = record.get("processor") or "unknown processor"
    cores = "1 core" if record["cores"] == 1 else f"{record['cores']} cores"
    return f"{cores} of {processor}" if kind == "cpu" else kind


def network_of(record: Record) -> str:
    """The network of a record in short, such as `mlp 512x3`."""
    settings = record["settings"]
    return f"{settings['network']} {settings['hidden']}x{settings['layers']}"


def _row_of(record: Record) -> str:
    """What tells a record from those of other settings; how long it was measured does not."""
    ways = ("store", "repeats", "seconds", "widths", "networks", "traversals_per_lane")
    ways += ("max_cycles", "steps", "traversals", "host_traversals", "variants", "seeds")
    settings = {key: value for key, value in record["settings"].items() if key not in ways}
    return json.dumps(settings, sort_keys=True)


def _traversal() -> str:
    """Rates over widths, one column for each network and number of devices."""
    records = stored("traversal")
    cells, columns = {}, {}
    for record in records:
        devices = record["settings"]["devices"]
        column = (network_of(record), devices)
        heading = f"{column[0]}, {devices} device{'s' if devices > 1 else ''}"
        columns[column] = heading
        cells[record["settings"]["width"], column] = f"{record['rate']:,.0f}" + _share(record)
    best = {}
    for record in records:
        column = (network_of(record), record["settings"]["devices"])
        if column not in best or record["rate"] > best[column]["rate"]:
            best[column] = record
    for column, record in best.items():
        place = (record["settings"]["width"], column)
        cells[place] = f"**{cells[place]}**"
    widths = sorted({width for width, _ in cells})
    order = sorted(columns)
    lines = [["lanes", *(columns[column] for column in order)]]
    for width in widths:
        lines.append([f"{width:,}", *(cells.get((width, column), "") for column in order)])
    return f"{_markdown(lines)}\n\n{_where(records)}"


def _schedulers() -> str:
    records = stored("schedulers")
    networks = sorted({record["settings"]["network"] for record in records}, reverse=True)
    by = {
        (record["settings"]["scheduler"], record["settings"]["network"]): record
        for record in records
    }
    lines = [["scheduler"]]
    for network in networks:
        lines[0] += [f"{network}: nodes/s", "realised batch", "of limit"]
    for scheduler in dict.fromkeys(scheduler for scheduler, _ in by):
        line = [scheduler]
        for network in networks:
            record = by[scheduler, network]
            line += [
                f"{record['rate']:,.0f}",
                f"{record['realised_batch']:,.1f}",
                f"{record['ratio']:.2f}",
            ]
        lines.append(line)
    return f"{_markdown(lines)}\n\n{_where(records)}"


def _pieces() -> str:
    """One row for each row of the benchmarks of single pieces."""
    parts = {"engine": "part", "evaluation": "pair", "memory": "part", "learner": "batch"}
    lines, used = [["benchmark", "row", "figure", "of limit"]], []
    for name, key in parts.items():
        for record in stored(name):
            row = f"{key} {record['settings'][key]}" if key == "batch" else record["settings"][key]
            if name in ("evaluation", "learner"):
                row += f" ({network_of(record)})"
            share = "" if record["ratio"] is None else f"{record['ratio']:.2f}"
            figure = f"{record['rate']:,.0f} {record['unit']}"
            lines.append([f"`python -m benchmarks.{name}`", row, figure, share])
            used.append(record)
    return f"{_markdown(lines)}\n\n{_where(used)}"


def _ablation() -> str:
    """A table for each machine, since the same minutes are not the same work on another."""
    return "\n\n".join(_variants(records) for records in stored_by_machine("ablation"))


def _variants(records: Sequence[Record]) -> str:
    """One row for each variant, with the figures of its seeds beside each other."""
    lines = [["variant", "iterations", *(f"{name}: win %, points" for name in OPPONENTS)]]
    for variant in dict.fromkeys(one["settings"]["variant"] for one in records):
        figures = [one["figures"] for one in records if one["settings"]["variant"] == variant]
        line = [variant, " / ".join(f"{one['iterations']:.0f}" for one in figures)]
        for name in OPPONENTS:
            wins = " / ".join(f"{one[f'{name}, win %']:.1f}" for one in figures)
            points = " / ".join(f"{one[f'{name}, points']:+.1f}" for one in figures)
            line.append(f"{wins}, {points}")
        lines.append(line)
    return f"{_markdown(lines)}\n\n{_where(records)}"


def _share(record: Record) -> str:
    return "" if record["ratio"] is None else f" ({record['ratio']:.2f})"


def _where(records: Sequence[Record]) -> str:
    """The machine and how busy it was, since a busy one is slow."""
    loads = [record["load_average"] for record in records]
    machines = ", ".join(dict.fromkeys(machine_of(record) for record in records))
    versions = ", ".join(dict.fromkeys(record["versions"]["jax"] for record in records))
    return f"On {machines}; jax {versions}; load average {min(loads):.1f} to {max(loads):.1f}."


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    head, *rest = lines
    rows = [head, ["---"] * len(head), *rest]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


TABLES: dict[str, Callable[[], str]] = {
    "traversal": _traversal,
    "pieces": _pieces,
    "schedulers": _schedulers,
    "ablation": _ablation,
}

if __name__ == "__main__":
    sys.exit(run_command(main))
