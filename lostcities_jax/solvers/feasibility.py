"""Whether a configuration fits in memory, before anything is compiled or written."""

import dataclasses
import math
from typing import NamedTuple

import jax

from lostcities_jax import memory
from lostcities_jax.bots import BOTS
from lostcities_jax.devices import Machine, memory_limit_bytes
from lostcities_jax.errors import UserError, shown
from lostcities_jax.games.game import Game
from lostcities_jax.settings import Config
from lostcities_jax.solvers.catalogue import plays_itself
from lostcities_jax.solvers.joint import own_share
from lostcities_jax.solvers.opponents import FIXED
from lostcities_jax.solvers.remembering import needs_critic
from lostcities_jax.solvers.scheduling import traversal_plan
from lostcities_jax.traversal.sharded import device_plan
from lostcities_jax.traversal.tape import bytes_per_lane, value_bytes_per_lane

USABLE = 0.8  # share of a device's memory to plan with; the rest is the programs' own


def check_settings(config: Config, game: Game) -> None:
    """Refuses settings that do not go together.

    Raises:
      UserError: names the setting and what is allowed.
    """
    sizes = config.traversal
    if config.rival.agent and game.rules is None:
        raise UserError(
            f"rival.agent is {shown(config.rival.agent)}, which plays Lost Cities alone; "
            f"allowed in {game.name}: none"
        )
    if plays_itself(config):
        _check_self_play(config)
    elif config.rival.agent:
        raise UserError(
            f"rival.agent is {shown(config.rival.agent)}; allowed with solver policy_gradient or "
            f"learner.accumulation bootstrap"
        )
    if config.gradient.start_from and config.solver != "policy_gradient":
        raise UserError(
            f"gradient.start_from is {shown(config.gradient.start_from)}; "
            f"allowed with solver policy_gradient alone"
        )
    if config.rival.agent and sizes.opponent != "current":
        raise UserError(
            f"rival.agent is {shown(config.rival.agent)} and traversal.opponent "
            f"{sizes.opponent}; allowed with a rival: current"
        )
    if sizes.sparring:
        _check_sparring(config, game)
    if not any(dataclasses.astuple(config.utility)):
        raise UserError("utility.points and utility.win are 0; allowed: one or both above 0")
    if sizes.opponent == "league" and not config.snapshots.every:
        raise UserError(
            "traversal.opponent is league and snapshots.every is 0; "
            "allowed with a league: 1 or more"
        )
    if sizes.opponent == "league" and not any(dataclasses.astuple(config.league)):
        raise UserError("all weights of league are 0; allowed: one or more above 0")
    if sizes.cut_value == "rollouts" and not (sizes.max_depth or sizes.max_nodes):
        raise UserError(
            "traversal.cut_value is rollouts, but nothing is cut; allowed: with "
            "traversal.max_depth or traversal.max_nodes"
        )
    if sizes.cut_value == "rollouts" and config.scheduler.kind != "lockstep":
        raise UserError(
            f"traversal.cut_value is rollouts; allowed with scheduler.kind "
            f"{config.scheduler.kind}: score"
        )
    if config.scheduler.kind == "server" and config.scheduler.slots < config.scheduler.workers:
        raise UserError(
            f"scheduler.slots is {config.scheduler.slots}; "
            f"allowed: at least the {config.scheduler.workers} workers"
        )
    if game.rules is None:
        players = [("opponent", sizes.opponent)]
        if sizes.cut_value == "rollouts":
            players.append(("rollout_policy", sizes.rollout_policy))
        for name, player in players:
            if player in BOTS and player != "random":
                raise UserError(
                    f"traversal.{name} is {player}, which plays Lost Cities alone; "
                    f"allowed in {game.name}: random"
                )


def _check_sparring(config: Config, game: Game) -> None:
    """Refuses bots to spar with where the network does not play itself."""
    name = f"traversal.sparring is {', '.join(config.traversal.sparring)}"
    if game.rules is None:
        raise UserError(f"{name}, who play Lost Cities alone; allowed in {game.name}: none")
    if not plays_itself(config):
        raise UserError(
            f"{name}; allowed with solver policy_gradient or learner.accumulation bootstrap"
        )
    if config.rival.agent or config.traversal.opponent != "current":
        raise UserError(f"{name}; allowed with traversal.opponent current and without a rival")


def _check_self_play(config: Config) -> None:
    """Refuses what one network in both seats cannot do."""
    kind, others = "solver policy_gradient", "solver deep_cfr and learner.accumulation reservoir"
    if config.solver == "deep_cfr":
        kind, others = "learner.accumulation bootstrap", "learner.accumulation reservoir"
    warm_start = str(config.learner.warm_start).lower()
    for name, value, allowed in (
        ("traversal.estimator", config.traversal.estimator, ("critic",)),
        ("traversal.sampling", config.traversal.sampling, ("outcome",)),
        ("traversal.opponent", config.traversal.opponent, ("current", "league", *FIXED)),
        ("scheduler.kind", config.scheduler.kind, ("lockstep",)),
        ("learner.warm_start", warm_start, ("true",)),
    ):
        if value not in allowed:
            raise UserError(
                f"{name} is {value}; allowed with {kind}: {', '.join(allowed)}; others need "
                f"{others}"
            )


class MemoryNeeds(NamedTuple):
    """Bytes that the sizes of a run decide, in one process.

    Attributes:
      tape_per_lane: tape of a lane, on the devices that walk.
      values_per_lane: values of a lane's decisions, where it is swept.
      per_sample: an info state, legal actions, a target and an iteration.
      tapes: all tapes and their values on the devices that walk and share one memory.
      at_home: of one device's tape and values that are brought home to the memories.
      memories: all memories.
    """

    tape_per_lane: int
    values_per_lane: int
    per_sample: int
    tapes: int
    at_home: int
    memories: int


def memory_needs(config: Config, game: Game, machine: Machine) -> MemoryNeeds:
    """What lockstep traversals and memories need; tests hold it against XLA's own account.

    Any number of devices goes with any width: each takes its share of the lanes, rounded up.
    """
    plan = traversal_plan(config, game)
    lanes = machine.lanes
    share = device_plan(plan, lanes.size * machine.processes)
    cycles = share.cycles(game)
    tape = bytes_per_lane(game, cycles, plan.contents(game))
    values = value_bytes_per_lane(game, cycles, plan.has_critic)
    sharing = lanes.size if lanes.devices.flat[0].platform == "cpu" else 1
    is_brought = lanes.size > 1 or lanes.devices.flat[0] != machine.home
    return MemoryNeeds(
        tape_per_lane=tape,
        values_per_lane=values,
        per_sample=_sample_bytes(game),
        tapes=sharing * share.width * (tape + values),
        at_home=share.width * (tape + values) if is_brought else 0,
        memories=_memory_bytes(config, game, machine),
    )


def check_feasible(config: Config, game: Game, machine: Machine) -> None:
    """Refuses sizes that do not fit.

    Raises:
      UserError: names the setting, what it needs and the largest value that fits.
    """
    usable = _usable_bytes(machine.home)
    memories = _memory_bytes(config, game, machine)
    if memories > usable:
        raise UserError(
            f"memory.advantage_capacity is {config.memory.advantage_capacity} and "
            f"memory.strategy_capacity {config.memory.strategy_capacity}, which need "
            f"{_gigabytes(memories)}; allowed: "
            f"{int(machine.processes * usable / _sample_bytes(game))} samples in all memories "
            f"together (critic.capacity included, and on a CPU a checkpoint's copy), in "
            f"{_gigabytes(usable)}"
        )
    if config.learner.batch_size % machine.processes:
        raise UserError(
            f"learner.batch_size is {config.learner.batch_size}; allowed: a multiple of the "
            f"{machine.processes} processes"
        )
    if config.scheduler.kind != "lockstep":
        if machine.processes > 1:
            raise UserError(
                f"scheduler.kind is {config.scheduler.kind}; allowed with several processes: "
                f"lockstep"
            )
        return
    needs = memory_needs(config, game, machine)
    if _fits(needs, machine):
        return
    widths = [2**k * machine.lanes.size * machine.processes for k in range(21)]
    fits = [
        width for width in widths if _fits(_needs_of_width(config, game, machine, width), machine)
    ]
    hint = f"at most {max(fits)}" if fits else "a smaller traversal.traversals"
    if traversal_plan(config, game).levels(game):
        hint += " or an own traversal.tape_cycles"
    raise UserError(
        f"traversal.batch_width is {config.traversal.batch_width} with "
        f"{config.traversal.traversals} traversals, whose tape needs "
        f"{_gigabytes(needs.tapes + needs.at_home)}; allowed: {hint}, in "
        f"{_gigabytes(usable - memories)}"
    )


def _needs_of_width(config: Config, game: Game, machine: Machine, width: int) -> MemoryNeeds:
    sizes = dataclasses.replace(config.traversal, batch_width=width)
    return memory_needs(dataclasses.replace(config, traversal=sizes), game, machine)


def _fits(needs: MemoryNeeds, machine: Machine) -> bool:
    """Whether the tapes fit beside the memories, in one memory or in two."""
    home, walking = machine.home, machine.lanes.devices.flat[0]
    at_home = needs.memories + needs.at_home
    if walking == home or walking.platform == home.platform == "cpu":
        return at_home + needs.tapes <= _usable_bytes(home)
    return at_home <= _usable_bytes(home) and needs.tapes <= _usable_bytes(walking)


def _usable_bytes(device: jax.Device) -> float:  # pyright: ignore
    limit = memory_limit_bytes(device)
    return math.inf if limit is None else USABLE * limit


def _sample_bytes(game: Game) -> int:
    return memory.bytes_needed(2, *_item(game)) - memory.bytes_needed(1, *_item(game))


def _memory_bytes(config: Config, game: Game, machine: Machine) -> int:
    """Bytes of all memories of a process, at its home, and of the critic's copy for its own device.

    CPU devices share a memory; on others the copy is counted as if they did. Where home is a CPU,
    so are the copies of what a checkpoint keeps while it is written, of all processes in one.
    """
    sizes, item = config.memory, _item(game)
    is_gradient = config.solver == "policy_gradient"

    def bytes_of(capacity: int, rows: int = 1) -> int:
        return memory.bytes_needed(own_share(machine, capacity), *item, rows=rows)

    copies = 0
    if needs_critic(config.traversal.estimator):
        copies = 1 if machine.aside == machine.home else 2
    advantage = bytes_of(sizes.advantage_capacity, rows=2 if is_gradient else 1)
    advantage *= 1 if plays_itself(config) else 2
    strategy = bytes_of(sizes.strategy_capacity) * (0 if is_gradient else 1)
    saved = strategy if plays_itself(config) else advantage + strategy
    written = saved * machine.processes if machine.home.platform == "cpu" else 0
    return advantage + strategy + bytes_of(config.critic.capacity) * copies + written


def _item(game: Game) -> tuple[int, int]:
    return game.info_size, game.max_actions


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.2f} GB"
