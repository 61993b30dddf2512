"""Matches: the same games on any devices, and errors that know which games share a draw."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lostcities_jax import evaluate, rate
from lostcities_jax.devices import select_devices
from lostcities_jax.errors import run_command
from lostcities_jax.evaluation import matches
from lostcities_jax.evaluation.agents import Agent, Mixture
from lostcities_jax.evaluation.matches import (
    GameFigures,
    both_seats,
    cluster_starts,
    clustered_error,
    play_games,
    play_pair,
)
from lostcities_jax.evaluation.search import search_agent
from lostcities_jax.games.kuhn import kuhn
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.networks import make_network
from lostcities_jax.population import __main__ as population
from lostcities_jax.population import bot_lanes, evolve
from lostcities_jax.population.revisions import Registry
from lostcities_jax.regret import uniform_strategy
from lostcities_jax.rollout import Match, Player, play_match, spread_match
from lostcities_jax.rules import CARD_PHASE, MINI
from lostcities_jax.run_evaluation import RunEvaluation
from lostcities_jax.run_state import metadata_of
from lostcities_jax.settings import Config, EvaluationConfig, NetworkConfig, SearchConfig
from lostcities_jax.tracking import RunLog

pytestmark = pytest.mark.usefixtures("quick_compile")


def lazy(params, info, legal, head):
    """Legal actions at random, plays more or less likely by the factor `params` than others."""
    is_play = (np.arange(legal.shape[-1]) < MINI.hand) & (head == CARD_PHASE)
    return legal * jnp.where(is_play[None], params, 1.0)


PLAYS, DISCARDS = (Agent(str(factor), lazy, (np.float32(factor),) * 2) for factor in (1e6, 0.0))
BOTH = Mixture("both", (PLAYS, DISCARDS), np.ones(2))
NEITHER = (False, False)


def uniform(params, info, legal, head):
    return uniform_strategy(legal)


def assert_same(left, right):
    for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("devices", "games", "width"), [(1, 7, 3), (2, 7, 64), (3, 7, 4), (4, 2, 1)]
)
def test_games_are_the_same_on_any_devices_whatever_their_number_and_the_width(
    devices, games, width
):
    """And no device waits for the games of another: a program without collectives."""
    players = (Player(None, jnp.asarray(False)),) * 2
    key, mesh = jax.random.key(0), select_devices(f"cpu:{devices}")
    match = Match((uniform, uniform), width, games, lambda head, action: action > 0)
    play = jax.jit(lambda key: spread_match(kuhn(), match, mesh, players, key, 5))
    program = play.lower(key).compile()
    spread = program(key)
    one_lane = dataclasses.replace(match, width=1)
    alone = jax.jit(lambda key: play_match(kuhn(), one_lane, players, key, 5))(key)
    assert_same(jax.tree.map(lambda leaf: np.asarray(leaf)[:games], spread), alone)
    assert spread.marks.devices() == {*jax.devices()[:devices]}
    text = program.as_text()
    assert "while" in text and not [word for word in ("all-", "collective") if word in text]


def test_both_seats_of_every_deal_are_the_same_on_any_devices():
    alone, spread = (
        play_games(MINI, PLAYS, DISCARDS, 14, 4, 5, NEITHER, mesh)
        for mesh in (None, select_devices("cpu:3"))
    )
    assert alone.difference.shape == (2, 7) and len(np.unique(alone.difference)) > 2
    assert_same(spread, alone)


@pytest.mark.slow
def test_a_searching_agent_plays_the_same_on_any_devices():
    agent = search_agent(MINI, PLAYS, SearchConfig(worlds=2, actions=2, margin=0.0), 8, 0)
    alone, spread = (
        play_games(MINI, agent, DISCARDS, 6, 4, 5, NEITHER, mesh)
        for mesh in (None, select_devices("cpu:2"))
    )
    assert_same(spread, alone)


CONFIG = Config(
    rules=MINI,
    devices="cpu:3",
    network=NetworkConfig(kind="mlp", hidden=2, layers=1),
    evaluation=EvaluationConfig(games=20, opponents=("random",)),
)
GAME = lost_cities(MINI)
NETWORK = make_network(GAME, "mlp", 2, 1)
SETTINGS = [f"--rules.{key}={value}" for key, value in vars(MINI).items()]
SETTINGS += ["--devices=cpu:3", "--evaluation.games=20", "--evaluation.opponents=random"]
BOTS_ALONE = ["--rules=mini", "--games=20", "--devices=cpu:3"]


@pytest.fixture
def meshes(monkeypatch):
    """The devices that programs of matches are to run on; they are not run."""
    seen = []

    def drawn(*shape):
        random = np.random.default_rng(len(seen))
        return GameFigures(
            **{
                field.name: random.integers(2, size=shape)
                for field in dataclasses.fields(GameFigures)
            }
        )

    def play(rules, match, mesh, *_):
        seen.append(mesh)
        return drawn(match.games)

    def play_lanes(rules, candidates, opponent, games, width, mesh, _):
        seen.append(mesh)
        return drawn(len(candidates.uniform), 2, games // 2)

    monkeypatch.setattr(matches, "_play", play)
    monkeypatch.setattr(bot_lanes, "_play", play_lanes)
    monkeypatch.setattr(bot_lanes, "MOST_TIMEOUTS", 1)
    return seen


@pytest.fixture(scope="module")
def revision(tmp_path_factory):
    """A registry with a revision, the name of that, and its policy."""
    path = tmp_path_factory.mktemp("registry")
    params = NETWORK.init(jax.random.key(0))
    policy = jax.device_get({"strategy": params, "advantage": [params]})
    name, _ = Registry(path).register(policy, metadata_of(CONFIG, policy), CONFIG, {})
    return path, name, policy


def measure_in_training(path, policy):
    with RunLog(path) as log:
        evaluation = RunEvaluation(CONFIG, GAME, NETWORK, log, log.write_file)
        assert evaluation._matches("eval", PLAYS, is_last=False)


@pytest.mark.parametrize(
    "use",
    [
        lambda *_: evaluate.main(["balanced", "--against", "random", *BOTS_ALONE]),
        lambda *_: rate.main(["balanced", "--bots", "random", *BOTS_ALONE]),
        lambda path, *_: population.main([str(path), *SETTINGS]),
        lambda path, *_: evolve.main([str(path), "--rounds=1", "--lanes=4", *SETTINGS]),
        lambda path, name, _: evolve.measure_revision(
            Registry(path), name, CONFIG, 0, select_devices("cpu:3")
        ),
        lambda path, _, policy: measure_in_training(path, policy),
    ],
    ids=["evaluate", "rate", "population", "evolve a bot", "evolve settings", "train"],
)
def test_matches_are_played_on_the_devices_asked_for(use, revision, meshes):
    use(*revision)
    assert meshes and all(mesh == select_devices("cpu:3") for mesh in meshes)


def test_evaluate_settles_the_devices_before_it_computes_anything(capsys):
    """Such as exact figures: then it would be too late for more CPU devices."""
    count = len(jax.devices())  # which starts JAX: here it is too late
    assert run_command(evaluate.main, ["no/such/run", "--devices", f"cpu:{count + 1}"]) == 2
    assert f"devices is cpu:{count + 1}; allowed: at most cpu:" in capsys.readouterr().err


def test_parameters_may_be_on_any_device_whatever_the_devices_of_a_match():
    """As those of a run are on the first of its devices."""
    params = jax.device_put(jnp.float32(1e6), jax.devices()[3])
    agent = PLAYS._replace(params=(params, params))
    found, usual = (
        play_games(MINI, one, DISCARDS, 14, 4, 5, NEITHER, select_devices("cpu:3"))
        for one in (agent, PLAYS)
    )
    assert_same(found, usual)


def test_a_mixture_draws_for_20_blocks_of_any_number_of_deals():
    """503 is prime: blocks of 25 or 26 deals, in each of which one agent goes on."""
    mixed = play_games(MINI, BOTH, DISCARDS, 1006, 64, 0, NEITHER)
    plays = (mixed.plays > 0).all(0)
    assert ((mixed.plays > 0).any(0) == plays).all() and plays.shape == (503,)
    changes = (np.flatnonzero(np.diff(plays)) + 1).tolist()
    assert 3 <= len(changes) < 20
    assert {*changes} <= {n * 503 // 20 for n in range(1, 20)}
    # Deal by deal it is what the agent drawn plays there.
    for agent, is_drawn in ((PLAYS, plays), (DISCARDS, ~plays)):
        seats = both_seats(MINI, agent, DISCARDS, 26, 10, 26, 0, NEITHER)
        alone = np.stack([np.asarray(seat.difference) for seat in seats])
        own = is_drawn[10:36]
        np.testing.assert_array_equal(mixed.difference[:, 10:36][:, own], alone[:, own])


def test_the_errors_of_a_mixture_are_those_of_its_blocks():
    """20 blocks of 26 deals: games of a block have their agent in common."""
    result = play_pair(MINI, DISCARDS, BOTH, 1040, 64, 0)
    played = play_games(MINI, DISCARDS, BOTH, 1040, 64, 0, NEITHER)
    points, rates = (
        figures.mean(0).reshape(20, 26).mean(1)
        for figures in (played.difference, played.difference > 0)
    )
    assert result.score_difference_error == pytest.approx(points.std(ddof=1) / np.sqrt(20))
    # Wilson's interval is at most somewhat narrower than the usual one, here that of blocks.
    half = (result.win_rate_high - result.win_rate_low) / 2
    assert half == pytest.approx(1.96 * rates.std(ddof=1) / np.sqrt(20), rel=0.15)
    assert half > 2 * 1.96 * np.sqrt(result.win_rate * (1 - result.win_rate) / 1040)


def test_the_error_over_unequal_clusters_is_that_of_repeated_samples():
    """Deals of a cluster share half their variance; 7 clusters of 3 deals and 13 of 2."""
    random = np.random.default_rng(0)
    sizes = np.diff(cluster_starts(47, 20), append=47)
    assert sorted(sizes) == [2] * 13 + [3] * 7
    shared = np.repeat(random.normal(size=(20, 4000)), sizes, axis=0)
    values = shared + random.normal(size=(47, 4000))
    variance = values.mean(0).var()
    assert (clustered_error(values, 20) ** 2).mean() == pytest.approx(variance, rel=0.06)
    assert (clustered_error(values, 47) ** 2).mean() < 0.8 * variance


def test_the_error_over_clusters_of_one_deal_is_the_usual_one():
    values = np.random.default_rng(1).normal(size=(9, 3))
    np.testing.assert_allclose(clustered_error(values, 9), values.std(0, ddof=1) / 3)
    assert np.isnan(clustered_error(values, 1)).all()
