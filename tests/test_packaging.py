"""What a user gets who installs the package without a checkout."""

import importlib.metadata
import importlib.util
import pathlib
import subprocess
import sys
import tomllib
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The files of the wheel, by name."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_holds_every_config_as_it_is(wheel):
    for path in (ROOT / "configs").glob("*.yaml"):
        assert wheel[f"lostcities_jax/configs/{path.name}"] == path.read_bytes()


def test_the_wheel_holds_every_file_of_the_package(wheel):
    package = ROOT / "lostcities_jax"
    files = [path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    missing = {path.relative_to(ROOT).as_posix() for path in files} - set(wheel)
    assert not missing
    assert "lostcities_jax/py.typed" in wheel and "lostcities_jax/play/static/app.js" in wheel


def test_the_wheel_holds_nothing_else(wheel):
    assert {name.split("/")[0].split("-")[0] for name in wheel} == {"lostcities_jax"}


def test_the_citation_names_the_version_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text("utf-8").splitlines()
    assert f"version: {project['version']}" in citation


def test_the_audit_names_what_the_lock_file_lacks():
    specification = importlib.util.spec_from_file_location("audit", ROOT / ".ci" / "audit.py")
    assert specification is not None and specification.loader is not None
    audit = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(audit)
    pins, wrong = audit.locked("# pins\nnumpy==2.0.0\nchex>=1\nNumPy==2.1.0\n")
    assert pins == {"numpy": "2.0.0"} and len(wrong) == 2
    own = importlib.metadata.version("numpy")
    ask = [audit.Requirement("numpy>=2")]
    assert audit.audit({"numpy": own}, ask) == []
    assert audit.audit({}, ask) == ["numpy>=2 is not in the lock file"]
    assert audit.audit({"numpy": own, "x": "1"}, ask) == ["x is locked and needed by nothing"]
    assert audit.audit({"numpy": "1.0"}, ask) == [
        "numpy is locked at 1.0, but numpy>=2 is required",
        f"numpy is locked at 1.0 and installed as {own}",
    ]
