"""`python -m benchmarks.plot`: nodes per second over batch widths, from the stored results.

Needs matplotlib (extra `report`).
"""

import dataclasses
import itertools
import pathlib
import sys
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from benchmarks import harness
from benchmarks.harness import parse_flags
from benchmarks.tables import Record, machine_of, network_of, stored
from lostcities_jax.errors import UserError, run_command, shown
from lostcities_jax.settings import checked

NAME = "plot"
_SUFFIXES = (".svg", ".png")


@checked
@dataclasses.dataclass(frozen=True)
class Flags:
    """Draw the stored results of benchmarks.traversal: rates over widths, with their limits.

    Attributes:
      out: file of the plot, .svg or .png; by default in the folder of the results.
    """

    out: Annotated[str, Field(max_length=1000)] = ""


def main(argv: Sequence[str]) -> None:
    """Runs the command; raises UserError for whatever the user can mend."""
    flags = parse_flags(Flags, argv, NAME)
    path = pathlib.Path(flags.out) if flags.out else harness.RESULTS / "traversal.svg"
    if path.suffix not in _SUFFIXES:
        raise UserError(f"--out is {shown(str(path))}; allowed: a name ending in .svg or .png")
    draw(stored("traversal"), path)
    print(path)


def draw(records: Sequence[Record], path: pathlib.Path) -> None:
    """One line for each network and number of devices, and the limit of each network."""
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for place, ((network, devices), line) in enumerate(lines_of(records).items()):
        widths, rates = zip(*((width, record["rate"]) for width, record in line), strict=True)
        color = f"C{place}"
        axes.plot(widths, rates, "o-", color=color, label=f"{network}, {devices} device(s)")
        limits = [record["limit"] / record["limit_per_item"] for _, record in line]
        axes.plot(widths, limits, ":", color=color, linewidth=1)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="lanes",
        ylabel="nodes/s",
        title=f"Lockstep traversal; dotted: the limit of matrix products\n{machine_of(records[0])}",
    )
    axes.set_xscale("log", base=2)
    axes.grid(alpha=0.3)
    axes.legend()
    # Without the time of day and random names the same results make the same file.
    metadata = {"Date": None} if path.suffix == ".svg" else None
    try:
        with matplotlib.rc_context({"svg.hashsalt": NAME}):
            figure.savefig(path, metadata=metadata)
    except OSError as error:
        raise UserError(f"--out {shown(str(path))} cannot be written: {error.strerror}") from error


def lines_of(records: Sequence[Record]) -> dict[tuple[str, int], list[tuple[int, Record]]]:
    """Records by width in order, for each network and number of devices."""

    def line(record: Record) -> tuple[str, int]:
        return network_of(record), record["settings"]["devices"]

    return {
        key: sorted(((one["settings"]["width"], one) for one in part), key=lambda pair: pair[0])
        for key, part in itertools.groupby(sorted(records, key=line), key=line)
    }


if __name__ == "__main__":
    sys.exit(run_command(main))
