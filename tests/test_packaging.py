"""What a user gets who installs the package without a checkout."""

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
