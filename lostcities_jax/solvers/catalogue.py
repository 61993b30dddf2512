"""The solvers by configuration: how each makes an iteration of its steps, and what it saves."""

from typing import Any

import jax

from lostcities_jax.devices import Machine
from lostcities_jax.games.game import Game
from lostcities_jax.learner import LearnerState
from lostcities_jax.networks import Network
from lostcities_jax.settings import Config
from lostcities_jax.snapshots import Snapshots
from lostcities_jax.solvers.deep_cfr import DeepCfrState, make_deep_cfr
from lostcities_jax.solvers.remembering import Memories
from lostcities_jax.solvers.seating import Rival
from lostcities_jax.solvers.self_play import SelfPlayState, make_self_play
from lostcities_jax.solvers.solver import Phases, Report, Solver


def plays_itself(config: Config) -> bool:
    """Whether one network plays both seats, and learns from both."""
    return config.solver == "policy_gradient" or config.learner.accumulation == "bootstrap"


def make_solver(
    config: Config, game: Game, network: Network, machine: Machine, rival: Rival | None = None
) -> Solver:
    """Builds the solver of a configuration; only self-play takes a rival to beat."""
    if plays_itself(config):
        return _self_play(config, game, network, machine, rival)
    return _deep_cfr(config, game, network, machine)


def _deep_cfr(config: Config, game: Game, network: Network, machine: Machine) -> Solver:
    steps = make_deep_cfr(config, game, network, machine)

    def update(
        state: DeepCfrState, player: int, iteration: int, phases: Phases
    ) -> tuple[DeepCfrState, Report]:
        with phases("traversal", f"traversal, player {player}"):
            batch = jax.block_until_ready(steps.traverse(state, player, iteration))
        counted = steps.statistics(batch)
        with phases("memory", f"memory, player {player}"):
            state = steps.remember(state, player, iteration, batch)
            del batch
            jax.block_until_ready(state)
        with phases("train", f"networks, player {player}"):
            fitted = {}
            if state.critic is not None:  # first: it may have a device of its own
                state, fitted[f"critic_{player}"] = steps.fit_critic(state, player, iteration)
            state, fitted[f"advantage_{player}"] = steps.fit_advantage(state, player, iteration)
            jax.block_until_ready(state)
        return state, Report([jax.device_get(counted)], fitted)

    def iterate(state: DeepCfrState, iteration: int, phases: Phases) -> tuple[DeepCfrState, Report]:
        state, first = update(state, 0, iteration, phases)
        state, second = update(state, 1, iteration, phases)
        report = Report(first.statistics + second.statistics, first.losses | second.losses)
        return steps.keep_snapshot(state, iteration), report

    def prepare(state: DeepCfrState, iteration: int, phases: Phases) -> tuple[DeepCfrState, Report]:
        with phases("strategy_train", "strategy network"):
            state, losses = jax.block_until_ready(steps.fit_strategy(state, iteration))
        return state, Report([], {"strategy": losses})

    def split(state: DeepCfrState) -> tuple[dict[str, Any], dict[str, Any]]:
        policy = {
            "strategy": state.strategy.params,
            "advantage": [learner.params for learner in state.advantage],
        }
        training = {
            "strategy": state.strategy.params,
            "strategy_optimizer": state.strategy.optimizer,
            "advantage_optimizers": [learner.optimizer for learner in state.advantage],
            "critic": state.critic,
            "strategy_memory": state.strategy_memory,
            "advantage_memories": list(state.advantage_memories),
        }
        return _with_snapshots(policy, training, state.snapshots)

    def join(policy: dict[str, Any], training: dict[str, Any]) -> DeepCfrState:
        advantage = [
            LearnerState(params, optimizer)
            for params, optimizer in zip(
                policy["advantage"], training["advantage_optimizers"], strict=True
            )
        ]
        state = DeepCfrState(
            advantage=(advantage[0], advantage[1]),
            strategy=_strategy(policy, training),
            advantage_memories=tuple(training["advantage_memories"]),
            strategy_memory=training["strategy_memory"],
            critic=training["critic"],
            critic_memory=steps.new_critic_memory(),
            snapshots=_snapshots(policy, training),
        )
        return jax.device_put(state, machine.home)

    return Solver(
        init=steps.init,
        iterate=iterate,
        prepare=prepare,
        prepares_always=config.traversal.opponent == "average",
        memories=lambda state: {
            "advantage_0": state.advantage_memories[0],
            "advantage_1": state.advantage_memories[1],
            "strategy": state.strategy_memory,
        },
        split=split,
        join=join,
        close=steps.close,
    )


def _self_play(
    config: Config, game: Game, network: Network, machine: Machine, rival: Rival | None
) -> Solver:
    steps = make_self_play(config, game, network, machine, rival)

    def iterate(
        state: SelfPlayState, iteration: int, phases: Phases
    ) -> tuple[SelfPlayState, Report]:
        counted = []
        for index in range(steps.batches):
            with phases("traversal", "self-play"):
                batch = jax.block_until_ready(steps.play(state, iteration, index))
            counted.append(steps.statistics(batch))
            with phases("memory", "memory"):
                state = steps.remember(state, iteration, index, batch)
                del batch
                jax.block_until_ready(state)
        with phases("train", "networks"):
            # The critic first: it may have a device of its own.
            state, critic_losses = steps.fit_critic(state, iteration)
            state, losses = steps.fit_policy(state, iteration)
            jax.block_until_ready(state)
        state = steps.keep_snapshot(state, iteration)
        return state, Report(jax.device_get(counted), {"policy": losses, "critic": critic_losses})

    def prepare(
        state: SelfPlayState, iteration: int, phases: Phases
    ) -> tuple[SelfPlayState, Report]:
        if state.strategy is None:
            return state, Report([], {})
        with phases("strategy_train", "strategy network"):
            state, losses = jax.block_until_ready(steps.fit_strategy(state, iteration))
        return state, Report([], {"strategy": losses})

    def split(state: SelfPlayState) -> tuple[dict[str, Any], dict[str, Any]]:
        training: dict[str, Any] = {
            "policy_optimizer": state.policy.optimizer,
            "critic": state.critic,
        }
        if state.strategy is None:
            return _with_snapshots({"policy": state.policy.params}, training, state.snapshots)
        policy = {"strategy": state.strategy.params, "advantage": [state.policy.params]}
        training["strategy"] = state.strategy.params
        training["strategy_optimizer"] = state.strategy.optimizer
        training["strategy_memory"] = state.memories.strategy
        return _with_snapshots(policy, training, state.snapshots)

    def join(policy: dict[str, Any], training: dict[str, Any]) -> SelfPlayState:
        params = policy["policy"] if "policy" in policy else policy["advantage"][0]
        strategy, memories = None, steps.new_memories()
        if "strategy" in policy:
            strategy = _strategy(policy, training)
            memories = memories._replace(strategy=training["strategy_memory"])
        state = SelfPlayState(
            policy=LearnerState(params, training["policy_optimizer"]),
            critic=training["critic"],
            strategy=strategy,
            memories=memories,
            snapshots=_snapshots(policy, training),
        )
        return jax.device_put(state, machine.home)

    return Solver(
        init=steps.init,
        iterate=iterate,
        prepare=prepare,
        prepares_always=False,
        memories=lambda state: _named(state.memories),
        split=split,
        join=join,
        close=lambda: None,
    )


def _strategy(policy: dict[str, Any], training: dict[str, Any]) -> LearnerState:
    """The average strategy to go on from; older checkpoints have it in the policy alone."""
    params = training.get("strategy", policy["strategy"])
    return LearnerState(params, training["strategy_optimizer"])


def _named(memories: Memories) -> dict[str, Any]:
    named = {"policy": memories.advantage, "strategy": memories.strategy}
    return {name: memory for name, memory in named.items() if memory is not None}


def _with_snapshots(
    policy: dict[str, Any], training: dict[str, Any], snapshots: Snapshots | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    if snapshots is None:
        return policy, training
    policy |= {
        "snapshots": list(snapshots.params),
        "snapshot_iterations": snapshots.iteration,
    }
    return policy, training | {"snapshots_offered": snapshots.offered}


def _snapshots(policy: dict[str, Any], training: dict[str, Any]) -> Snapshots | None:
    if "snapshots" not in policy:
        return None
    params = tuple(policy["snapshots"])
    return Snapshots(params, policy["snapshot_iterations"], training["snapshots_offered"])
