"""Promises of the benchmarks: they run, count arithmetic right and leave complete records."""

import importlib
import json

import jax
import jax.numpy as jnp
import pytest

from benchmarks import harness, limits, plot, tables
from benchmarks.fixtures import choosing_params, row_flops
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.games.lost_cities import lost_cities
from lostcities_jax.networks import make_network
from lostcities_jax.rules import CLASSIC, MINI

FIELDS = {
    "name",
    "time",
    "command",
    "git_commit",
    "git_changed",
    "python",
    "versions",
    "platform",
    "processor",
    "cpu_count",
    "device_kind",
    "cores",
    "load_average",
    "settings",
    "unit",
    "rate",
    "rate_low",
    "rate_high",
    "repeats",
    "compile_seconds",
    "realised_batch",
    "utilisation",
    "limit_unit",
    "limit",
    "limit_per_item",
    "ratio",
    "figures",
    "peak_rss_bytes",
}
SMALL_NETWORK = "--hidden 4 --layers 1"
TINY = {
    "traversal": f"{SMALL_NETWORK} --widths 4 --devices cpu:1 --traversals-per-lane 2 --repeats 1",
    "engine": "--width 8 --games-per-lane 2 --encodings 2 --repeats 1",
    "memory": "--capacity 512 --block 64 --blocks 4 --repeats 1",
    "learner": f"{SMALL_NETWORK} --batch-size 8 --capacity 64 --steps 2 --repeats 1",
    "evaluation": f"{SMALL_NETWORK} --games 8 --width 4 --repeats 1",
    "breakdown": f"{SMALL_NETWORK} --width 4 --turns 2 --traversals-per-lane 2 --repeats 1",
    "board": "--games 3 --waves 2 --opponent random",
    "checkpointing": "--warmup 3 --rounds 1 --traversals 16 --hidden 4 --every 1000",
    "precision": f"{SMALL_NETWORK} --width 8 --turns 2 --repeats 1",
    "host_transfers": "--width 8 --traversals 8 --steps 1 --factor 2 --devices cpu:1",
}
# They train or compile much; what they measure is also tested where it is made.
SLOW = ("host_transfers", "checkpointing", "evaluation", "breakdown", "engine", "precision")
UNTRIED = (
    "tabular",
    "schedulers",
    "small_games",
    "variance",
    "ablation",
    "search",
    "play",
    "faults",  # its parts are tried in test_faults
    "population",
    "tuning",  # its choice is tried in test_tune
)  # they take long even when tiny
WITH_LIMIT = {"traversal", "memory", "learner"}  # in every row


@pytest.fixture
def hasty(monkeypatch, tmp_path):
    """Short measurements of the limits, quick compiling, and a folder for results.

    Without the checks of key reuse, which trace functions anew and so are host work.
    """
    monkeypatch.setattr(limits, "_SECONDS_PER_TIMING", 1e-4)
    monkeypatch.setattr(limits, "_ROWS_PER_PROGRAM", 1)
    monkeypatch.setattr(limits, "MATMUL_BATCHES", (8,))
    monkeypatch.setattr(limits, "COPY_WORDS", 1024)
    monkeypatch.setattr(harness, "RESULTS", tmp_path / "results")
    jax.config.update("jax_disable_most_optimizations", True)
    checked = jax.config.jax_debug_key_reuse  # pyright: ignore
    jax.config.update("jax_debug_key_reuse", False)
    yield tmp_path / "results"
    jax.config.update("jax_debug_key_reuse", checked)
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in TINY],
)
def test_every_benchmark_runs_and_leaves_complete_records(name, hasty, capfd):
    main = importlib.import_module(f"benchmarks.{name}").main
    argv = ["--rules", "mini", "--store", *TINY[name].split()]
    code = run_command(main, argv)
    output = capfd.readouterr()
    assert code == 0, output
    records = [json.loads(line) for line in (hasty / f"{name}.jsonl").read_text().splitlines()]
    assert records
    for record in records:
        assert set(record) == FIELDS
        assert record["name"] == name
        assert record["command"].startswith(f"python -m benchmarks.{name} --rules mini")
        assert 0 < record["rate_low"] <= record["rate"] <= record["rate_high"]
        assert record["settings"]["rules"] == "mini"
        assert record["peak_rss_bytes"] > 2**20
        if name in WITH_LIMIT:
            share = record["rate"] * record["limit_per_item"] / record["limit"]
            assert record["ratio"] == pytest.approx(share)
        assert f"{record['rate']:,.0f}" in output.out
        if name == "traversal":
            assert record["realised_batch"] == pytest.approx(4 * record["utilisation"])
            assert record["figures"]["unfinished"] == 0
            assert record["compile_seconds"] > 0


def test_nothing_is_stored_unless_asked(hasty, capsys):
    flags = importlib.import_module("benchmarks.memory").Flags()
    report = harness.Report("memory", "title", flags, [])
    report.add(harness.Measurement({"part": "full"}, "adds/s", [3.0, 1.0, 2.0]))
    report.finish()
    assert "2" in capsys.readouterr().out
    assert not hasty.exists()


def test_the_tabular_benchmark_comes_nearer_an_equilibrium_row_by_row(hasty, capfd):
    main = importlib.import_module("benchmarks.tabular").main
    argv = [
        "--game",
        "kuhn",
        "--width",
        "64",
        "--traversals",
        "64",
        "--tape-cycles",
        "0",
        "--rows",
        "3",
        "--store",
    ]
    assert run_command(main, argv) == 0, capfd.readouterr()
    records = [json.loads(line) for line in (hasty / "tabular.jsonl").read_text().splitlines()]
    found = [record["figures"]["NashConv"] for record in records]
    assert len(found) == 3 and found[2] < 0.3 and found[2] < found[0]
    assert all(set(record) == FIELDS and record["rate"] > 0 for record in records)


@pytest.mark.parametrize("name", [*TINY, *UNTRIED])
def test_help_describes_every_flag(name, capsys):
    module = importlib.import_module(f"benchmarks.{name}")
    with pytest.raises(SystemExit) as stop:
        module.main(["--help"])
    assert not stop.value.code
    text = capsys.readouterr().out
    documented = module.Flags.__doc__.split("Attributes:")[1]
    for field in module.Flags.__dataclass_fields__:
        assert f"--{field.replace('_', '-')}" in text
        assert f"{field}:" in documented


@pytest.mark.parametrize(
    "argv",
    [["--nope", "3"], ["--widths", "none"], ["--widths", "0"], ["--epsilon", "2"], ["--widths"]],
)
def test_a_wrong_flag_is_one_line(argv):
    main = importlib.import_module("benchmarks.traversal").main
    with pytest.raises(UserError) as caught:
        main(argv)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert "allowed" in text


def test_flops_of_a_product_are_two_per_multiply_add():
    def mlp(x, weights):
        for w in weights:
            x = jax.nn.relu(x @ w)
        return x

    sizes = [(7, 11), (11, 13), (13, 3)]
    weights = [jnp.zeros(size) for size in sizes]
    expected = sum(2 * 5 * rows * columns for rows, columns in sizes)
    assert limits.matmul_flops(mlp, jnp.zeros((5, 7)), weights) == expected
    assert limits.matmul_flops(jax.jit(mlp), jnp.zeros((5, 7)), weights) == expected


def test_flops_count_batches_scans_and_only_what_is_needed():
    x, w = jnp.zeros((4, 5, 6)), jnp.zeros((4, 6, 7))
    assert limits.matmul_flops(lambda x, w: jnp.einsum("bij,bjk->bik", x, w), x, w) == 2 * 4 * 210

    def scanned(x, w):
        return jax.lax.scan(lambda x, _: (x @ w, None), x, length=9)[0]

    square = jnp.zeros((8, 8))
    assert limits.matmul_flops(scanned, square, square) == 9 * 2 * 8**3
    assert limits.matmul_flops(lambda x, w: (x @ w, x @ w @ w)[0], square, square) == 2 * 8**3

    def either(x, w):
        return jax.lax.cond(x.sum() > 0, lambda: x @ w @ w, lambda: x @ w)

    assert limits.matmul_flops(either, square, square) == 2 * 2 * 8**3


def test_a_row_counts_its_own_head_alone():
    game, network = lost_cities(CLASSIC), make_network(lost_cities(CLASSIC), "mlp", 512, 3)
    params = jax.eval_shape(network.init, jax.random.key(0))
    hidden = 355 * 512 + 2 * 512 * 512
    assert row_flops(game, network, params) == 2 * hidden + 512 * (16 + 6)


def test_choosing_params_have_no_zero_layers():
    network = make_network(lost_cities(MINI), "color_shared", 4, 1)
    kernels = [leaf for leaf in jax.tree.leaves(choosing_params(network, 0)) if leaf.ndim > 1]
    assert all(leaf.any() for leaf in kernels)


def test_looped_work_is_that_of_one_turn():
    doubled = jax.jit(harness.looped(lambda x: 2 * x, 5))(jnp.arange(3))
    assert doubled.tolist() == [0, 2, 4]
    assert jax.jit(harness.iterated(lambda x: 2 * x, 5))(jnp.arange(3)).tolist() == [0, 32, 64]


RECORD = {
    "time": "2026-01-01T00:00:00+00:00",
    "device_kind": "cpu",
    "processor": "Chip",
    "cores": 2,
    "load_average": 0.5,
    "versions": {"jax": "0.10.2"},
    "unit": "nodes/s",
    "limit": 4e9,
    "limit_per_item": 1e6,
}


@pytest.fixture
def results(monkeypatch, tmp_path):
    """A folder of stored results: two widths, one measured twice, and one of another machine."""
    monkeypatch.setattr(harness, "RESULTS", tmp_path)

    def write(name, rows):
        lines = [json.dumps(RECORD | {"ratio": None} | row) + "\n" for row in rows]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))

    def settings(width, **others):
        return {"network": "mlp", "hidden": 512, "layers": 3, "devices": 1, "width": width} | others

    write(
        "traversal",
        [
            {"settings": settings(64), "rate": 9.0, "ratio": 0.1, "processor": "Other"},
            {"settings": settings(64, seconds=1), "rate": 1000.0, "ratio": 0.25},
            {"settings": settings(128), "rate": 1500.0, "ratio": 0.375},
            {"settings": settings(64, seconds=2), "rate": 2000.0, "ratio": 0.5},
        ],
    )
    for name, key in (("engine", "part"), ("memory", "part"), ("evaluation", "pair")):
        write(name, [{"settings": settings(1) | {key: "some"}, "rate": 3.0}])
    write("learner", [{"settings": settings(1) | {"batch": 8}, "rate": 3.0}])
    row = {"settings": {"network": "512x3", "scheduler": "lockstep"}, "rate": 5.0}
    write("schedulers", [row | {"realised_batch": 7.0, "ratio": 0.5}])
    figures = {"iterations": 9.0, "games": 5.0, "discard-only, win %": 99.0}
    figures |= {"discard-only, points": 8.0, "expert, win %": 51.25, "expert, points": -2.0}
    trained = [{"variant": "default", "seed": seed, "seeds": (1, 2)} for seed in (1, 2)]
    rows = [{"settings": one, "rate": 1.0, "figures": figures} for one in trained]
    write("ablation", [*rows, rows[0] | {"processor": "Slower"}, *rows[:1]])
    return tmp_path


def test_the_tables_hold_the_newest_records_of_the_newest_machine(results):
    text = "".join(
        f"before\n<!-- {name}: python -m benchmarks.tables -->\nold\n"
        f"<!-- end of {name} -->\nafter\n"
        for name in tables.TABLES
    )
    once, other = tables.with_tables([text, "another page"])
    assert "| 64 | **2,000 (0.50)** |" in once and "| 128 | 1,500 (0.38) |" in once
    assert "| default | 9 / 9 | 99.0 / 99.0, +8.0 / +8.0 | 51.2 / 51.2, -2.0 / -2.0 |" in once
    assert "Other" not in once and "2 cores of Chip" in once and "old" not in once
    assert once.count("before") == once.count("after") == len(tables.TABLES)
    assert other == "another page"
    assert tables.with_tables([once]) == [once]
    for pages in ([], [text, text]):
        with pytest.raises(UserError, match="allowed: once"):
            tables.with_tables(pages)


def test_runs_of_equal_time_have_a_table_for_each_machine(results):
    one, newest = tables.TABLES["ablation"]().split("\n\n| variant")
    assert "| default | 9 | 99.0, +8.0 | 51.2, -2.0 |\n\nOn 2 cores of Slower;" in one
    assert "| default | 9 / 9 |" in newest and "On 2 cores of Chip;" in newest


def test_the_plot_has_a_line_for_each_network_and_the_same_bytes_each_time(results, tmp_path):
    lines = plot.lines_of(tables.stored("traversal"))
    assert [width for width, _ in lines["mlp 512x3", 1]] == [64, 128]
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    for path in (first, second):
        assert run_command(plot.main, ["--out", str(path)]) == 0
    assert first.read_bytes() == second.read_bytes() and b"<svg" in first.read_bytes()
    assert run_command(plot.main, ["--out", str(tmp_path / "a.txt")]) == 2


def test_the_tables_of_the_pages_are_those_of_the_stored_results():
    assert run_command(tables.main, ["--check"]) == 0
