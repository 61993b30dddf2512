"""The heuristic bots decide as those of the engine they were recorded on, over whole games."""

import collections
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lostcities_jax.bots import BOTS
from lostcities_jax.features import hand_counts, open_faces, top_faces
from lostcities_jax.heuristic import HeuristicParams, card_scores, draw_scores
from lostcities_jax.info_state import InfoState, observe
from lostcities_jax.positions import state_of
from lostcities_jax.recording import Move, parse_game
from lostcities_jax.reference import Game
from lostcities_jax.replay import move_action
from lostcities_jax.rules import CARD_PHASE, Rules

RECORDED = pathlib.Path(__file__).parent / "data" / "replays.jsonl"
PRESETS = ("cautious", "balanced", "aggressive")
IMPOSSIBLE = -np.inf


@functools.partial(jax.jit, static_argnums=(0, 3))
def all_scores(rules: Rules, params: HeuristicParams, infos: InfoState, phase: int) -> jax.Array:
    """Scores of playing and discarding every card type, or of the deck and every pile.

    Parameters and info states have a leading axis.
    """

    def one(params: HeuristicParams, info: InfoState) -> jax.Array:
        if phase == CARD_PHASE:
            held = hand_counts(rules, info.hand) > 0
            possible = jnp.stack([held & open_faces(rules, info.own_expeditions), held])
            return jnp.where(possible, card_scores(rules, params, info), IMPOSSIBLE).reshape(-1)
        deck, cards = draw_scores(rules, params, info)
        piles = jnp.where(top_faces(rules, info), cards, IMPOSSIBLE).max(-1)
        not_barred = jnp.arange(rules.colors, dtype=jnp.uint8) != info.barred
        return jnp.append(deck, jnp.where(not_barred, piles, IMPOSSIBLE))

    return jax.vmap(one)(params, infos)


def index_of(rules: Rules, move: Move) -> int:
    """Where the score of a recorded move stands."""
    if move.kind == "draw":
        return 0 if move.pile is None else 1 + move.pile
    assert move.card is not None
    return move.card + rules.colors * rules.faces * (move.kind == "discard")


@pytest.fixture(scope="module")
def behind_the_best() -> dict[str, np.ndarray]:
    """For each recorded bot, how far the score of every move is behind the best one's."""
    seen = collections.defaultdict(list)
    for line in RECORDED.read_text("utf-8").splitlines():
        recorded = parse_game(line)
        game = Game(recorded.rules, recorded.deck)
        for move in recorded.moves:
            name = recorded.players[game.player].removeprefix("heuristic-")
            if name in (*PRESETS, "noisy"):
                row = name, observe(state_of(game), game.player), index_of(game.rules, move)
                seen[game.rules, game.phase].append(row)
            game.step(move_action(game, move))
    behind = collections.defaultdict(list)
    for (rules, phase), rows in seen.items():
        names, infos, taken = zip(*rows, strict=True)
        judgements = stacked([BOTS[name].judgement for name in names])
        scores = np.asarray(all_scores(rules, judgements, stacked(infos), phase))
        for name, row, index in zip(names, scores, taken, strict=True):
            behind[name].append(row.max() - row[index])
    return {name: np.array(each) for name, each in behind.items()}


def stacked(trees):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


@pytest.mark.parametrize("name", PRESETS)
def test_every_recorded_decision_has_the_highest_score(behind_the_best, name):
    # Of equal scores that engine takes the card drawn last, which an info state does not show.
    assert len(behind_the_best[name]) > 500
    np.testing.assert_allclose(behind_the_best[name], 0, atol=1e-3)


def test_recorded_noisy_decisions_are_those_of_balanced_but_for_the_noise(behind_the_best):
    is_best = behind_the_best["noisy"] < 1e-3
    # 15 % are uniform; some of these are the best by chance.
    assert 0.85 - 4 * np.sqrt(0.15 * 0.85 / len(is_best)) < is_best.mean() < 0.97
