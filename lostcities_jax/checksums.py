"""Checksums of the files of a folder, so that damage is noticed instead of loaded."""

import hashlib
import json
import pathlib

FILE = "checksums.json"


def seal(folder: pathlib.Path) -> None:
    """Writes the SHA-256 of every file below a folder into it.

    Raises:
      OSError: for a folder that cannot be written.
    """
    sums = {}
    for path in _files(folder):
        with open(path, "rb") as file:
            sums[path.relative_to(folder).as_posix()] = _digest(file)
    (folder / FILE).write_text(json.dumps(sums, indent=0), encoding="utf-8")


def check(folder: pathlib.Path, part: str) -> None:
    """Compares the files of a sealed folder, those directly in it and of one part of it.

    Args:
      folder: the folder.
      part: name of a folder in it.

    Raises:
      ValueError: for a file that is missing, or differs from when the folder was sealed.
      OSError: for one that cannot be read.
    """
    sums = json.loads((folder / FILE).read_bytes())
    if not isinstance(sums, dict):
        raise ValueError(f"{FILE} holds no checksums")
    found = {path.name: path for path in folder.iterdir() if path.is_file() and path.name != FILE}
    found |= {path.relative_to(folder).as_posix(): path for path in _files(folder / part)}
    expected = {name for name in sums if "/" not in name or name.startswith(f"{part}/")}
    # Only what lies in the folder is opened, whatever names the checksums hold.
    for name in sorted(expected ^ found.keys()):
        raise ValueError(f"file {name} is {'missing' if name in expected else 'unknown'}")
    for name, path in found.items():
        with open(path, "rb") as file:
            if _digest(file) != sums[name]:
                raise ValueError(f"file {name} is not as it was written")


def _digest(file) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
