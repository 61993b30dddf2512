"""Checks the lock file without a network: complete, pinned, and what is installed.

Every distribution that the extra `test` needs, directly or not, must be in requirements-lock.txt
with one exact version that its dependents allow, and installed in that version. Prints what is
wrong, and exits with 1 if anything is.
"""

import importlib.metadata
import pathlib
import re
import sys
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = pathlib.Path(__file__).parents[1]
OWN = "lostcities-jax"
UNLISTED = {"setuptools"}  # `pip freeze` never lists it


def locked(text: str) -> tuple[dict[str, str], list[str]]:
    """Versions by name, and the lines that are no exact pin."""
    pins, wrong = {}, []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.+!]+)", line.strip())
        if match is None or canonicalize_name(match[1]) in pins:
            wrong.append(f"{line!r} is no pin of one version, or a second one")
        else:
            pins[canonicalize_name(match[1])] = match[2]
    return pins, wrong


def needs(name: str, extras: frozenset[str]) -> list[Requirement]:
    """Requirements of an installed distribution that apply here."""
    found = map(Requirement, importlib.metadata.requires(name) or ())
    return [
        need
        for need in found
        if need.marker is None
        or any(need.marker.evaluate({"extra": extra}) for extra in (extras or {""}))
    ]


def audit(pins: dict[str, str], wanted: list[Requirement]) -> list[str]:
    """What is wrong with the pins, following the requirements from installed to installed."""
    wrong, seen = [], set()
    todo = list(wanted)
    while todo:
        need = todo.pop()
        name = canonicalize_name(need.name)
        if name == OWN or name in UNLISTED:
            continue
        if name not in pins:
            wrong.append(f"{need} is not in the lock file")
            continue
        if not need.specifier.contains(pins[name], prereleases=True):
            wrong.append(f"{name} is locked at {pins[name]}, but {need} is required")
        key = (name, frozenset(need.extras))
        if key in seen:
            continue
        seen.add(key)
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{name} is locked at {pins[name]} and not installed")
            continue
        if installed != pins[name]:
            wrong.append(f"{name} is locked at {pins[name]} and installed as {installed}")
        todo += needs(name, frozenset(need.extras))
    return wrong + [
        f"{name} is locked and needed by nothing"
        for name in pins.keys() - {name for name, _ in seen}
    ]


def main() -> int:
    """Prints what is wrong; the exit code."""
    pins, wrong = locked((ROOT / "requirements-lock.txt").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    texts, todo = [*project["dependencies"]], ["test"]
    while todo:  # extras of the project itself, which name each other
        for text in extras[todo.pop()]:
            need = Requirement(text)
            own = canonicalize_name(need.name) == OWN
            todo += need.extras if own else ()
            texts += [] if own else [text]
    wrong += audit(pins, list(map(Requirement, texts)))
    print("\n".join(wrong) or f"requirements-lock.txt: {len(pins)} pins, complete and as installed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
