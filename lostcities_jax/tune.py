"""`python -m lostcities_jax.tune`: finds the width and devices that a config runs fastest with."""

import dataclasses
import functools
import pathlib
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import rich.box
import rich.table
import tyro
from pydantic import Field
from rich.console import Console

from lostcities_jax.compile_cache import use_compile_cache
from lostcities_jax.config import config_keys, dump_config, find_config, load_config, with_values
from lostcities_jax.devices import SAME, select_devices
from lostcities_jax.errors import UserError, run_command, shown
from lostcities_jax.files import write_text
from lostcities_jax.flags import help_if_asked, read_flags, refuse_idle
from lostcities_jax.settings import BatchWidth, Config, Count, Devices, checked
from lostcities_jax.strict_yaml import parse_scalar
from lostcities_jax.tuning import (
    Setting,
    Tuned,
    measure_setting,
    places_to_try,
    tune,
    widths_to_try,
    with_setting,
)

PROG = "python -m lostcities_jax.tune"


@checked
@dataclasses.dataclass(frozen=True)
class Trial:
    """What is tried.

    Attributes:
      widths: batch widths; by default powers of two up to the traversals of a batch.
      places: devices, each as of --devices, or two with a slash between: those of
        the memories and networks, and those that walk; by default what this machine has.
      repeats: iterations in which each of the best settings is measured.
      out: config file to write, a new one.
    """

    widths: tuple[BatchWidth, ...] = ()
    places: tuple[Devices, ...] = ()
    repeats: Count = 5
    out: Annotated[str | None, Field(min_length=1), tyro.conf.arg(metavar="FILE")] = None


@dataclasses.dataclass(frozen=True)
class _Flags:
    """Find the batch width and devices that a config runs fastest with.

    Runs iterations of the config with every setting; a flag wins over the config file.

    Attributes:
      config: YAML file of settings, or the name of a shipped one; the defaults below apply
        without it.
      trial: what is tried.
    """

    config: Annotated[pathlib.Path | None, tyro.conf.arg(metavar="FILE")] = None
    trial: Annotated[Trial, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Trial)
    settings: Annotated[Config, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Config)


def main(argv: Sequence[str]) -> int:
    """Runs the command; raises UserError for whatever the user can mend."""
    config, trial = _parse(argv)
    if trial.out is not None and pathlib.Path(trial.out).exists():
        raise UserError(f"--out is {shown(trial.out)}, which exists; allowed: a new file")
    if config.scheduler.kind != "lockstep":
        raise UserError(f"scheduler.kind is {config.scheduler.kind}; allowed to tune: lockstep")
    use_compile_cache()
    select_devices("auto")  # of the CPU there are as many as can be needed from the start
    console = Console()
    settings = [
        Setting(width, *place)
        for place in [_place(text) for text in trial.places] or places_to_try()
        for width in trial.widths or widths_to_try(config)
    ]
    measure = functools.partial(measure_setting, config)
    found = tune(settings, measure, trial.repeats, lambda one: console.print(str(one)))
    console.print(_table(found))
    best = found[0].setting
    console.out(
        f"--traversal.batch-width {best.width} --devices {best.devices} "
        f"--traversal.devices {best.walking}"
    )
    if trial.out is not None:
        write_text(pathlib.Path(trial.out), dump_config(with_setting(config, best)))
        console.out(f"written to {trial.out}")
    return 0


def _parse(argv: Sequence[str]) -> tuple[Config, Trial]:
    help_if_asked(argv, PROG, _Flags())
    kinds = config_keys(Trial)
    given = read_flags(argv, {"config": str} | kinds | config_keys())
    refuse_idle(given, ["devices", "traversal.devices"], "to tune", "what to try as --places")
    refuse_idle(given, ["traversal.batch_width"], "to tune", "what to try as --widths")
    path = given.pop("config", None)
    tried: dict[str, Any] = {key: given.pop(key) for key in kinds if key in given}
    if "widths" in tried:
        tried["widths"] = [parse_scalar(text) for text in tried["widths"]]
    base = Config() if path is None else load_config(find_config(path))
    return with_values(base, given), with_values(Trial(), tried)


def _place(text: str) -> tuple[str, str]:
    devices, slash, walking = text.partition("/")
    return devices, walking if slash else SAME


def _table(found: Sequence[Tuned]) -> rich.table.Table:
    table = rich.table.Table(title="iterations, the fastest first", box=rich.box.SIMPLE_HEAD)
    for heading in ("lanes", "devices", "walking", "s/iteration", "traversal s", "nodes/s", "runs"):
        table.add_column(heading, justify="right")
    for one in found:
        if one.timings:
            traversal = min(timing.traversal_seconds for timing in one.timings)
            table.add_row(
                str(one.setting.width),
                one.setting.devices,
                one.setting.walking,
                f"{one.seconds:.3f}",
                f"{traversal:.3f}",
                f"{one.nodes_per_second:,.0f}",
                str(len(one.timings)),
            )
    return table


if __name__ == "__main__":
    sys.exit(run_command(main))
