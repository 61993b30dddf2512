"""The commands' flags: one, dotted if nested, for every field of a dataclass."""

import dataclasses
import math
import pathlib
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

import tyro
from pydantic import Field

from lostcities_jax.bots import BOTS
from lostcities_jax.config import config_keys, config_value, find_config, load_config, with_values
from lostcities_jax.errors import UserError, shown
from lostcities_jax.flags import help_if_asked, read_flags, refuse_idle
from lostcities_jax.processes import Meeting
from lostcities_jax.settings import (
    BatchWidth,
    Config,
    Count,
    Devices,
    Games,
    Opponent,
    SearchConfig,
    Seed,
    checked,
)
from lostcities_jax.trackers import Tracker, check_tracker

Preset = Literal["classic", "six_colors", "mini"]

_Name = Annotated[str, Field(min_length=1)]
_MANY = tyro.conf.arg(metavar="AGENT ...")
_Rules = Annotated[Preset | None, tyro.conf.arg(metavar=" | ".join(typing.get_args(Preset)))]
_Policy = Annotated[
    Literal["average", "iterates", "current"] | None,
    tyro.conf.arg(metavar="average | iterates | current"),
]
_File = Annotated[pathlib.Path | None, tyro.conf.arg(metavar="FILE")]
_T = TypeVar("_T")
_BOTS_ALONE = ("with bots alone", "with a checkpoint")


@dataclasses.dataclass(frozen=True)
class TrainArguments:
    """What the train command was asked to do.

    Attributes:
      config: the settings, with those of the command line on top of those of the file.
      run_dir: folder of the run.
      resume: continue the run in `run_dir`.
      max_minutes: stop after the iteration in which these are over; None for no limit.
      profile: trace one iteration.
      track: where else to send the metrics; None for nowhere.
      meeting: how this process finds others to share the run with; None for one alone.
      overrides: dotted keys whose values were given: by flag, or all of them with `--config`.
    """

    config: Config
    run_dir: pathlib.Path | None = None
    resume: bool = False
    max_minutes: float | None = None
    profile: bool = False
    track: Tracker | None = None
    meeting: Meeting | None = None
    overrides: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class _Flags:
    """Train a Lost Cities policy; a flag wins over the config file.

    Attributes:
      config: YAML file of settings, or the name of a shipped one such as smoke; the defaults
        below apply without it.
      run_dir: folder of the run.
      resume: continue the run in --run-dir with its own settings.
      max_minutes: stop after the iteration in which these are over, fit the average strategy
        and save; no limit without.
      profile: write a JAX trace of this process's second iteration to the run folder.
      track: also send the metrics to TensorBoard files in the run folder, or to Weights & Biases.
      distributed: share the run with other processes, that Slurm, Kubernetes or MPI started.
      coordinator: the same without those: address and port of the first process.
      num_processes: how many processes there are.
      process_id: which of them this is, from 0.
    """

    config: _File = None
    run_dir: Annotated[pathlib.Path | None, tyro.conf.arg(metavar="DIR")] = None
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    max_minutes: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = None
    profile: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    track: Annotated[Tracker | None, tyro.conf.arg(metavar="tensorboard | wandb")] = None
    distributed: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    coordinator: Annotated[str | None, tyro.conf.arg(metavar="HOST:PORT")] = None
    num_processes: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    process_id: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    settings: Annotated[Config, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Config)


@checked
@dataclasses.dataclass(frozen=True)
class EvaluateArguments:
    """Measure an agent in matches against others, or show a recorded game.

    Attributes:
      agent: checkpoint (run folder, its checkpoints folder or one checkpoint) or name of a
        bot; none with --replay.
      against: opponents, each a checkpoint or the name of a bot.
      games: games per opponent, even so that both seats play each deal.
      seed: seed of the deals and of every draw of the agents.
      batch_width: games played in lockstep on all devices, and rollouts of a search on each.
      policy: strategy a checkpoint plays: its average network, the exact average of the
        iterates it kept, or that of its last iteration; by default what it is meant to play.
      search: search of AGENT at play time.
      rules: rules of matches between bots; a checkpoint brings its own.
      devices: auto (all GPUs, else one CPU device for each core), gpu, or cpu:N.
      replay: show this recorded game instead.
      json: also write the results to this file.
    """

    agent: Annotated[_Name | None, tyro.conf.Positional, tyro.conf.arg(metavar="[AGENT]")] = None
    against: Annotated[tuple[_Name, ...], Field(min_length=1), _MANY] = typing.get_args(Opponent)
    games: Games = 2000
    seed: Seed = 0
    batch_width: BatchWidth = 1024
    policy: _Policy = None
    search: SearchConfig = dataclasses.field(default_factory=SearchConfig)
    rules: _Rules = None
    devices: Devices = "auto"
    replay: _File = None
    json: _File = None


@checked
@dataclasses.dataclass(frozen=True)
class RateArguments:
    """Rate agents by a round robin: every pair on the same deals.

    Attributes:
      agents: each a bot, a checkpoint, or a run folder or its checkpoints folder, which
        stand for all their checkpoints.
      bots: bots to rate with them; none with the flag alone.
      policy: strategy a checkpoint plays: its average network, the exact average of the
        iterates it kept, or that of its last iteration.
      greedy: whether checkpoints take their most probable actions; bots play as they do.
      games: games of each pair, even so that both seats play each deal.
      seed: seed of the deals and of every draw of the agents.
      batch_width: games played in lockstep on all devices.
      rules: rules of bots alone; a checkpoint brings its own.
      devices: auto (all GPUs, else one CPU device for each core), gpu, or cpu:N.
      cross: also print the mean points of every pair.
      json: also write the results to this file.
    """

    agents: Annotated[tuple[_Name, ...], tyro.conf.Positional, _MANY] = ()
    bots: tuple[Opponent, ...] = typing.get_args(Opponent)
    policy: _Policy = None
    greedy: bool = True
    games: Games = 1000
    seed: Seed = 0
    batch_width: BatchWidth = 1024
    rules: _Rules = None
    devices: Devices = "auto"
    cross: bool = False
    json: _File = None


@checked
@dataclasses.dataclass(frozen=True)
class ExportArguments:
    """Write the policy of a checkpoint as one small file, to play and share.

    Attributes:
      runs: a run folder, its checkpoints folder, a checkpoint or agent file; of several that began
        with the same weights, the mean of their networks.
      out: the file, a new one that ends in .npz.
    """

    runs: Annotated[tuple[_Name, ...], tyro.conf.Positional, _MANY] = (".",)
    out: Annotated[_Name, tyro.conf.arg(metavar="FILE")] = "agent.npz"


@checked
@dataclasses.dataclass(frozen=True)
class PlayArguments:
    """Play against an agent on a page of a local server, or in the terminal.

    Attributes:
      agent: name of a bot, checkpoint (run folder, its checkpoints folder or one checkpoint) or
        agent file; by default the agent that comes with the package, or with --rules a bot.
      text: play in the terminal; needs no server.
      host: address or name to listen on; 0.0.0.0 lets other machines in.
      port: port to listen on; 0 for any free one.
      open: open the page in a browser.
      rules: rules of matches against bots; a checkpoint brings its own.
      policy: strategy a checkpoint plays: its average network, the exact average of the
        iterates it kept, or that of its last iteration.
      seat: 0 to start the first round, 1 to let the agent start.
      seed: seed of the match; a random one by default.
    """

    agent: Annotated[_Name | None, tyro.conf.Positional, tyro.conf.arg(metavar="[AGENT]")] = None
    text: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    host: Annotated[str, Field(min_length=1, max_length=253)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8421
    open: bool = False
    rules: _Rules = None
    policy: _Policy = None
    seat: Annotated[int, Field(ge=0, le=1)] = 0
    seed: Seed | None = None


@checked
@dataclasses.dataclass(frozen=True)
class ReportArguments:
    """Draw runs side by side, or a recorded game move by move, as one page to open anywhere.

    Attributes:
      runs: run folders; none with --replay.
      out: the page; one that is there is replaced.
      replay: file of recorded games to draw one of instead.
      game: which of them, counted from 1.
    """

    runs: Annotated[
        tuple[_Name, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[RUN ...]")
    ] = ()
    out: pathlib.Path = pathlib.Path("report.html")
    replay: _File = None
    game: Count = 1


def parse_train(
    argv: Sequence[str], default: Config | None = None, prog: str = "lostcities-train"
) -> TrainArguments:
    """Parse the train command's flags; `--help` prints them and exits with 0.

    Args:
      argv: arguments without the program's name.
      default: settings without `--config`; `Config()` by default.
      prog: the command as the help names it.

    Raises:
      UserError: for an unknown flag, a missing value or a value that is not allowed.
    """
    default = default or Config()
    help_if_asked(argv, prog, _Flags(settings=default))
    own = {"config": str, "run_dir": str, "resume": bool, "max_minutes": float}
    own |= {"profile": bool, "track": str, "distributed": bool, "coordinator": str}
    own |= {"num_processes": int, "process_id": int}
    given = read_flags(argv, own | config_keys())
    path = given.pop("config", None)
    run_dir = given.pop("run_dir", None)
    resume = given.pop("resume", False)
    max_minutes = _minutes(given.pop("max_minutes", None))
    profile = given.pop("profile", False)
    track = given.pop("track", None)
    if track is not None:
        check_tracker(track)
    meeting = _meeting(given)
    if meeting is not None and run_dir is None:
        raise UserError("--run-dir is missing; allowed with several processes: one for all")
    if resume and run_dir is None:
        raise UserError("--resume needs --run-dir, the folder of the run to continue")
    base = default if path is None else load_config(find_config(path))
    return TrainArguments(
        config=with_values(base, given),
        run_dir=None if run_dir is None else pathlib.Path(run_dir),
        resume=resume,
        max_minutes=max_minutes,
        profile=profile,
        track=track,
        meeting=meeting,
        overrides=tuple(given) if path is None else tuple(config_keys()),
    )


def parse_evaluate(argv: Sequence[str], prog: str = "lostcities-evaluate") -> EvaluateArguments:
    """Parse the evaluate command's flags; `--help` prints them and exits with 0.

    Whether a name is a bot or a checkpoint, and whether files exist, is left to the command.

    Args:
      argv: arguments without the program's name.
      prog: the command as the help names it.

    Raises:
      UserError: for an unknown flag, a missing value or a value that is not allowed.
    """
    help_if_asked(argv, prog, EvaluateArguments())
    kinds = config_keys(EvaluateArguments)
    given = read_flags(argv, kinds, positional="agent")
    arguments = with_values(EvaluateArguments(), given)
    idle = [key for key in given if key.startswith("search.") and key != "search.worlds"]
    if idle and not arguments.search.worlds:
        raise UserError(f"{idle[0]} without a search; allowed: with search.worlds of 2 and more")
    if (arguments.agent is None) == (arguments.replay is None):
        got = "missing" if arguments.agent is None else f"{shown(arguments.agent)} with --replay"
        either = "either AGENT, a checkpoint or bot named before --against, or --replay FILE"
        raise UserError(f"the value of AGENT is {got}; allowed: {either}")
    if arguments.replay is not None:
        refuse_idle(given, [key for key in kinds if key != "replay"], "with --replay", "FILE alone")
    elif {arguments.agent, *arguments.against} <= {*BOTS}:
        refuse_idle(given, ["policy"], *_BOTS_ALONE)
    return arguments


def parse_rate(argv: Sequence[str], prog: str = "lostcities-rate") -> RateArguments:
    """Parse the rate command's flags; as `parse_evaluate`."""
    arguments, given = _parse(RateArguments(), argv, prog, positional="agents")
    if {*arguments.agents} <= {*BOTS}:
        refuse_idle(given, ["policy", "greedy"], *_BOTS_ALONE)
    return arguments


def parse_export(argv: Sequence[str], prog: str = "lostcities-export") -> ExportArguments:
    """Parse the export command's flags; as `parse_evaluate`."""
    return _parse(ExportArguments(), argv, prog, positional="runs")[0]


def parse_play(argv: Sequence[str], prog: str = "lostcities-play") -> PlayArguments:
    """Parse the play command's flags; as `parse_evaluate`."""
    arguments, given = _parse(PlayArguments(), argv, prog, positional="agent")
    if arguments.text:
        refuse_idle(given, ["host", "port", "open"], "with --text", "on the page of a server")
    if arguments.agent in BOTS or (arguments.agent is None and arguments.rules is not None):
        refuse_idle(given, ["policy"], *_BOTS_ALONE)
    return arguments


def parse_report(argv: Sequence[str], prog: str = "lostcities-report") -> ReportArguments:
    """Parse the report command's flags; as `parse_evaluate`."""
    arguments, given = _parse(ReportArguments(), argv, prog, positional="runs")
    if bool(arguments.runs) == (arguments.replay is not None):
        got = f"{shown(arguments.runs[0])} with --replay" if arguments.runs else "missing"
        raise UserError(f"the value of RUN is {got}; allowed: run folders, or --replay FILE")
    if arguments.replay is None:
        refuse_idle(given, ["game"], "without --replay", "with --replay FILE")
    return arguments


def _parse(
    default: _T, argv: Sequence[str], prog: str, positional: str
) -> tuple[_T, Mapping[str, Any]]:
    """The arguments, and those of them that were given."""
    help_if_asked(argv, prog, default)
    given = read_flags(argv, config_keys(type(default)), positional)
    return with_values(default, given), given


def _meeting(given: dict[str, Any]) -> Meeting | None:
    """Takes the flags of several processes out of those given."""
    is_found = given.pop("distributed", False)
    names = ("coordinator", "num_processes", "process_id")
    values = {name: given.pop(name) for name in names if name in given}
    if not values:
        return Meeting() if is_found else None
    missing = [name for name in names if name not in values]
    if missing:
        raise UserError(
            f"--{missing[0].replace('_', '-')} is missing; allowed: --coordinator, "
            f"--num-processes and --process-id together"
        )
    address, count, process = values.values()
    if not re.fullmatch(r".+:\d{1,5}", address):
        raise UserError(f"--coordinator is {shown(address)}; allowed: an address and port")
    if type(count) is not int or count < 2:
        raise UserError(f"--num-processes is {shown(count)}; allowed: 2 or more")
    if type(process) is not int or not 0 <= process < count:
        raise UserError(f"--process-id is {shown(process)}; allowed: 0 to {count - 1}")
    return Meeting(address, count, process)


def _minutes(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool | str) or not 0 < value < math.inf:
        raise UserError(f"--max-minutes is {shown(value)}; allowed: a number above 0")
    return float(value)


def check_overrides(arguments: TrainArguments, run_config: Config) -> None:
    """Refuse to resume a run with settings other than those it was started with.

    Raises:
      UserError: for the first given setting that differs from the run's.
    """
    for key in arguments.overrides:
        asked, own = config_value(arguments.config, key), config_value(run_config, key)
        # An agent may be asked for by its run; this run has the checkpoint that it was then.
        is_agent = asked and key in ("rival.agent", "gradient.start_from")
        is_same_agent = is_agent and pathlib.Path(asked) in pathlib.Path(own).parents
        if asked != own and not is_same_agent:
            raise UserError(
                f"{key} is {shown(asked)}, but the run in {arguments.run_dir} has {shown(own)}; "
                f"allowed with --resume: the run's own settings"
            )
