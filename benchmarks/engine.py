"""`python -m benchmarks.engine`: the rules alone, and the encoding of what a player knows.

Uniformly random legal games in lockstep show what the engine costs without a network;
encoding moves bytes more than it computes, so it is compared with plain copies.
"""

import dataclasses
import sys
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from benchmarks.fixtures import positions
from benchmarks.harness import (
    Measurement,
    Report,
    compile_ahead,
    device_meshes,
    looped,
    measure_rates,
    parse_flags,
    tree_bytes,
)
from benchmarks.limits import copy_limit
from lostcities_jax.cli import Preset
from lostcities_jax.errors import run_command
from lostcities_jax.features import encode
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.info_state import unpack
from lostcities_jax.regret import uniform_strategy
from lostcities_jax.rollout import Match, Played, Player, play_match
from lostcities_jax.rules import PRESETS, Rules
from lostcities_jax.settings import BatchWidth, Count, Positive, Seed, checked

NAME = "engine"


@checked
@dataclasses.dataclass(frozen=True)
class Flags:
    """Half-steps per second of random games, on one device and on all; rows per second of encoding.

    Attributes:
      rules: rules of the game.
      width: lanes of a device.
      games_per_lane: games of a run for each lane.
      encodings: batches encoded in a run.
      repeats: timed runs of each part.
      seconds: time after which a part gets no more runs.
      seed: seed of the games.
      store: append the records to benchmarks/results.
    """

    rules: Preset = "classic"
    width: BatchWidth = 512
    games_per_lane: Count = 16
    encodings: Count = 500
    repeats: Count = 5
    seconds: Positive = 20.0
    seed: Seed = 0
    store: bool = False


def main(argv: Sequence[str]) -> None:
    """Runs the command; raises UserError for whatever the user can mend."""
    flags = parse_flags(Flags, argv, NAME)
    rules = PRESETS[flags.rules]
    meshes = device_meshes(())
    limit = copy_limit(meshes)
    report = Report(NAME, f"engine and encoding, {flags.rules} rules", flags, argv)
    for mesh in meshes:
        limit.measure()
        report.add(_random_games(rules, flags, mesh))
    limit.measure()
    report.add(dataclasses.replace(_encoding(rules, flags), limit=limit))
    limit.measure()
    report.finish()


def _random_games(rules: Rules, flags: Flags, mesh: Mesh) -> Measurement:
    game = lost_cities(rules)
    games = flags.width * flags.games_per_lane
    match = Match(
        policies=(_uniform_policy, _uniform_policy),
        width=flags.width,
        games=games,
        is_marked=lambda head, action: action > 0,
    )
    part = "random games" if mesh.size == 1 else f"random games, {mesh.size} devices"
    (axis,) = mesh.axis_names

    def on_device(players: tuple[Player, Player], key: jax.Array) -> Played:
        return play_match(game, match, players, key, games * jax.lax.axis_index(axis))

    play = jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=PartitionSpec(),
        out_specs=PartitionSpec(axis),
        check_vma=False,
    )
    players = (Player(None, jnp.asarray(False)), Player(None, jnp.asarray(False)))
    key = jax.random.key(flags.seed)
    keys = [jax.random.fold_in(key, repeat) for repeat in range(flags.repeats + 1)]
    compiled, compile_seconds = compile_ahead(play, players, keys[0])

    def half_steps(played: Played) -> float:
        return 2.0 * float(played.final.turn.astype(jnp.int32).sum())

    rates = measure_rates(
        lambda repeat: compiled(players, keys[repeat]), half_steps, flags.repeats, flags.seconds
    )
    return Measurement(
        settings={"part": part, "width": flags.width, "devices": mesh.size},
        unit="half-steps/s",
        rates=rates,
        compile_seconds=compile_seconds,
        figures={"us/half-step": 1e6 / sorted(rates)[len(rates) // 2]},
    )


def _uniform_policy(params: None, info: jax.Array, legal: jax.Array, head: int) -> jax.Array:
    del params, info, head
    return uniform_strategy(legal)


def _encoding(rules: Rules, flags: Flags) -> Measurement:
    info = positions(lost_cities(rules), flags.width, flags.seed)[0].info

    def encode_rows(packed: jax.Array):
        return encode(rules, unpack(rules, packed))

    moved = info.nbytes + tree_bytes(jax.eval_shape(encode_rows, info))
    compiled, compile_seconds = compile_ahead(looped(encode_rows, flags.encodings), info)
    rates = measure_rates(
        lambda _: compiled(info),
        lambda _: float(flags.encodings * flags.width),
        flags.repeats,
        flags.seconds,
    )
    per_row = moved / flags.width
    return Measurement(
        settings={"part": "encoding", "width": flags.width},
        unit="rows/s",
        rates=rates,
        compile_seconds=compile_seconds,
        per_item=per_row,
        figures={"GB/s": sorted(rates)[len(rates) // 2] * per_row / 1e9},
    )


if __name__ == "__main__":
    sys.exit(run_command(main))
