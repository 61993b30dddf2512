"""Whether a configuration fits in memory, before anything is compiled or written."""

import dataclasses

from jax.sharding import Mesh

from lostcities_jax import memory
from lostcities_jax.bots import BOTS
from lostcities_jax.devices import memory_limit_bytes
from lostcities_jax.errors import UserError, shown
from lostcities_jax.games.game import Game
from lostcities_jax.settings import Config
from lostcities_jax.solvers.catalogue import plays_itself
from lostcities_jax.solvers.remembering import needs_critic
from lostcities_jax.solvers.scheduling import traversal_plan
from lostcities_jax.traversal.plan import Plan
from lostcities_jax.traversal.sharded import device_plan
from lostcities_jax.traversal.tape import bytes_per_lane, value_bytes_per_lane

USABLE = 0.8  # share of a device's memory to plan with; the rest is the programs' own


def check_settings(config: Config, game: Game) -> None:
    """Refuses settings that do not go together.

    Raises:
      UserError: names the setting and what is allowed.
    """
    sizes = config.traversal
    if plays_itself(config):
        _check_self_play(config)
    elif config.rival.agent:
        raise UserError(
            f"rival.agent is {shown(config.rival.agent)}; allowed with solver policy_gradient or "
            f"learner.accumulation bootstrap"
        )
    if config.rival.agent and sizes.opponent != "current":
        raise UserError(
            f"rival.agent is {shown(config.rival.agent)} and traversal.opponent "
            f"{sizes.opponent}; allowed with a rival: current"
        )
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


def _check_self_play(config: Config) -> None:
    """Refuses what one network in both seats cannot do."""
    kind = "solver policy_gradient"
    if config.solver == "deep_cfr":
        kind = "learner.accumulation bootstrap"
    for name, value, allowed in (
        ("traversal.estimator", config.traversal.estimator, "critic"),
        ("traversal.sampling", config.traversal.sampling, "outcome"),
        ("scheduler.kind", config.scheduler.kind, "lockstep"),
    ):
        if value != allowed:
            raise UserError(f"{name} is {value}; allowed with {kind}: {allowed}")
    if config.traversal.opponent == "average":
        raise UserError(
            f"traversal.opponent is average; allowed with {kind}: current, league or a bot"
        )


def check_feasible(config: Config, game: Game, mesh: Mesh) -> None:
    """Refuses a width that the devices do not divide, and sizes that do not fit.

    Raises:
      UserError: names the setting, what it needs and the largest value that fits.
    """
    plan = traversal_plan(config, game)
    has_tape = config.scheduler.kind == "lockstep"
    try:
        if has_tape:
            device_plan(plan, mesh.size)
    except ValueError as error:
        raise UserError(f"traversal.{error}") from error
    limit = memory_limit_bytes(mesh.devices.flat[0])
    if limit is None:
        return
    usable = int(USABLE * limit)
    needed = _memory_bytes(config, game)
    if needed > usable:
        each = memory.bytes_needed(2, *_item(game)) - memory.bytes_needed(1, *_item(game))
        raise UserError(
            f"memory.advantage_capacity is {config.memory.advantage_capacity} and "
            f"memory.strategy_capacity {config.memory.strategy_capacity}, which need "
            f"{_gigabytes(needed)}; allowed: {usable // each} samples in all memories "
            f"together (critic.capacity included), in {_gigabytes(usable)}"
        )
    free = usable - needed
    wanted = _tape_bytes(game, plan, mesh) if has_tape else 0
    if wanted > free:
        powers = [2**k * mesh.size for k in range(21)]
        widths = [dataclasses.replace(plan, width=width) for width in powers]
        fits = [p.width for p in widths if _tape_bytes(game, p, mesh) <= free]
        hint = f"at most {max(fits)}" if fits else "a smaller traversal.traversals"
        if plan.levels(game):
            hint += " or an own traversal.tape_cycles"
        raise UserError(
            f"traversal.batch_width is {plan.width} with {plan.quota} traversals, whose tape "
            f"needs {_gigabytes(wanted)}; allowed: {hint}, in {_gigabytes(free)}"
        )


def _tape_bytes(game: Game, plan: Plan, mesh: Mesh) -> int:
    """Bytes of tape in one memory, and of the values of one device's decisions.

    CPU devices share their memory, a GPU has its own; tapes are valued one after the other.
    """
    share = device_plan(plan, mesh.size)
    devices = mesh.size if mesh.devices.flat[0].platform == "cpu" else 1
    cycles = share.cycles(game)
    tape = bytes_per_lane(game, cycles, plan.contents(game))
    values = value_bytes_per_lane(game, cycles, plan.has_critic)
    return share.width * (devices * tape + values)


def _memory_bytes(config: Config, game: Game) -> int:
    """Bytes of all memories, on the first device."""
    sizes, item = config.memory, _item(game)
    is_gradient = config.solver == "policy_gradient"
    advantage = memory.bytes_needed(sizes.advantage_capacity, *item, rows=2 if is_gradient else 1)
    strategy = memory.bytes_needed(sizes.strategy_capacity, *item)
    critic = memory.bytes_needed(config.critic.capacity, *item)
    return (
        advantage * (1 if plays_itself(config) else 2)
        + strategy * (0 if is_gradient else 1)
        + critic * (1 if needs_critic(config.traversal.estimator) else 0)
    )


def _item(game: Game) -> tuple[int, int]:
    return game.info_size, game.max_actions


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
