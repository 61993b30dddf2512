"""Promises about the package as a whole."""

import ast
import os
import pathlib
import shutil
import subprocess
import sys
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "lostcities_jax"
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 400

IMPORT_ALL = """
import importlib, pkgutil
import lostcities_jax
from jax._src import xla_bridge

names = [m.name for m in pkgutil.walk_packages(lostcities_jax.__path__, "lostcities_jax.")]
for name in names:
    importlib.import_module(name)
    assert not xla_bridge._backends, f"{name} starts a backend when it is imported"
print(len(names))
"""


def name_of(module: pathlib.Path) -> str:
    return module.relative_to(PACKAGE).as_posix()


def test_no_import_touches_a_device():
    # `chex` and others may be imported first by this process; a new one starts with nothing.
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    modules = {path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"}
    assert int(done.stdout) == len(modules)


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_module_has_a_docstring(module):
    assert ast.get_docstring(ast.parse(module.read_text("utf-8")))


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_module_is_short_enough_to_read(module):
    lines = len(module.read_text("utf-8").splitlines())
    assert lines <= MAX_LINES


def test_imports_keep_to_the_layers():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    if "importlinter" not in settings:
        pytest.skip("pyproject.toml has no [tool.importlinter]")
    command = shutil.which("lint-imports", path=pathlib.Path(sys.executable).parent)
    command = command or shutil.which("lint-imports")
    if command is None:
        pytest.skip("import-linter is not installed")
    done = subprocess.run([command, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
