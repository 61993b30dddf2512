"""`python -m benchmarks.tuning`: whether `tune` finds the fastest setting of this machine.

Every width and device is measured as often as the best few are by `tune`, which then chooses on its
own; how much slower its choice was in the sweep than the sweep's best is what it missed. A setting
that is refused is left out.
"""

import dataclasses
import functools
import sys
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from benchmarks.harness import Measurement, Report, parse_flags
from lostcities_jax.config import find_config, load_config
from lostcities_jax.devices import select_devices
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.settings import BatchWidth, Count, checked
from lostcities_jax.tuning import (
    Setting,
    Tuned,
    measure_setting,
    measured,
    places_to_try,
    tune,
    widths_to_try,
)

NAME = "tuning"
MOST_MISSED_PERCENT = 5.0


@checked
@dataclasses.dataclass(frozen=True)
class Flags:
    """Iterations per second over widths and devices, and which of them `tune` takes.

    Attributes:
      config: YAML file of settings, or the name of a shipped one.
      widths: batch widths; by default those that `tune` tries.
      repeats: iterations in which each setting of the sweep is measured.
      store: append the records to benchmarks/results.
    """

    config: Annotated[str, Field(min_length=1)] = "default"
    widths: tuple[BatchWidth, ...] = ()
    repeats: Count = 5
    store: bool = False


def main(argv: Sequence[str]) -> int:
    """Runs the command; raises UserError for whatever the user can mend."""
    flags = parse_flags(Flags, argv, NAME)
    config = load_config(find_config(flags.config))
    select_devices("auto")
    settings = [
        Setting(width, *place)
        for place in places_to_try()
        for width in flags.widths or widths_to_try(config)
    ]
    measure = functools.partial(measure_setting, config)
    report = Report(NAME, f"iterations of {flags.config}", flags, argv)
    tried = [measured(setting, measure, flags.repeats) for setting in settings]
    for one in tried:
        if not one.timings:
            report.note(f"left out: {one}")
    sweep = [one for one in tried if one.timings]
    if not sweep:
        raise UserError("every setting is refused; allowed: see the lines above")
    chosen = tune([one.setting for one in sweep], measure, flags.repeats, lambda _: None)[0].setting
    fastest = min(one.seconds for one in sweep)
    missed = {one.setting: 100 * (one.seconds / fastest - 1) for one in sweep}
    for one in sweep:
        report.add(_row(one, missed[one.setting], one.setting == chosen))
    report.finish()
    print(f"the choice of tune is {missed[chosen]:.1f} % slower than the fastest of the sweep")
    return int(missed[chosen] > MOST_MISSED_PERCENT)


def _row(one: Tuned, slower_percent: float, is_choice: bool) -> Measurement:
    return Measurement(
        settings=one.setting._asdict(),
        unit="iterations/s",
        rates=[1 / timing.seconds for timing in one.timings],
        figures={
            "nodes/s": one.nodes_per_second,
            "slower than the fastest, %": slower_percent,
            "choice of tune": float(is_choice),
        },
    )


if __name__ == "__main__":
    sys.exit(run_command(main))
