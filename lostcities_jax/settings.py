"""The settings of a training run: frozen dataclasses whose defaults are the shipped config.

A setting is one field below: its type is its check, its docstring line its `--help` text.
"""

import dataclasses
import typing
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, with_config

from lostcities_jax.rules import CLASSIC, Rules

Seed = Annotated[int, Field(ge=0, lt=2**31)]
Count = Annotated[int, Field(ge=1, le=10**9)]
CountOrZero = Annotated[int, Field(ge=0, le=10**9)]
BatchWidth = Annotated[int, Field(ge=1, le=2**20)]
Games = Annotated[int, Field(ge=2, le=10**9, multiple_of=2)]
Devices = Annotated[str, Field(min_length=1, max_length=100)]
Positive = Annotated[float, Field(gt=0, le=1e6)]
Weight = Annotated[float, Field(ge=0, le=1e6)]
LeastProbability = Annotated[float, Field(ge=0, lt=1)]
Opponent = Literal[
    "random", "discard-only", "cautious", "balanced", "aggressive", "noisy", "expert"
]
TraversalOpponent = Literal["current", "average", "league", Opponent]


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """Shape of the advantage and strategy networks.

    Attributes:
      kind: mlp over flat features, or one network shared by all colours.
      hidden: units of a hidden layer.
      layers: hidden layers.
    """

    kind: Literal["mlp", "color_shared"] = "color_shared"
    hidden: Annotated[int, Field(ge=1, le=16384)] = 96
    layers: Annotated[int, Field(ge=1, le=64)] = 3


@dataclasses.dataclass(frozen=True)
class TraversalConfig:
    """How an iteration samples the game tree.

    Attributes:
      batch_width: lanes that walk the game in lockstep; each device takes as many, rounded up.
      devices: devices that walk, if others than those of the run: same, auto, gpu or cpu:N; with
        a weak GPU, its memories and networks may stay there while the CPU's cores walk.
      traversals: traversals of a batch; an iteration has one for both seats where a network plays
        itself, else one for each player.
      epsilon: share of uniform exploration in the traverser's sampling policy.
      sampling: actions the traverser follows: one by its sampling policy, all, or some.
      branches: how many of the legal actions robust sampling follows.
      opponent: policy the opponent samples from: its current or average strategy, a past one
        drawn for each batch by the weights of `league`, or a rule-based player.
      sparring: rule-based players that a network which plays itself meets as well: for each
        iteration one is drawn for each seat.
      sparring_share: games that it plays in each seat, of as many as the network plays with itself.
      fallback: strategy where no advantage is positive.
      precision: of the networks' arithmetic while walking; fits are in float32.
      estimator: of regrets: by importance weights alone, around a critic's values, or by
        those values alone.
      max_depth: decisions after which a path is cut; 0 for no limit.
      max_nodes: decisions of a traversal after which its paths are cut; 0 for no limit.
      cut_value: of a cut path: the score as it stands, or the mean of rollouts from there.
      rollouts: games played out from a cut.
      rollout_policy: rule-based player that plays them.
      stack_levels: open decisions a lane has room for; 0 for as many as can be needed.
      tape_cycles: cycles of decisions a tape has room for; 0 for an estimate.
    """

    batch_width: BatchWidth = 256
    devices: Devices = "same"
    traversals: Count = 512
    epsilon: Annotated[float, Field(gt=0, le=1)] = 0.03
    sampling: Literal["outcome", "external", "robust"] = "outcome"
    branches: Count = 2
    opponent: TraversalOpponent = "current"
    sparring: tuple[Opponent, ...] = ()
    sparring_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    fallback: Literal["argmax", "uniform"] = "argmax"
    precision: Literal["float32", "bfloat16"] = "float32"
    estimator: Literal["outcome", "baseline", "critic"] = "critic"
    max_depth: CountOrZero = 0
    max_nodes: CountOrZero = 0
    cut_value: Literal["score", "rollouts"] = "score"
    rollouts: Count = 4
    rollout_policy: Opponent = "expert"
    stack_levels: Annotated[int, Field(ge=0, le=255)] = 0
    tape_cycles: CountOrZero = 0


@dataclasses.dataclass(frozen=True)
class SchedulerConfig:
    """How traversals share the machine; all schedulers give the same samples.

    Attributes:
      kind: lockstep is the fast one; the others walk on the host: recursive one traversal at
        a time, interleaved many in one process, server with worker processes and one for
        the networks.
      traversals: suspended traversals of a process; 1 makes a worker wait for every answer.
      workers: worker processes of the server.
      slots: rows that the workers share with the server.
      max_batch: rows of a network call of the server.
      window_microseconds: how long the server waits for more rows.
    """

    kind: Literal["lockstep", "recursive", "interleaved", "server"] = "lockstep"
    traversals: Annotated[int, Field(ge=1, le=2**20)] = 64
    workers: Annotated[int, Field(ge=1, le=256)] = 2
    slots: Annotated[int, Field(ge=1, le=2**20)] = 256
    max_batch: Annotated[int, Field(ge=1, le=2**20)] = 256
    window_microseconds: CountOrZero = 200


@dataclasses.dataclass(frozen=True)
class SnapshotConfig:
    """Past strategies that are kept, for a league of opponents or for their exact mixture.

    Attributes:
      every: iterations between snapshots; 0 for none.
      slots: snapshots kept; of more, a uniform sample.
    """

    every: CountOrZero = 0
    slots: Count = 64


@dataclasses.dataclass(frozen=True)
class LeagueConfig:
    """Weights with which a batch's opponent is drawn for `traversal.opponent: league`.

    Attributes:
      current: of the current strategy.
      recent: of the newer half of the snapshots.
      older: of the other half.
      anchor: of the oldest snapshot.
    """

    current: Weight = 0.5
    recent: Weight = 0.3
    older: Weight = 0.15
    anchor: Weight = 0.05


@dataclasses.dataclass(frozen=True)
class CriticConfig:
    """The network that values actions with both hands open; only some estimators use it.

    Attributes:
      steps: steps of each fit: one an iteration, or with networks of their own one a player.
      trace: share of what later decisions brought in its targets, against its own value (the
        lambda of Retrace).
      capacity: samples of the newest batch to fit to.
      target_scale: points that make 1.0 of a target.
    """

    steps: Count = 480
    trace: Annotated[float, Field(ge=0, le=1)] = 0.9
    capacity: Count = 200_000
    target_scale: Positive = 30.0


@dataclasses.dataclass(frozen=True)
class MemoryConfig:
    """Size of the reservoirs.

    Attributes:
      advantage_capacity: samples each player's advantage memory holds; with bootstrapped
        regrets or a policy gradient, samples of the newest batch.
      strategy_capacity: samples the strategy memory holds.
    """

    advantage_capacity: Count = 200_000
    strategy_capacity: Count = 500_000


@dataclasses.dataclass(frozen=True)
class LearnerConfig:
    """How the networks are fitted to the reservoirs.

    Attributes:
      batch_size: samples of one step.
      advantage_steps: steps per advantage network and iteration.
      strategy_steps: steps of each fit of the strategy network.
      optimizer: of all networks: AdamW, or Muon for hidden layers and Nadam for the rest. Muon is
        ahead in runs of some 40 iterations and far behind in long ones.
      learning_rate: of either.
      final_rate: share of the learning rate that is left at the end of the run, or of each fit
        that begins with new weights; it falls linearly. The strategy network's stays.
      weight_decay: of either.
      max_grad_norm: norm the gradient is clipped to.
      weighting: weight of a sample by the iteration it comes from.
      warm_start: go on from the last iteration's advantage network, not from a new one, which
        only a reservoir allows.
      target_scale: points that make 1.0 of a regret.
      accumulation: of regrets over iterations: a reservoir of those of all iterations, with
        one network a player; or bootstrap, one network for both players, fitted to the newest
        batch's regrets on top of what it said before.
      horizon: iterations that bootstrapped regrets look back over.
    """

    batch_size: Count = 256
    advantage_steps: Count = 400
    strategy_steps: Count = 2000
    optimizer: Literal["adam", "muon"] = "adam"
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 1.5e-3
    final_rate: Annotated[float, Field(ge=0, le=1)] = 0.05
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    max_grad_norm: Positive = 1.0
    weighting: Literal["none", "lcfr", "dcfr"] = "lcfr"
    warm_start: bool = True
    target_scale: Positive = 3.0
    accumulation: Literal["reservoir", "bootstrap"] = "bootstrap"
    horizon: Count = 40


@dataclasses.dataclass(frozen=True)
class GradientConfig:
    """The policy gradient's objective; `learner` and `critic` say how it is fitted.

    Attributes:
      steps: steps of the policy network an iteration.
      clip: how far the policy may move in an iteration, as a ratio of probabilities.
      entropy: weight of the policy's entropy in the first iteration.
      final_entropy: the same in the last; in between it moves in a line.
      start_from: a checkpoint, an agent file or shipped, whose network the policy begins with, that
        of the average strategy if it has one; a new network by default.
    """

    steps: Count = 600
    clip: Annotated[float, Field(gt=0, le=10)] = 0.2
    entropy: Annotated[float, Field(ge=0, le=10)] = 0.01
    final_entropy: Annotated[float, Field(ge=0, le=10)] = 0.01
    start_from: Annotated[str, Field(max_length=1000)] = ""


@dataclasses.dataclass(frozen=True)
class UtilityConfig:
    """What a finished game is worth to a player who is ahead by d points.

    Attributes:
      points: for each point ahead.
      win: points for winning, whatever the margin.
    """

    points: Weight = 1.0
    win: Weight = 0.0


@dataclasses.dataclass(frozen=True)
class RivalConfig:
    """A frozen opponent to learn to beat instead of oneself: then the run is an exploiter.

    Attributes:
      agent: a bot, or a checkpoint, of which the run keeps a copy; none by default.
      policy: strategy a checkpoint plays; auto: the one it is meant to.
      greedy: whether it takes its most probable actions.
    """

    agent: Annotated[str, Field(max_length=1000)] = ""
    policy: Literal["auto", "average", "current"] = "auto"
    greedy: bool = False


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """Matches against rule-based players during the run.

    Attributes:
      every: iterations between evaluations; 0 for one at the end only. Each fits the average
        strategy on from the last fit, so that they change it a little.
      games: games per opponent, even so that both seats play each deal.
      opponents: rule-based players to meet.
    """

    every: CountOrZero = 40
    games: Games = 1000
    opponents: tuple[Opponent, ...] = typing.get_args(Opponent)


@dataclasses.dataclass(frozen=True)
class SearchConfig:
    """Search at play time, over the most probable actions of a policy.

    Attributes:
      worlds: hidden cards dealt anew for each decision; 0 for no search.
      actions: how many of the most probable legal actions are tried in each of them.
      depth: own turns played after that of the decision, before the score as it stands; 0 for
        play to the end.
      margin: standard errors by which an action must beat the policy's own to replace it.
      play: whether rollouts take the policy's most probable actions, or sample.
      least_probability: of an action beside the most probable one, for it to be tried; a bot gives
        all but one action 0.
    """

    worlds: Annotated[int, Field(ge=0, le=4096)] = 0
    actions: Annotated[int, Field(ge=2, le=80)] = 8
    depth: CountOrZero = 0
    margin: Weight = 2.0
    play: Literal["greedy", "sampled"] = "greedy"
    least_probability: LeastProbability = 0.0

    def __post_init__(self):
        if self.worlds == 1:
            raise ValueError(
                "search.worlds is 1; allowed: 0 for no search, or 2 and more, since one world "
                "has no standard error"
            )


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """Checkpoints of the run.

    Attributes:
      every: iterations between checkpoints; each fits the average strategy as an evaluation does.
      keep: newest checkpoints to keep.
    """

    every: Count = 40
    keep: Count = 2


# JSON has no tuples or dataclasses, so `strict` bans "3", 3.0 and true where 3 is meant
# and still builds them. Nested dataclasses inherit this configuration.
checked = with_config(ConfigDict(strict=True, extra="forbid", allow_inf_nan=False))


@checked
@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that decides the outcome of a run; the defaults are `configs/default.yaml`.

    Values are checked by `config_from_dict` and `load_config`, not on construction.

    Attributes:
      seed: seed of every random draw of the run.
      iterations: iterations; each updates both players.
      devices: auto (all GPUs, else one CPU device for each core), gpu, or cpu:N; memories and
        networks are on the first.
      solver: deep_cfr minimises regrets, policy_gradient improves a policy in self-play.
      game: the game to solve.
      rules: rules of Lost Cities; other games have their own.
      network: shape of the networks.
      traversal: sampling of the game tree.
      scheduler: sharing of the machine.
      snapshots: keeping of past strategies.
      league: choice among them.
      critic: valuing of actions.
      memory: size of the reservoirs.
      learner: fitting of the networks.
      gradient: objective of a policy gradient.
      utility: what a game is played for; matches are measured in points all the same.
      rival: a frozen opponent.
      evaluation: matches during the run.
      checkpoint: checkpoints of the run.
    """

    seed: Seed = 0
    iterations: Count = 120
    devices: Devices = "auto"
    solver: Literal["deep_cfr", "policy_gradient"] = "deep_cfr"
    game: Literal["lost_cities", "kuhn", "leduc"] = "lost_cities"
    rules: Rules = CLASSIC
    network: NetworkConfig = NetworkConfig()
    traversal: TraversalConfig = TraversalConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    snapshots: SnapshotConfig = SnapshotConfig()
    league: LeagueConfig = LeagueConfig()
    critic: CriticConfig = CriticConfig()
    memory: MemoryConfig = MemoryConfig()
    learner: LearnerConfig = LearnerConfig()
    gradient: GradientConfig = GradientConfig()
    utility: UtilityConfig = UtilityConfig()
    rival: RivalConfig = RivalConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
