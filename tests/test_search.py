"""Search at play time: right values of actions, right choices, and nothing but legal ones."""

import copy
import functools
import itertools
import json
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lostcities_jax import evaluate
from lostcities_jax.cli import EvaluateArguments
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.evaluation import search as search_module
from lostcities_jax.evaluation.agents import Agent, Mixture
from lostcities_jax.evaluation.search import Trials, choose, search_agent, try_actions
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.reference import Game
from lostcities_jax.regret import uniform_strategy
from lostcities_jax.rules import CARD_PHASE, DRAW_PHASE, MINI
from lostcities_jax.settings import SearchConfig

pytestmark = pytest.mark.usefixtures("quick_compile")

ALL = 80  # more actions than any decision has
WORLDS = 1500
FEW = {"worlds": 4, "actions": 3, "margin": 0.0, "play": "sampled"}


def uniform_policy(params, info, legal, head):
    """Uniform; its greedy choice is the lowest legal action."""
    return uniform_strategy(legal)


UNIFORM = Agent("uniform", uniform_policy, ((), ()))


@functools.cache
def compiled(policy):
    return jax.jit(policy, static_argnums=3)


def searching(base, width=64, seed=0, **settings):
    """`(info, legal, head) -> probabilities` of a search, for bases without parameters."""
    agent = search_agent(MINI, base, SearchConfig(**settings), width, seed)
    play = compiled(agent.policy)
    return lambda info, legal, head: np.asarray(play(agent.params[0], info, legal, head))


def legal_row(game):
    """Legal actions of the phase alone, as policies take them; bool[A]."""
    first = 0 if game.phase == CARD_PHASE else MINI.num_card_actions
    size = MINI.num_card_actions if game.phase == CARD_PHASE else MINI.num_draw_actions
    row = np.zeros(size, bool)
    row[[action - first for action in game.legal_actions()]] = True
    return row


def decisions(random_game, packed_view, head, count):
    """Games of the reference engine at a decision of a head, with packed info states and masks."""
    games = (random_game(MINI, seed) for seed in itertools.count())
    going = (game for game in games if not game.is_over and game.phase == head)
    games = list(itertools.islice(going, count))
    infos = np.stack([packed_view(game, game.player) for game in games])
    return games, jnp.asarray(infos), jnp.asarray(np.stack([legal_row(game) for game in games]))


def uniform_value(game, player, stop):
    """Expected final lead of a player under uniform play, as it stands after `stop` turns."""
    if game.is_over or game.turn >= stop:
        scores = game.scores()
        return scores[player] - scores[1 - player]
    values = [uniform_value(after(game, action), player, stop) for action in game.legal_actions()]
    return sum(values) / len(values)


def after(game, action):
    game = copy.deepcopy(game)
    game.step(action)
    return game


def exact_values(game, stop=MINI.max_turns):
    """Expected lead after each legal action, over all hidden cards and uniform play after it."""
    mover, other = game.player, 1 - game.player
    unknown = list((Counter(game.hands[other]) - game.known[other]).elements())
    known = list(game.known[other].elements())
    values = []
    for order in itertools.permutations([*unknown, *game.deck]):
        world = copy.deepcopy(game)
        world.hands[other] = sorted([*known, *order[: len(unknown)]])
        world.deck = list(order[len(unknown) :])
        values.append(
            [uniform_value(after(world, action), mover, stop) for action in game.legal_actions()]
        )
    return np.mean(values, axis=0)


@pytest.fixture(scope="module")
def trials_of():
    """`(depth, head, info, legal) -> Trials` of uniform play, all actions tried."""

    @functools.partial(jax.jit, static_argnums=(0, 1))
    def trials(depth, head, info, legal):
        search = SearchConfig(WORLDS, ALL, depth, play="sampled")
        agent = search_agent(MINI, UNIFORM, search, 2048, seed=1)
        probabilities = uniform_policy((), info, legal, head)
        return try_actions(
            lost_cities(MINI),
            uniform_policy,
            search,
            2048,
            agent.params[0],
            probabilities,
            info,
            legal,
            head,
        )

    return trials


@pytest.mark.parametrize(
    ("head", "depth"),
    [
        (CARD_PHASE, 0),
        pytest.param(DRAW_PHASE, 0, marks=pytest.mark.slow),
        (DRAW_PHASE, 1),
    ],
)
def test_values_are_the_exact_ones_within_their_error(
    head, depth, random_game, packed_view, trials_of
):
    games, infos, legal = decisions(random_game, packed_view, head, 16)
    trials = jax.device_get(trials_of(depth, head, infos, legal))
    first = 0 if head == CARD_PHASE else MINI.num_card_actions
    searched = 0
    for row, game in enumerate(games):
        if len(game.legal_actions()) == 1:
            continue
        stop = game.turn + 2 * depth + 1 if depth else MINI.max_turns
        exact = dict(zip(game.legal_actions(), exact_values(game, stop), strict=True))
        tried = trials.tried[row]
        assert set(trials.action[row][tried] + first) == set(exact)
        for action, payoffs in zip(
            trials.action[row][tried], trials.payoffs[row][tried], strict=True
        ):
            error = payoffs.std() / np.sqrt(WORLDS)
            assert abs(payoffs.mean() - exact[action + first]) <= 4.5 * error + 1e-5
        searched += 1
    assert searched >= 3


@pytest.mark.parametrize("head", [CARD_PHASE, pytest.param(DRAW_PHASE, marks=pytest.mark.slow)])
def test_search_finds_the_action_that_is_clearly_best(head, random_game, packed_view):
    games, infos, legal = decisions(random_game, packed_view, head, 32)
    play = searching(UNIFORM, worlds=400, actions=ALL, margin=0.0, play="sampled")
    chosen = play(infos, legal, head).argmax(-1)
    first = 0 if head == CARD_PHASE else MINI.num_card_actions
    clear = 0
    for row, game in enumerate(games):
        actions, values = game.legal_actions(), exact_values(game)
        distinct = np.unique(values.round(9))
        if len(distinct) > 1 and distinct[-1] - distinct[-2] > 1.0:
            best = np.array(actions)[values.round(9) == distinct[-1]]
            assert chosen[row] + first in best
            clear += 1
    assert clear >= 4


def test_nobody_opens_an_expedition_on_the_last_turn(packed_view):
    # Against a penalty of 4, a wager or a 2 loses points, and nothing else is left to matter.
    game = Game(MINI, [0, 3, 1, 4, 2, 5])
    discard, from_deck, from_pile = MINI.hand, 2 * MINI.hand, 2 * MINI.hand + 1
    for action in (discard, from_deck, discard, from_pile, discard, from_pile + 1):
        game.step(action)
    assert game.turn == MINI.max_turns - 1 and game.hands[game.player] == [0, 4]
    info, legal = jnp.asarray(packed_view(game, 1))[None], jnp.asarray(legal_row(game))[None]
    assert uniform_policy((), info, legal, CARD_PHASE).argmax() == 0, "its own choice opens one"
    assert searching(UNIFORM, width=1, **FEW)(info, legal, CARD_PHASE).argmax() >= MINI.hand


@pytest.mark.parametrize("head", [CARD_PHASE, pytest.param(DRAW_PHASE, marks=pytest.mark.slow)])
def test_actions_are_legal_and_the_same_at_any_width(head, random_game, packed_view):
    _, infos, legal = decisions(random_game, packed_view, head, 64)
    together = searching(UNIFORM, width=64, **FEW)(infos, legal, head)
    assert (together.max(-1) == 1).all() and (together.sum(-1) == 1).all()
    assert (together <= np.asarray(legal)).all()
    assert (together.argmax(-1) != np.asarray(legal).argmax(-1)).any(), "search changed nothing"
    alone = searching(UNIFORM, width=1, **FEW)
    for row in range(0, 64, 7):
        one = slice(row, row + 1)
        np.testing.assert_array_equal(alone(infos[one], legal[one], head), together[one])
    other_worlds = searching(UNIFORM, width=64, seed=1, **FEW)(infos, legal, head)
    assert (other_worlds != together).any()


def test_lanes_are_searched_in_groups_that_fit(random_game, packed_view, monkeypatch):
    _, infos, legal = decisions(random_game, packed_view, DRAW_PHASE, 64)
    together = searching(UNIFORM, width=64, **FEW)(infos, legal, DRAW_PHASE)
    monkeypatch.setattr(search_module, "_MAX_STARTS", 5 * FEW["worlds"] * FEW["actions"])
    in_groups = searching(UNIFORM, width=16, **FEW)(infos, legal, DRAW_PHASE)  # 13 groups of 5
    np.testing.assert_array_equal(in_groups, together)


def test_an_infinite_margin_leaves_the_own_greedy_choice(random_game, packed_view):
    _, infos, legal = decisions(random_game, packed_view, DRAW_PHASE, 64)
    played = searching(UNIFORM, **FEW | {"margin": 1e6})(infos, legal, DRAW_PHASE)
    np.testing.assert_array_equal(played.argmax(-1), np.asarray(legal).argmax(-1))


def test_without_a_choice_the_policy_plays_as_it_would(random_game, packed_view):
    _, infos, legal = decisions(random_game, packed_view, DRAW_PHASE, 32)

    def marked_policy(params, info, legal, head):
        return 0.25 * uniform_strategy(legal)

    play = searching(Agent("marked", marked_policy, ((), ())), **FEW)
    played, own = play(infos, legal, DRAW_PHASE), 0.25 * np.asarray(uniform_strategy(legal))
    is_forced = np.asarray(legal).sum(-1) == 1
    assert is_forced.any() and not is_forced.all()
    np.testing.assert_array_equal(played[is_forced], own[is_forced])
    assert (played[~is_forced].max(-1) == 1).all()
    # In a finished game the masks still show actions; the turn is packed in the last two bytes.
    finished = infos.at[:, -2:].set(np.array([[MINI.max_turns, 0]], np.uint8))
    np.testing.assert_array_equal(play(finished, legal, DRAW_PHASE), own)


def test_too_unlikely_actions_are_not_tried(random_game, packed_view):
    _, infos, legal = decisions(random_game, packed_view, CARD_PHASE, 32)

    def two_policy(params, info, legal, head):
        rank = legal.cumsum(-1)
        return jnp.where(legal & (rank == 1), 0.7, jnp.where(legal & (rank == 2), 0.3, 0.0))

    two, settings = Agent("two", two_policy, ((), ())), FEW | {"actions": ALL, "worlds": 16}
    likely = searching(two, **settings, least_probability=0.2)(infos, legal, CARD_PHASE)
    ranks = np.asarray(legal).cumsum(-1)[np.arange(32), likely.argmax(-1)]
    assert set(ranks) == {1, 2}
    # One candidate is nothing to decide: the policy plays as it would.
    own = searching(two, **settings, least_probability=0.5)(infos, legal, CARD_PHASE)
    np.testing.assert_array_equal(own, two_policy((), infos, legal, CARD_PHASE))


def trials(payoffs, tried=None):
    """Trials of one decision whose candidates are the actions 7, 8, ...; a row of payoffs each."""
    payoffs = jnp.asarray(payoffs, jnp.float32)[None]
    actions = 7 + jnp.arange(payoffs.shape[1])[None]
    tried = jnp.ones(actions.shape, bool) if tried is None else jnp.asarray(tried)[None]
    return Trials(actions.astype(jnp.int32), tried, payoffs)


def test_an_action_must_gain_more_than_the_margin_in_its_own_standard_errors():
    # Gains 1, 3, 5: mean 3, squared deviations 8, and 1 for what three worlds cannot show.
    payoffs = [[10, 0, -10], [11, 3, -5]]
    bar = 3 / np.sqrt((8 + 1) / (3 - 1) / 3)
    assert choose(trials(payoffs), bar - 1e-3) == 8
    assert choose(trials(payoffs), bar + 1e-3) == 7


def test_the_best_of_the_actions_that_pass_the_bar_is_taken():
    sure, best, untried = [1, 1, 1], [3, 3, 4], [99, 99, 99]
    wild = [40, -20, 10]  # the best mean, with a standard error larger than that
    tried = [True, True, True, True, False]
    assert choose(trials([[0, 0, 0], sure, best, wild, untried], tried), 1.0) == 9
    assert choose(trials([[0, 0, 0], sure, best, wild, untried], tried), 0.0) == 10
    assert choose(trials([[5, 5, 5], sure, best]), 0.0) == 7


@pytest.mark.slow
def test_evaluate_searches_as_asked_and_records_the_time_of_a_decision(tmp_path, capsys):
    file = tmp_path / "results.json"
    argv = ["noisy", "--rules", "mini", "--against", "random", "--games", "8", "--batch-width", "8"]
    search = ["--search.worlds", "2", "--search.actions", "2", "--search.margin", "0"]
    assert run_command(evaluate.main, [*argv, *search, "--json", str(file)]) == 0
    output, (result,) = capsys.readouterr().out, json.loads(file.read_text())
    assert result["opponent"] == "random"
    assert result["milliseconds_per_decision"] > 0
    assert f"row by row: {result['milliseconds_per_decision']:.3g}\n" in output
    assert "noisy with search, 8 games a row" in output


def test_a_mixture_has_no_search():
    mixture = Mixture("iterates", (UNIFORM,), np.ones(1))
    asked = EvaluateArguments("run", search=SearchConfig(worlds=2))
    with pytest.raises(UserError, match="'iterates'; allowed with search"):
        evaluate._as_asked(mixture, MINI, asked)
