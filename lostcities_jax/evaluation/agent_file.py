"""An agent as one small file: a checkpoint's policy, without what only training needs.

A NumPy archive of plain arrays (nothing in it is ever executed): `metadata`, the checkpoint's as
JSON text; `config`, the YAML settings of the run it comes from; and every array of the policy
under its place in the tree.
"""

import dataclasses
import json
import pathlib
import threading
import zipfile
from typing import Any

import jax
import numpy as np

from lostcities_jax.errors import UserError, shown
from lostcities_jax.files import replacing
from lostcities_jax.metadata import Metadata, parse_metadata

SUFFIX = ".npz"
IN_FOLDER = f"agent{SUFFIX}"  # where the folder of a revision stands for the agent file in it
RECORD = "revision.json"  # what tells such a folder from that of a run
SHIPPED = pathlib.Path(__file__).parents[1] / "agents" / f"shipped{SUFFIX}"
_MAX_BYTES = 2**28  # of all arrays as they are in memory
_HEADER_BYTES = 1024  # of an array, at most
_TEXTS = ("metadata", "config")
# NumPy reads the head of an array with `ast.literal_eval`, which before Python 3.11.8 fails when
# another thread does the same in the middle of it: python/cpython#106905.
_READING = threading.Lock()


def write(path: pathlib.Path, policy: Any, metadata: Metadata, config: str) -> None:
    """Writes an agent file, all or nothing.

    Args:
      path: the file; must not exist.
      policy: a checkpoint's policy, a pytree of arrays.
      metadata: the checkpoint's.
      config: the settings of its run, for people.

    Raises:
      UserError: for a file that exists or cannot be written, or a policy too large to be read.
    """
    if path.suffix != SUFFIX or path.exists():
        raise UserError(f"the file is {shown(str(path))}; allowed: a new one that ends in {SUFFIX}")
    texts = {"metadata": json.dumps(dataclasses.asdict(metadata)), "config": config}
    arrays = {name: np.array(text) for name, text in texts.items()} | by_place(policy)
    size = sum(array.nbytes + _HEADER_BYTES for array in arrays.values())
    if size > _MAX_BYTES:
        raise UserError(
            f"the policy for {shown(str(path))} takes {size} bytes; allowed: {_MAX_BYTES}"
        )
    try:
        with replacing(path) as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
    except OSError as error:
        raise UserError(f"{shown(str(path))} cannot be written: {error.strerror}") from error


def read_metadata(path: pathlib.Path) -> Metadata:
    """Metadata of an agent file.

    Raises:
      UserError: for a file that is none, is damaged, or of another format version.
    """
    try:
        record = json.loads(str(_read(path, {"metadata"})["metadata"]))
        version = record["format_version"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damaged(path, error) from error
    return parse_metadata(record, version, f"agent file {path}")


def read_policy(path: pathlib.Path, template: Any) -> Any:
    """The policy of an agent file, with the template's tree.

    Raises:
      UserError: for a damaged file, or other names, shapes or types of arrays.
    """
    wanted = by_place(template)
    arrays = _read(path, set(wanted))
    for place, leaf in wanted.items():
        have = arrays[place]
        if (have.shape, have.dtype) != (leaf.shape, leaf.dtype):
            raise UserError(
                f"agent file {path} does not fit: {place} is {have.dtype.name}{list(have.shape)} "
                f"there but {np.dtype(leaf.dtype).name}{list(leaf.shape)} here"
            )
    structure = jax.tree.structure(template)
    return jax.tree.unflatten(structure, [arrays[place] for place in wanted])


def by_place(tree: Any) -> dict[str, Any]:
    """Leaves of a tree by their place, in its order."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(place, simple=True, separator="/"): leaf for place, leaf in leaves}


def _read(path: pathlib.Path, names: set[str]) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(path) as archive:
            # The sizes the archive claims are checked by zipfile while it reads.
            if sum(entry.file_size for entry in archive.infolist()) > _MAX_BYTES:
                raise ValueError(f"more than {_MAX_BYTES} bytes")
        with _READING, np.load(path, allow_pickle=False) as file:
            extra = set(file.files) - names - set(_TEXTS)
            if names != {"metadata"} and extra:
                raise ValueError(f"unknown array {shown(min(extra))}")
            return {name: file[name] for name in names}
    except Exception as error:  # zipfile, zlib and NumPy each have their own for a damaged byte
        raise _damaged(path, error) from error


def _damaged(path: pathlib.Path, error: Exception) -> UserError:
    return UserError(f"agent file {path} is damaged: {shown(f'{type(error).__name__}: {error}')}")
