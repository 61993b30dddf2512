"""Ratings: right for known strengths, sound intervals, and the command that makes the table."""

import dataclasses
import io
import itertools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rich.console

from lostcities_jax import checkpoint, rate
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.evaluation.agents import Agent, Mixture, average_agent, bot_agent
from lostcities_jax.evaluation.loading import load_field
from lostcities_jax.evaluation.matches import play_games, play_pair
from lostcities_jax.evaluation.rating import (
    ELO,
    Meeting,
    fit_strengths,
    play_round_robin,
    t_quantile_95,
)
from lostcities_jax.evaluation.rating import rate as rate_meetings
from lostcities_jax.evaluation.tables import print_cross, print_ratings
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.networks import Network, make_network
from lostcities_jax.rules import CLASSIC, DRAW_PHASE, MINI, Rules

pytestmark = pytest.mark.usefixtures("quick_compile")

SMALL = Rules(colors=3, ranks=5, wagers=1, hand=4, max_turns=30)


def meetings_of(shares, clusters=10):
    """Meetings with the same win shares in every cluster; {(first, second): share}."""
    return [
        Meeting(i, j, np.full(clusters, share), np.full(clusters, 2.0 * share - 1), 0.0)
        for (i, j), share in shares.items()
    ]


def expected_share(elo):
    return 1 / (1 + 10 ** (-elo / 400))


def by_name(standings):
    return {rating.agent: rating for rating in standings.ratings}


def simulated_wins(random, elos, deals, luck):
    """Wins of each agent in each deal, by luck that all pairs of a deal share in part.

    Args:
      random: generator.
      elos: true strengths.
      deals: deals, with a game in each seat.
      luck: share of games whose outcome is drawn once for the whole deal; if negative,
        the second seat has the first one's luck reversed.
    """
    agents = len(elos)
    wins = np.zeros((deals, agents))
    shared = random.random(deals)
    for i, j in itertools.combinations(range(agents), 2):
        for seat in range(2):
            common = 1 - shared if luck < 0 and seat else shared
            drawn = np.where(random.random(deals) < abs(luck), common, random.random(deals))
            won = drawn < expected_share(elos[i] - elos[j])
            wins[:, i] += won
            wins[:, j] += ~won
    return wins


def intervals(wins):
    """Elo points above agent 0, and half the widths of the 95 % intervals; float[N - 1]."""
    strengths, covariance = fit_strengths(wins, 2)
    variance = np.diag(covariance) + covariance[0, 0] - 2 * covariance[0]
    quantile = t_quantile_95(len(wins) - 1)
    return ELO * (strengths - strengths[0])[1:], ELO * quantile * np.sqrt(variance[1:])


@pytest.mark.parametrize("share", [0.5, 0.64, 0.75, 0.99])
def test_two_agents_differ_by_elos_formula(share):
    standings = by_name(rate_meetings(["a", "random"], meetings_of({(0, 1): share}), 10**7))
    assert standings["random"].rating == 0
    assert standings["a"].rating == pytest.approx(400 * math.log10(share / (1 - share)), abs=0.01)


def test_known_strengths_are_recovered_from_their_expected_shares():
    elos = {"random": 0.0, "a": 150.0, "b": 420.0, "c": 900.0}
    names = list(elos)
    shares = {
        (i, j): expected_share(elos[names[i]] - elos[names[j]])
        for i, j in itertools.combinations(range(4), 2)
    }
    table = rate_meetings(names, meetings_of(shares), 10**8).ratings
    assert [rating.agent for rating in table] == ["c", "b", "a", "random"]
    for rating in table:
        assert rating.rating == pytest.approx(elos[rating.agent], abs=0.01)
    assert [rating.lead for rating in table[:3]] == pytest.approx([480, 270, 150], abs=0.01)


def test_without_random_the_mean_is_0():
    shares = {(0, 1): 0.7, (0, 2): 0.8, (1, 2): 0.65}
    table = rate_meetings(["a", "b", "c"], meetings_of(shares), 1000).ratings
    assert sum(rating.rating for rating in table) == pytest.approx(0, abs=1e-9)
    assert all(rating.rating_low < rating.rating < rating.rating_high for rating in table)


def test_the_fit_is_the_fixed_point_of_hunters_mm_algorithm():
    """Hunter (2004), equation 3, with the virtual agent of strength 0 among the opponents."""
    wins = simulated_wins(np.random.default_rng(1), [0, 100, 300, 700], 60, 0.3)
    total, games = wins.sum(0) + 0.5, 2 * len(wins)
    gamma = np.ones(4)
    for _ in range(20_000):
        pairs = games / (gamma[:, None] + gamma) * (1 - np.eye(4))
        gamma = total / (pairs.sum(1) + 1 / (gamma + 1))
    np.testing.assert_allclose(fit_strengths(wins, 2)[0], np.log(gamma), atol=1e-8)


def test_for_two_agents_and_independent_deals_the_error_is_that_of_the_log_odds():
    """The delta method: a share's standard error, divided by p (1 - p)."""
    wins = np.repeat([2.0, 1.0, 0.0], [3000, 4000, 1000])
    strengths, covariance = fit_strengths(np.stack([wins, 2 - wins], axis=1), 2)
    share = wins.mean() / 2
    error = wins.std(ddof=1) / 2 / math.sqrt(len(wins)) / (share * (1 - share))
    contrast = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    assert strengths[0] - strengths[1] == pytest.approx(math.log(share / (1 - share)), abs=1e-3)
    assert math.sqrt(contrast) == pytest.approx(error, rel=1e-2)


def test_ties_count_half_and_make_intervals_narrower_than_luck_does():
    half, decided = np.full(400, 0.5), np.tile([0.0, 1.0], 200)
    points = np.zeros(400)
    tied, lucky = (
        by_name(rate_meetings(["a", "random"], [Meeting(0, 1, wins, points, 0.0)], 800))["a"]
        for wins in (half, decided)
    )
    assert tied.rating == lucky.rating == pytest.approx(0, abs=1e-9)
    assert tied.win_share == lucky.win_share == 0.5
    assert tied.rating_high - tied.rating_low < 1
    assert lucky.rating_high - lucky.rating_low > 30


@pytest.mark.parametrize("luck", [0.0, 0.6, -0.6])
def test_intervals_cover_the_truth_in_19_of_20_tables_however_a_deal_binds_its_games(luck):
    elos, tables = np.array([0.0, 120.0, 250.0, 500.0]), 400
    random = np.random.default_rng(5)
    covered = np.zeros(3)
    for _ in range(tables):
        value, half_width = intervals(simulated_wins(random, elos, 100, luck))
        covered += np.abs(value - elos[1:]) < half_width
    error = math.sqrt(0.95 * 0.05 / tables)
    assert (np.abs(covered / tables - 0.95) < 4.5 * error).all()


def test_intervals_cover_the_truth_where_games_are_hardly_ever_lost():
    """Agent 0 wins about one game in 180 against agent 1 and next to none of the others."""
    elos, tables = np.array([0.0, 900.0, 1350.0, 1650.0]), 400
    random = np.random.default_rng(6)
    covered = np.zeros(3)
    for _ in range(tables):
        value, half_width = intervals(simulated_wins(random, elos, 500, 0.3))
        covered += np.abs(value - elos[1:]) < half_width
    assert (covered / tables > 0.95 - 4.5 * math.sqrt(0.95 * 0.05 / tables)).all()


@pytest.mark.parametrize(("degrees", "quantile"), [(9, 2.2622), (19, 2.0930), (499, 1.9647)])
def test_quantiles_of_student_are_those_of_the_tables(degrees, quantile):
    assert t_quantile_95(degrees) == pytest.approx(quantile, abs=1e-3)


def test_agents_that_won_or_lost_every_game_are_rated_in_order_with_wide_intervals():
    shares = dict.fromkeys(itertools.combinations(range(4), 2), 1.0)
    names = ["a", "b", "c", "random"]
    table = rate_meetings(names, meetings_of(shares, 50), 100).ratings
    assert [rating.agent for rating in table] == names
    for rating in table[:3]:
        assert math.isfinite(rating.rating_high)
        assert rating.lead is not None and rating.lead_error is not None
        assert rating.lead > rating.lead_error > 300


@pytest.mark.parametrize("games", [100, 1000, 10_000])
def test_of_an_unbeaten_agent_about_as_much_is_certain_as_the_binomial_law_says(games):
    """A win rate below 0.025^(1 / n) wins all of n games in less than 2.5 % of cases."""
    table = by_name(rate_meetings(["a", "random"], meetings_of({(0, 1): 1.0}, 50), games))
    rate = 0.025 ** (1 / games)
    assert table["a"].rating_low == pytest.approx(400 * math.log10(rate / (1 - rate)), abs=60)


@pytest.fixture(scope="module")
def bots():
    return [bot_agent(SMALL, name) for name in ("balanced", "noisy", "random", "discard-only")]


@pytest.fixture(scope="module")
def meetings(bots):
    return list(play_round_robin(SMALL, bots, 200, 64, 7, greedy=True))


def test_balanced_is_rated_above_noisy_and_noisy_above_random(bots, meetings):
    standings = rate_meetings([bot.name for bot in bots], meetings, 200)
    table = by_name(standings)
    assert table["balanced"].rating_low > table["noisy"].rating > table["noisy"].rating_low > 0
    assert sum(rating.points for rating in standings.ratings) == pytest.approx(0, abs=1e-9)
    assert sum(rating.win_share for rating in standings.ratings) == pytest.approx(2)


def test_figures_of_an_agent_are_the_means_of_its_matches(bots, meetings):
    standings = rate_meetings([bot.name for bot in bots], meetings, 200)
    matches = [play_pair(SMALL, bots[0], bot, 200, 64, 7) for bot in bots[1:]]
    balanced = by_name(standings)["balanced"]
    assert balanced.games == 600
    shares = [match.win_rate + match.tie_rate / 2 for match in matches]
    assert balanced.win_share == pytest.approx(np.mean(shares))
    assert balanced.points == pytest.approx(np.mean([match.score_difference for match in matches]))
    assert balanced.timeout_rate == pytest.approx(
        np.mean([match.timeout_rate for match in matches])
    )
    deals = np.mean(
        [
            play_games(SMALL, bots[0], bot, 200, 64, 7, (False, False)).difference.mean(0)
            for bot in bots[1:]
        ],
        axis=0,
    )
    assert balanced.points_error == pytest.approx(deals.std(ddof=1) / 10)
    names = [rating.agent for rating in standings.ratings]
    row = standings.points[names.index("balanced")]
    for bot, match in zip(bots[1:], matches, strict=True):
        assert row[names.index(bot.name)] == pytest.approx(match.score_difference)
    np.testing.assert_array_equal(standings.points, -standings.points.T)


def test_the_order_of_agents_does_not_matter(bots, meetings):
    order = [2, 0, 3, 1]
    shuffled = [bots[index] for index in order]
    again = list(play_round_robin(SMALL, shuffled, 200, 64, 7, greedy=False))
    tables = [
        rate_meetings([bot.name for bot in players], played, 200)
        for players, played in ((bots, meetings), (shuffled, again))
    ]
    for one, other in zip(*(table.ratings for table in tables), strict=True):
        for left, right in zip(*map(dataclasses.astuple, (one, other)), strict=True):
            assert left == pytest.approx(right, abs=1e-6)


def test_the_games_of_a_pair_add_up_to_what_a_match_reports(bots):
    games = play_games(SMALL, bots[1], bots[0], 200, 64, 7, (False, False))
    match = play_pair(SMALL, bots[1], bots[0], 200, 64, 7)
    assert games.difference.shape == (2, 100)
    assert match.win_rate == (games.difference > 0).mean()
    assert match.tie_rate == (games.difference == 0).mean()
    assert match.score_difference == games.difference.mean()
    deals = games.difference.mean(0)
    assert match.score_difference_error == pytest.approx(deals.std(ddof=1) / 10)
    assert match.timeout_rate == games.is_timeout.mean()
    assert match.mean_plies == 2 * games.turns.mean()
    assert match.opened == games.opened.mean()
    assert match.play_rate == games.plays.sum() / games.own_turns.sum()
    assert match.pile_draw_rate == games.pile_draws.sum() / games.own_turns.sum()


def prefers_piles(params, packed, head):
    """Logits of one that discards its first card and takes from the first pile it may."""
    del params
    first, size = (1, 6) if head == DRAW_PHASE else (CLASSIC.hand, 2 * CLASSIC.hand)
    logits = np.full(size, -50.0, np.float32)
    logits[first:] = -np.arange(size - first)
    return jnp.broadcast_to(logits, (packed.shape[0], size))


def test_a_trained_policy_ends_its_games_before_the_turn_limit_whatever_the_other_does():
    network = Network(lambda key: None, prefers_piles, lambda params, packed: ())
    waits = average_agent("waits", network, None)
    ends = average_agent("ends", network._replace(considered=lost_cities(CLASSIC).considered), None)
    for other, timeouts in ((waits, 1.0), (ends, 0.0)):
        for greedy in (True, False):
            games = play_games(CLASSIC, other, waits, 40, 20, 0, (greedy, greedy))
            assert games.is_timeout.mean() == timeouts
            # It draws from piles as long as it can draw all of the deck alone afterwards.
            assert games.turns.min() > CLASSIC.max_turns - 2 * CLASSIC.deck_after_deal


def test_where_the_turn_limit_is_near_it_is_a_rule_like_others():
    legal = jnp.ones((1, MINI.num_draw_actions), bool)
    game = lost_cities(MINI)
    for turn in range(MINI.max_turns):
        state = jax.tree.map(jnp.asarray, game.deal(jax.random.key(0)))
        info = game.observe(state._replace(turn=jnp.uint16(turn)), 1)
        assert (game.considered(info[None], legal, DRAW_PHASE) == legal).all()


def test_more_agents_of_the_same_functions_are_not_compiled_again():
    traces = []

    def policy_of(name):
        def policy(params, info, legal, head):
            traces.append((name, head))
            return params * legal

        return policy

    functions = policy_of("first"), policy_of("second")
    agents = [Agent(name, functions[name in "bdf"], (1.0, 1.0)) for name in "cbafde"]
    list(play_round_robin(MINI, agents, 20, 8, 0, greedy=True))
    # One program for agents of one function, else one for each seat; with four decisions each.
    assert len(traces) == (1 + 1 + 2) * 4


def test_games_of_one_draw_of_iterates_are_one_cluster():
    def policy(params, info, legal, head):
        return params * legal

    agent = Agent("one", policy, (1.0, 1.0))
    field = [agent, Mixture("mixed", (agent, agent), np.ones(2))]
    assert {len(meeting.wins) for meeting in play_round_robin(MINI, field, 400, 8, 0, True)} == {20}
    with pytest.raises(UserError, match=r"games is 50; allowed .* a multiple of 40"):
        next(play_round_robin(MINI, field, 50, 8, 0, True))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs, of three checkpoints and of one, of MINI and of networks that differ."""
    folder = tmp_path_factory.mktemp("runs")
    random = np.random.default_rng(0)
    settings = {"kind": "mlp", "hidden": 4, "layers": 1}
    network = make_network(lost_cities(MINI), **settings)
    blank = jax.eval_shape(network.init, jax.random.key(0))
    for run, iteration in (("a", 1), ("a", 2), ("a", 10), ("b", 3)):
        strategy, *advantage = (
            jax.tree.map(lambda leaf: random.normal(size=leaf.shape).astype(np.float32), blank)
            for _ in range(3)
        )
        checkpoint.save(
            folder / run / "checkpoints",
            iteration,
            {"strategy": strategy, "advantage": advantage},
            {"nothing": jnp.zeros(1)},
            checkpoint.Metadata(rules=MINI, network=settings),
        )
    return folder


def names_of(*paths):
    return [agent.name for agent in load_field([str(path) for path in paths], "average", None)[1]]


def test_a_run_stands_for_all_its_checkpoints_in_the_order_of_iterations(runs):
    expected = ["a/1", "a/2", "a/10"]
    assert names_of(runs / "a") == names_of(runs / "a" / "checkpoints") == expected
    assert names_of(runs / "a" / "checkpoints" / "2") == ["a/2"]
    assert names_of("noisy", runs / "b", runs / "a") == ["noisy", "b/3", *expected]


def test_an_agent_named_twice_plays_once(runs):
    last = runs / "a" / "checkpoints" / "10"
    assert names_of(last, runs / "a", "noisy", "noisy") == ["a/10", "a/1", "a/2", "noisy"]


def test_runs_of_one_name_are_told_apart_by_their_folders(runs, tmp_path):
    for place in ("x", "y"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "b").symlink_to(runs / "b")
    assert names_of(tmp_path / "x" / "b", tmp_path / "y" / "b") == ["x/b/3", "y/b/3"]


def test_the_command_prints_and_writes_the_table(runs, tmp_path, capsys):
    file = tmp_path / "table.json"
    argv = [str(runs / "a"), "--bots", "random", "--games", "20", "--batch-width", "8"]
    argv += ["--cross", "--json", str(file), "--devices", "cpu:1"]
    assert run_command(rate.main, argv) == 0
    out, err = capsys.readouterr()
    record = json.loads(file.read_text())
    assert {row["agent"] for row in record["ratings"]} == {"a/1", "a/2", "a/10", "random"}
    elos = [row["rating"] for row in record["ratings"]]
    assert elos == sorted(elos, reverse=True)
    for row, points in zip(record["ratings"], record["points"], strict=True):
        assert f"{row['rating']:.0f} [{row['rating_low']:.0f}, {row['rating_high']:.0f}]" in out
        assert sum(point or 0 for point in points) / 3 == pytest.approx(row["points"])
    assert "points a game against" in out
    assert err.count("played ") == 6 and "played 6/6: " in err


def test_tables_on_a_narrow_terminal_keep_every_figure_and_names_as_they_are():
    names = ["a run with a long name [bold]/10", "random"]
    standings = rate_meetings(names, meetings_of({(0, 1): 0.75}), 1000)
    file = io.StringIO()
    for table in (print_ratings, print_cross):
        table(rich.console.Console(file=file, width=20), standings)
    lines = file.getvalue().splitlines()
    assert sum(names[0] in line for line in lines) == 2
    assert any(f"{standings.ratings[0].rating:.0f} [" in line and "75.0" in line for line in lines)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["blanced"], ["'blanced' is neither", "did you mean 'balanced'"]),
        (["--bots", "nosy"], ["bots.0 is 'nosy'", "did you mean 'noisy'"]),
        (["noisy", "--bots"], ["number of agents is 1", "at least 2"]),
        (["--games", "18"], ["games is 18", "at least 20"]),
        (["--games", "21"], ["games is 21", "a multiple of 2"]),
        (["--greedy", "maybe"], ["'maybe' is neither a bot nor a checkpoint"]),
        (["--gredy"], ["'--gredy' is no flag", "mean '--greedy'?"]),
        (["--policy", "best"], ["policy is 'best'", "'average'"]),
        (["RUNS/a", "--rules", "classic"], ["other rules", "rules.colors is 2 there but 5 here"]),
        (["RUNS/a", "--policy", "iterates"], ["holds no iterates"]),
        (["RUNS"], ["holds no checkpoint"]),
        (["--devices", "tpu"], ["devices is 'tpu'"]),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(argv, words, runs, capsys):
    assert run_command(rate.main, [text.replace("RUNS", str(runs)) for text in argv]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1
    assert not [word for word in words if word not in err], err
