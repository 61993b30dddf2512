"""A frozen opponent: it plays as its agent does, in the seat that the network does not have."""

import dataclasses
import functools
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lostcities_jax import checkpoint, run_folder, train
from lostcities_jax.devices import one_process
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.evaluation.loading import load_policy
from lostcities_jax.games.kuhn import kuhn
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.networks import make_network
from lostcities_jax.population import __main__ as population
from lostcities_jax.population import evolve
from lostcities_jax.rivals import as_rival, keep_rival, load_rival, with_pinned_rival
from lostcities_jax.rules import CARD_PHASE, CLASSIC, MINI
from lostcities_jax.settings import Config, NetworkConfig, RivalConfig, TraversalConfig
from lostcities_jax.solvers.feasibility import check_settings
from lostcities_jax.solvers.seating import make_games


def config_of(agent, rules=CLASSIC, **settings):
    return Config(rules=rules, rival=RivalConfig(agent=agent, **settings))


@pytest.fixture(scope="module")
def decisions():
    """Info states after the deal, with every card move legal."""
    game = lost_cities(CLASSIC)
    states = jax.vmap(game.deal)(jax.random.split(jax.random.key(0), 16))
    infos = jax.vmap(lambda state: game.observe(state, 0))(states)
    return infos, jnp.ones((16, CLASSIC.num_card_actions), bool), CARD_PHASE


def test_without_a_rival_there_is_none():
    assert load_rival(Config()) is None


def test_a_rival_plays_as_its_agent_and_never_falls_back(decisions):
    agent = load_rival(config_of("shipped"))
    rival, own = as_rival(agent), load_policy("shipped")
    for seat in (0, 1):
        shares, fell_back = rival.policy(rival.params[seat], *decisions)
        np.testing.assert_array_equal(shares, own.policy(own.params[seat], *decisions))
        assert not fell_back.any()


def test_a_greedy_rival_takes_its_most_probable_action(decisions):
    rival, own = as_rival(load_rival(config_of("shipped", greedy=True))), load_policy("shipped")
    shares, _ = rival.policy(rival.params[0], *decisions)
    sampled = np.asarray(own.policy(own.params[0], *decisions))
    np.testing.assert_array_equal(shares, np.eye(sampled.shape[1])[sampled.argmax(-1)])
    assert (sampled.max(-1) < 1.0).any()  # or the two would be the same


def test_a_rival_for_other_rules_is_refused():
    with pytest.raises(UserError, match=r"shipped' is for other rules: rules\.colors is 5"):
        load_rival(config_of("shipped", rules=MINI))


@pytest.mark.usefixtures("quick_compile")
def test_the_network_learns_from_its_own_seat_and_the_rival_has_the_other():
    """The rival never plays a card; untrained, the network often does."""
    config = dataclasses.replace(
        config_of("discard-only", rules=MINI),
        network=NetworkConfig(kind="mlp", hidden=8, layers=1),
        traversal=TraversalConfig(batch_width=8, traversals=32),
    )
    game = lost_cities(MINI)
    network = make_network(game, **dataclasses.asdict(config.network))
    machine = one_process(jax.sharding.Mesh(np.array(jax.devices()[:1]), ("lane",)))
    games = make_games(config, game, network, machine, as_rival(load_rival(config)))
    params, keys = network.init(jax.random.key(1)), jax.random.split(jax.random.key(2))
    batches = [games.play(params, None, index, *keys) for index in range(games.batches)]
    assert [batch.learners for batch in batches] == [(0,), (1,)]
    for (own,), tape in ((batch.learners, batch.tape) for batch in batches):
        actions = [
            jax.device_get(tape.rows[game.phases_of(player)[0]]) for player in (own, 1 - own)
        ]
        learned, rival = (rows.action[rows.live] for rows in actions)
        assert (rival >= MINI.hand).all() and (learned < MINI.hand).any()


def test_a_rival_is_refused_in_a_game_that_it_does_not_play():
    config = dataclasses.replace(config_of("balanced"), game="kuhn")
    with pytest.raises(UserError, match=r"rival\.agent is 'balanced'.*allowed in Kuhn poker: none"):
        check_settings(config, kuhn())


def test_a_new_run_keeps_to_the_newest_checkpoint_of_its_rivals_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for iteration in ("9", "10"):
        for item in ("policy", "metadata"):
            (tmp_path / "a/checkpoints" / iteration / item).mkdir(parents=True)
    for name in ("a", "a/checkpoints", "a/checkpoints/10"):
        assert with_pinned_rival(config_of(name)).rival.agent == "a/checkpoints/10"
    whole = with_pinned_rival(config_of(str(tmp_path / "a"))).rival.agent
    assert whole == str(tmp_path / "a/checkpoints/10")
    for name in ("balanced", "shipped", ""):
        assert with_pinned_rival(config_of(name)).rival.agent == name
    with pytest.raises(UserError, match="'b' is neither a bot nor a checkpoint"):
        with_pinned_rival(config_of("b"))


@pytest.fixture
def exploiter(tmp_path, monkeypatch):
    """Settings of an exploiter of run `a`, and its new folder; `a` is gone, with its place."""
    network = {"kind": "mlp", "hidden": 4, "layers": 1}
    shape = make_network(lost_cities(MINI), **network)
    params = [shape.init(jax.random.key(seed)) for seed in range(3)]
    policy = {"strategy": params[0], "advantage": params[1:]}
    kept = jax.tree.map(lambda leaf: leaf[None], params[1:])
    policy |= {"snapshots": kept, "snapshot_iterations": np.array([1], np.int32)}
    metadata = checkpoint.Metadata(rules=MINI, network=network, snapshot_slots=1)
    (tmp_path / "before").mkdir()
    monkeypatch.chdir(tmp_path / "before")
    checkpoint.save("a/checkpoints", 40, policy, {"nothing": np.zeros(1)}, metadata)
    config = with_pinned_rival(config_of("a", rules=MINI))
    folder = run_folder.create(tmp_path / "e", config, functools.partial(keep_rival, config))
    monkeypatch.chdir(tmp_path)
    shutil.rmtree("before")
    return config, folder, params[0]


def test_a_run_that_goes_on_has_its_rival_whatever_became_of_where_it_was_from(exploiter):
    config, folder, params = exploiter
    rival = load_rival(run_folder.reopen(folder), folder)
    assert rival.name == config.rival.agent == "a/checkpoints/40"  # as metrics call it
    for seat in (0, 1):
        jax.tree.map(np.testing.assert_array_equal, rival.params[seat], params)


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 and no more"])
def test_a_missing_or_damaged_copy_of_a_rival_is_one_line(content, exploiter, capsys):
    _, folder, _ = exploiter
    (folder / "rival.npz").unlink()
    if content is not None:
        (folder / "rival.npz").write_bytes(content)
    assert run_command(train.main, ["--resume", "--run-dir", str(folder)]) == 2
    error = capsys.readouterr().err
    assert f"{folder}/rival.npz is {'missing' if content is None else 'damaged'}" in error
    assert error.count("\n") == 1


def test_a_bot_needs_no_copy_to_be_a_rival(tmp_path):
    config = config_of("balanced")
    keep_rival(config, tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert load_rival(config, tmp_path).name == "balanced"


@pytest.mark.parametrize(
    ("command", "flags"),
    [(population, "--vary seed=0,1 --no-tournament"), (evolve, "--mutate learning_rate")],
)
def test_a_population_says_which_checkpoint_its_rival_is(command, flags, tmp_path, monkeypatch):
    for item in ("policy", "metadata"):
        (tmp_path / "a/checkpoints/10" / item).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    met = []

    def train(variants, *_, **__):
        met.extend(variant.rival.agent for variant in variants)
        raise UserError("enough")

    monkeypatch.setattr(command, "train_population", train)
    assert run_command(command.main, ["registry", "--rival.agent", "a", *flags.split()]) == 2
    assert set(met) == {"a/checkpoints/10"}


def test_a_rival_that_cannot_be_looked_for_is_one_line():
    with pytest.raises(UserError, match=r"agent 'xxx.*cannot be read: File name too long"):
        load_rival(config_of("x" * 300))
