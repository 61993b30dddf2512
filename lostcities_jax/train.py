"""`python -m lostcities_jax.train`: trains a policy and measures it against the bots."""

import contextlib
import dataclasses
import functools
import pathlib
import sys
from collections.abc import Sequence

from rich.console import Console

from lostcities_jax import processes, run_folder, run_state
from lostcities_jax.assembly import assemble
from lostcities_jax.cli import check_overrides, parse_train
from lostcities_jax.compile_cache import use_compile_cache
from lostcities_jax.compile_clock import CompileClock
from lostcities_jax.config import dump_config
from lostcities_jax.devices import Machine, out_of_memory_named, select_machine
from lostcities_jax.errors import run_command
from lostcities_jax.head_start import keep_start, new_state, with_pinned_start
from lostcities_jax.rivals import keep_rival, with_pinned_rival
from lostcities_jax.run_evaluation import RunEvaluation
from lostcities_jax.settings import Config
from lostcities_jax.stopping import StopRequest
from lostcities_jax.trackers import Sink, open_tracker
from lostcities_jax.tracking import MetricsWriter, Progress, RunLog
from lostcities_jax.training import Run, train

PROG = "python -m lostcities_jax.train"


def main(argv: Sequence[str], watch: Sink | None = None) -> int:
    """Runs the command; raises UserError for whatever the user can mend.

    Args:
      argv: arguments without the program's name.
      watch: called with each iteration and its metrics, such as a notebook's plot.
    """
    arguments = parse_train(argv, prog=PROG)
    config = arguments.config
    process = 0 if arguments.meeting is None else processes.join(arguments.meeting)
    if arguments.resume:
        assert arguments.run_dir is not None
        config = run_folder.reopen(arguments.run_dir)
        check_overrides(arguments, config)
    else:
        config = with_pinned_start(with_pinned_rival(config))
    use_compile_cache()
    clock = CompileClock()
    machine = select_machine(config.devices, config.traversal.devices)
    processes.check_agreement("config", dump_config(config))
    processes.check_agreement("number of devices", str(machine.lanes.size))
    resumed = arguments.run_dir if arguments.resume else None
    game, network, rival, solver = assemble(config, machine, resumed)
    with contextlib.ExitStack() as at_exit:
        at_exit.callback(solver.close)
        folder = processes.own_folder(arguments.run_dir, process)
        if not arguments.resume:
            folder = run_folder.create(folder, config, functools.partial(_keep_agents, config))
        assert folder is not None
        at_exit.enter_context(run_folder.locked(folder))
        log = at_exit.enter_context(RunLog(folder, Console(quiet=process > 0)))
        # Of several processes the first keeps the checkpoints of all.
        kept_in = folder if process == 0 else arguments.run_dir
        assert kept_in is not None
        new = functools.partial(new_state, config, solver, resumed or folder)
        with out_of_memory_named(run_state.MEMORY_SETTINGS):
            if arguments.resume:
                state, done = run_state.resume(config, kept_in, solver, new, log.write)
            else:
                state, done = new(), 0
        processes.check_agreement("newest checkpoint", str(done))
        saver = at_exit.enter_context(run_state.Saver(config, kept_in, solver, log.write))
        sinks = [] if watch is None else [watch]
        if arguments.track is not None and process == 0:
            settings = dataclasses.asdict(config)
            tracker = open_tracker(arguments.track, folder, settings, done)
            sinks.append(at_exit.enter_context(tracker))
        metrics = at_exit.enter_context(MetricsWriter(folder, sinks))
        if missing := metrics.truncate_after(done):
            log.write(f"metrics of {missing} iterations up to {done} are missing")
        should_stop = at_exit.enter_context(StopRequest(arguments.max_minutes, log.write))
        _announce(config, folder, machine, log, done)
        progress = at_exit.enter_context(Progress(log, config.iterations, done))
        measuring = RunEvaluation(config, game, network, log, progress.phase, rival)
        run = Run(
            config=config,
            folder=folder,
            game=game,
            solver=solver,
            clock=clock,
            metrics=metrics,
            progress=progress,
            evaluation=measuring,
            saver=saver,
            profile=arguments.profile,
        )
        done = train(run, state, done, should_stop)
        if done < config.iterations:
            log.write(
                f"stopped after iteration {done}; to go on: {PROG} --resume --run-dir {folder}"
            )
    return 0


def _keep_agents(config: Config, folder: pathlib.Path) -> None:
    keep_start(config, folder)
    keep_rival(config, folder)  # which has been loaded before: nothing is left if the other fails


def _announce(
    config: Config, folder: pathlib.Path, machine: Machine, log: RunLog, done: int
) -> None:
    if done >= config.iterations:
        log.write(f"{folder} is finished; measure it with python -m lostcities_jax.evaluate")
        return
    log.write(
        f"{'resuming after iteration ' + str(done) if done else 'training'} in {folder} on "
        f"{machine.lanes.size} {machine.lanes.devices.flat[0].platform} device(s), "
        f"batch width {config.traversal.batch_width}; compiling first"
    )


if __name__ == "__main__":
    sys.exit(run_command(main))
