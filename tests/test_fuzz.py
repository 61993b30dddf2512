"""Hostile input of every kind: correct work or one clear line, never a traceback or half a write.

FUZZ_CASES says how many cases of each kind are tried:

    FUZZ_CASES=9000 python -m pytest -n 0 tests/test_fuzz.py tests/test_play_server.py -k "refus"
"""

import copy
import io
import json
import pathlib
import random
import zipfile

import numpy as np
import pytest
from fuzzing import fuzzed, refused
from hypothesis import given
from hypothesis import strategies as st

from lostcities_jax import checkpoint
from lostcities_jax.adapters import pettingzoo_env
from lostcities_jax.cli import parse_evaluate, parse_play, parse_rate, parse_train
from lostcities_jax.config import config_keys, config_value, dump_config, load_config
from lostcities_jax.errors import UserError
from lostcities_jax.evaluation import agent_file
from lostcities_jax.recording import ReplayError
from lostcities_jax.replay import verify_file
from lostcities_jax.rules import MINI, Rules
from lostcities_jax.settings import Config
from lostcities_jax.tracking import read_metrics

LINES = (pathlib.Path(__file__).parent / "data" / "replays.jsonl").read_bytes().splitlines()
SHORT_LINES = [line for line in LINES if len(line) < 4000]

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.sampled_from([0, 1, -1, 2**31, 2**63, 10**9])
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["average", "lcfr", "mlp", "../../etc/passwd", "cpu:1", "1e9", "~"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=5,
)
NAMES = st.sampled_from([*config_keys(), "x", "rules", "network", "", "seed.x"])


def damaged(content: bytes, source: random.Random) -> bytes:
    """Bytes with a few places cut, doubled, flipped or overwritten."""
    data = bytearray(content)
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(data) + 1)
        match source.randrange(4):
            case 0:
                data[at : at + source.randint(0, 20)] = b""
            case 1:
                data[at:at] = data[at : at + source.randint(0, 20)]
            case 2 if at < len(data):
                data[at] ^= 1 << source.randrange(8)
            case _:
                tokens = [b"0", b"-", b"[", b"]", b'"', b",", b"1e9", b"\xff", b"null", b"{", b": "]
                data[at : at + source.randint(0, 3)] = source.choice(tokens)
    return bytes(data)


SOURCES = st.integers(0, 2**63).map(random.Random)


def nested(flat):
    """Dotted keys as nested mappings, where they can be."""
    data = {}
    for key, value in flat.items():
        *sections, name = key.split(".")
        inner = data
        for section in sections:
            if not isinstance(inner.get(section), dict):
                inner[section] = {}
            inner = inner[section]
        inner[name] = value
    return data


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


# ---- Settings --------------------------------------------------------------------------------


@fuzzed
@given(flat=st.dictionaries(NAMES, VALUES, max_size=4))
def test_a_config_of_any_values_is_read_as_it_is_or_refused(folder, flat):
    path = folder / "values.yaml"
    path.write_text(json.dumps(nested(flat)), encoding="utf-8")
    config = refused(load_config, path)
    if config is not None:
        path.write_text(dump_config(config), encoding="utf-8")
        assert load_config(path) == config
        for key, value in flat.items():
            if key in config_keys() and isinstance(value, str | bool):
                assert config_value(config, key) == value


@fuzzed
@given(source=SOURCES)
def test_a_damaged_config_is_read_or_refused(folder, source):
    path = folder / "damaged.yaml"
    path.write_bytes(damaged(dump_config(Config()).encode(), source))
    config = refused(load_config, path)
    assert config is None or isinstance(config, Config)


FLAGS = st.sampled_from(
    ["--" + key for key in config_keys()]
    + ["--config", "--run-dir", "--resume", "--max-minutes", "--no-resume", "--x", "-1", "--", ""]
    + ["--against", "--games", "--policy", "--search.worlds", "--rules", "--json", "--port"]
)
WORDS = st.text(max_size=8).filter(lambda text: "\0" not in text) | st.sampled_from(
    ["1", "0", "-1", "1e3", "nan", "true", "mini", "balanced", "../x", "9" * 400, "kuhn"]
)
PARSERS = (parse_train, parse_evaluate, parse_rate, parse_play)


@fuzzed
@given(parse=st.sampled_from(PARSERS), argv=st.lists(FLAGS | WORDS, max_size=6))
def test_any_words_on_a_command_line_are_flags_or_refused(parse, argv):
    if not {"-h", "--help"} & set(argv):
        refused(parse, argv)


# ---- Recorded games and metrics --------------------------------------------------------------


@fuzzed
@given(source=SOURCES)
def test_a_damaged_recording_is_true_or_refused(folder, source):
    path = folder / "games.jsonl"
    path.write_bytes(damaged(source.choice(SHORT_LINES), source))
    summary = refused(verify_file, path, kind=ReplayError)
    assert summary is None or summary.games >= 1


@fuzzed
@given(source=SOURCES, value=VALUES)
def test_a_recording_with_any_value_anywhere_is_true_or_refused(folder, source, value):
    record = json.loads(source.choice(SHORT_LINES))
    inner = record
    while True:
        key = source.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
        if not isinstance(inner[key], dict | list) or not inner[key] or source.random() < 0.3:
            break
        inner = inner[key]
    inner[key] = value
    path = folder / "changed.jsonl"
    path.write_text(json.dumps(record), encoding="utf-8")
    refused(verify_file, path, kind=ReplayError)


@fuzzed
@given(source=SOURCES, rows=st.lists(st.dictionaries(st.text(max_size=4), VALUES), max_size=3))
def test_damaged_metrics_are_read_or_refused(folder, source, rows):
    path = folder / "metrics.jsonl"
    lines = [json.dumps({"iteration": 1} | row).encode() + b"\n" for row in rows]
    path.write_bytes(damaged(b"".join(lines), source))
    found = refused(read_metrics, path)
    assert found is None or all(isinstance(row["iteration"], int) for row in found)


# ---- Checkpoints and agents ------------------------------------------------------------------

NETWORK = {"kind": "mlp", "hidden": 2, "layers": 1}
RECORD = {
    "rules": MINI.__dict__,
    "network": NETWORK,
    "fallback": "argmax",
    "game": "lost_cities",
    "weighting": "lcfr",
    "snapshot_slots": 0,
    "solver": "deep_cfr",
    "advantage_networks": 1,
    "plays": "current",
    "iteration": 7,
    "package_version": "0.1.0",
    "format_version": checkpoint.FORMAT_VERSION,
}


@st.composite
def records(draw):
    """Metadata with a value changed, added or gone, in the record or a part of it."""
    record = copy.deepcopy(RECORD)
    part = draw(st.sampled_from([record, record["rules"], record["network"]]))
    name = draw(st.sampled_from([*part, "x"]))
    if draw(st.booleans()):
        part.pop(name, None)
    else:
        part[name] = draw(VALUES)
    return record


@fuzzed
@given(record=records() | VALUES, source=SOURCES, is_text_damaged=st.booleans())
def test_metadata_of_a_checkpoint_is_read_or_refused(folder, record, source, is_text_damaged):
    path = folder / "checkpoints" / "7"
    for item in ("policy", "metadata"):
        (path / item).mkdir(parents=True, exist_ok=True)
    content = json.dumps(record).encode()
    (path / "metadata" / "metadata").write_bytes(
        damaged(content, source) if is_text_damaged else content
    )
    # Written by the version without checksums, which notice no less than everything.
    text = (path / "metadata" / "metadata").read_bytes().replace(b'_version": 3', b'_version": 2')
    (path / "metadata" / "metadata").write_bytes(text)
    found = refused(checkpoint.read_metadata, path)
    if found is not None:
        assert isinstance(found.rules, Rules)
        assert 0 <= found.iteration <= 10**9


@pytest.fixture(scope="module")
def archive():
    """Bytes of an agent file whose arrays are those of no network."""
    file = io.BytesIO()
    texts = {"metadata": np.array(json.dumps(RECORD)), "config": np.array("seed: 1\n")}
    np.savez_compressed(file, allow_pickle=False, weights=np.zeros(3, np.float32), **texts)
    return file.getvalue()


@fuzzed
@given(source=SOURCES)
def test_a_damaged_agent_file_is_read_or_refused(folder, archive, source):
    path = folder / "agent.npz"
    path.write_bytes(damaged(archive, source))
    found = refused(agent_file.read_metadata, path)
    assert found is None or found.rules == MINI


ARRAYS = st.sampled_from(
    [
        np.zeros(3),
        np.array("text"),
        np.array([{}], object),
        np.zeros((2, 0)),
        np.array(RECORD, object),
        np.array(json.dumps(RECORD)),
        np.array([json.dumps(RECORD)] * 2),
    ]
)


@fuzzed
@given(
    arrays=st.dictionaries(st.sampled_from(["metadata", "config", "x", "../x", "/x"]), ARRAYS),
    raw=st.dictionaries(st.sampled_from(["metadata.npy", "y.npy", "z"]), st.binary(max_size=40)),
    record=records(),
)
def test_an_agent_file_of_any_arrays_is_loaded_or_refused(folder, arrays, raw, record):
    path = folder / "made.npz"
    arrays = {"metadata": np.array(json.dumps(record))} | arrays
    with zipfile.ZipFile(path, "w") as file:
        for name, array in arrays.items():
            if f"{name}.npy" not in raw:
                with file.open(f"{name}.npy", "w") as entry:
                    np.lib.format.write_array(entry, array, allow_pickle=True)
        for name, content in raw.items():
            file.writestr(name, content)
    assert refused(agent_file.read_metadata, path) or True
    assert not (folder / "x.npy").exists() and not (folder.parent / "x.npy").exists()


# ---- Adapters --------------------------------------------------------------------------------

SMALL_RULES = Rules(colors=2, ranks=3, wagers=1, hand=2, max_turns=8)


@fuzzed
@given(
    seed=st.integers(0, 10**6),
    actions=st.lists(
        st.integers(-3, 12) | st.sampled_from([None, 1.5, "1", 10**30, np.int64(3), True])
        | st.just("legal"),
        max_size=30,
    ),
)  # fmt: skip
def test_actions_of_an_environment_are_taken_or_refused(seed, actions):
    env = pettingzoo_env.raw_env(SMALL_RULES)
    env.reset(seed=seed)
    source = random.Random(seed)
    for action in actions:
        if action == "legal":
            action = source.choice(np.flatnonzero(env.last()[0]["action_mask"]))
        before = env.observe(env.agent_selection), env.agent_selection
        is_legal = action in np.flatnonzero(before[0]["action_mask"])
        try:
            env.step(action)
            assert is_legal
        except UserError:
            assert not is_legal
            np.testing.assert_equal((env.observe(env.agent_selection), env.agent_selection), before)
        if any(env.terminations.values()) or any(env.truncations.values()):
            break
