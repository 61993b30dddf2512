"""Checkpoints of a run, `<run>/checkpoints/<iteration>/`, written and read by orbax.

A checkpoint holds three items: `policy`, the parameters to play with; `training`, all else
that an exact continuation needs; and `metadata`, what the two were made for. The average
strategy's parameters are in both: where a run is stopped they are fitted for play, and it goes on
from those before that fit. Beside the items lie the checksums of all files. A checkpoint is
written under another name, `<iteration>.partial`, and renamed when it is whole. Orbax is slow to
import, so only the functions that need it do so.
"""

import contextlib
import dataclasses
import gc
import json
import pathlib
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from lostcities_jax import checksums
from lostcities_jax.errors import UserError, shown
from lostcities_jax.files import publish
from lostcities_jax.metadata import (
    FORMAT_VERSION,
    DamagedError,
    Metadata,
    brief,
    parse_metadata,
)
from lostcities_jax.rules import Rules

FOLDER = "checkpoints"
_PARTIAL = ".partial"
_DAMAGED = ".damaged"
_WITH_CHECKSUMS = range(3, FORMAT_VERSION + 1)
STRATEGY_APART = 4  # the first format whose training has the average strategy to go on from
_TEMPORARY = (f"[0-9]*{_PARTIAL}", "[0-9]*.orbax-checkpoint-tmp*")
_PATHS = "a run folder, its checkpoints folder, or one checkpoint"


def save(
    directory: str | pathlib.Path,
    iteration: int,
    policy: Any,
    training: Any,
    metadata: Metadata,
) -> pathlib.Path:
    """Write a checkpoint all or nothing; return its folder.

    Args:
      directory: the run's `checkpoints` folder; made if absent.
      iteration: iterations finished.
      policy: pytree of arrays.
      training: pytree of arrays; no typed PRNG keys, use `jax.random.key_data`.
      metadata: what the checkpoint is for; its iteration is replaced.

    Raises:
      UserError: for an iteration that has a checkpoint, or a folder that cannot be written.
    """
    directory = pathlib.Path(directory).absolute()
    path = directory / str(iteration)
    if path.exists():
        raise UserError(f"checkpoint {path} exists; allowed: an iteration without one")
    record = dataclasses.asdict(dataclasses.replace(metadata, iteration=iteration))
    partial = path.with_name(path.name + _PARTIAL)
    try:
        _remove_temporary(directory)
        with _late_writes_ignored():
            _write(partial, policy, training, record)
        checksums.seal(partial)
        publish(partial, path)
        return path
    except (OSError, ValueError) as error:  # tensorstore raises the latter for a full disk
        failure = brief(error)
    _drop_unfinished()
    _remove_temporary(directory)
    raise UserError(f"checkpoint {path} cannot be written: {failure}")


def prune(directory: str | pathlib.Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints, at least 1.

    Raises:
      UserError: for one that cannot be removed, when all the others are.
    """
    failures = []
    for iteration in _iterations(pathlib.Path(directory))[:-keep]:
        path = pathlib.Path(directory) / str(iteration)
        partial = path.with_name(path.name + _PARTIAL)
        try:
            path.rename(partial)  # one that is half removed does not look like one
            shutil.rmtree(partial)
        except OSError as error:
            failures.append(f"old checkpoint {path} cannot be removed: {brief(error)}")
    if failures:
        raise UserError(failures[0])


def check_path(path: pathlib.Path) -> None:
    """Raises UserError for a path at which tensorstore cannot keep a checkpoint."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"the path {shown(str(path))} is not UTF-8; allowed for checkpoints: UTF-8"
        ) from error


def set_aside(path: pathlib.Path) -> pathlib.Path:
    """Renames a damaged checkpoint, so that its iteration can have another; returns its new path.

    Raises:
      UserError: for a folder that cannot be written.
    """
    target = path.with_name(path.name + _DAMAGED)
    try:
        if target.exists():
            shutil.rmtree(target)
        path.rename(target)
    except OSError as error:
        raise UserError(f"checkpoint {path} cannot be renamed: {error.strerror}") from error
    return target


def latest(directory: str | pathlib.Path) -> int | None:
    """Iteration of the newest checkpoint in a `checkpoints` folder, None without any."""
    return max(_iterations(pathlib.Path(directory)), default=None)


def resolve(path: str | pathlib.Path) -> pathlib.Path:
    """Folder of one checkpoint, given it, or the newest of a run or `checkpoints` folder.

    Raises:
      UserError: for a path that does not exist or holds no checkpoint.
    """
    return resolve_all(path)[-1]


def resolve_all(path: str | pathlib.Path) -> list[pathlib.Path]:
    """Folders of all checkpoints of a run or `checkpoints` folder, oldest first, or of one.

    Raises:
      UserError: for a path that does not exist, holds no checkpoint or is not UTF-8.
    """
    path = pathlib.Path(path).absolute()
    check_path(path)
    if _is_checkpoint(path):
        return [path]
    for directory in (path / FOLDER, path):
        iterations = _iterations(directory)
        if iterations:
            return [directory / str(iteration) for iteration in iterations]
    if not path.exists():
        raise UserError(f"checkpoint {path} does not exist; allowed: {_PATHS}")
    raise UserError(f"{path} holds no checkpoint; allowed: {_PATHS}")


def read_metadata(path: str | pathlib.Path) -> Metadata:
    """Metadata of the checkpoint that `resolve` finds.

    Raises:
      UserError: for no checkpoint, damaged metadata, or another format version.
    """
    path = resolve(path)
    try:
        record = dict(json.loads((path / "metadata" / "metadata").read_bytes()))
        version = record["format_version"]
        if version in _WITH_CHECKSUMS:
            checksums.check(path, "metadata")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedError(f"checkpoint {path} has damaged metadata: {brief(error)}") from error
    return parse_metadata(record, version, f"checkpoint {path}")


def check_compatible(metadata: Metadata, rules: Rules, network: Any) -> None:
    """Refuse a checkpoint made for other rules or another network.

    Args:
      metadata: the checkpoint's.
      rules: the rules wanted.
      network: the network settings wanted; a dataclass or a mapping.

    Raises:
      UserError: names every setting that differs, with both values.
    """
    wanted = dict(network) if isinstance(network, Mapping) else dataclasses.asdict(network)
    pairs = [
        ("rules", dataclasses.asdict(metadata.rules), dataclasses.asdict(rules)),
        ("network", dict(metadata.network), wanted),
    ]
    differing = [
        f"{section}.{name} is {shown(have.get(name))} there but {shown(want.get(name))} here"
        for section, have, want in pairs
        for name in have | want
        if have.get(name) != want.get(name)
    ]
    if differing:
        raise UserError(f"the checkpoint is for another game or network: {', '.join(differing)}")


def restore_policy(path: str | pathlib.Path, template: Any) -> Any:
    """Policy of the checkpoint that `resolve` finds, with the template's tree and sharding.

    Args:
      path: see `resolve`.
      template: pytree of arrays or `jax.ShapeDtypeStruct`; without a sharding, a leaf comes
        to the first device.

    Raises:
      UserError: for no checkpoint, a damaged one, or other names, shapes or types of arrays.
    """
    return _restore(resolve(path), "policy", template)


def restore_training(path: str | pathlib.Path, template: Any) -> Any:
    """The rest of the checkpoint's training state; as `restore_policy`."""
    return _restore(resolve(path), "training", template)


def _restore(path: pathlib.Path, item: str, template: Any) -> Any:
    import orbax.checkpoint as ocp

    want, target = _leaves(template), jax.tree.map(_abstract, template)
    has_checksums = read_metadata(path).format_version in _WITH_CHECKSUMS
    try:
        if has_checksums:
            checksums.check(path, item)
        handler = ocp.StandardCheckpointHandler(multiprocessing_options=_alone())
        # The item alone: asked for a whole checkpoint, orbax trips over damage to the others.
        with _checkpointer(handler) as checkpointer:
            have = _leaves(checkpointer.metadata(path / item).item_metadata.tree)
            _check_leaves(path, item, have, want)
            return checkpointer.restore(path / item, args=ocp.args.StandardRestore(target))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        # What a damaged file raises depends on where tensorstore trips over it.
        raise DamagedError(f"checkpoint {path} has a damaged {item}: {brief(error)}") from error


def _check_leaves(
    path: pathlib.Path, item: str, have: dict[str, str], want: dict[str, str]
) -> None:
    """Compare before restoring, since orbax converts types and its report has many lines."""
    for name in have | want:
        if have.get(name) != want.get(name):
            raise UserError(
                f"checkpoint {path} does not fit: {item} array {name} is "
                f"{have.get(name, 'absent')} there but {want.get(name, 'absent')} here"
            )


def _leaves(tree: Any) -> dict[str, str]:
    """Type and shape of every array of a tree by its name."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): (
            f"{np.dtype(leaf.dtype).name}{list(leaf.shape)}"
        )
        for path, leaf in leaves
    }


def _abstract(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return leaf
    # A checkpoint names the devices it was saved on, which this machine may not have.
    sharding = leaf.sharding or jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _write(path: pathlib.Path, policy: Any, training: Any, record: dict[str, Any]) -> None:
    import orbax.checkpoint as ocp

    items = ocp.args.Composite(
        policy=ocp.args.StandardSave(policy),
        training=ocp.args.StandardSave(training),
        metadata=ocp.args.JsonSave(record),
    )
    alone = _alone()
    handler = ocp.CompositeCheckpointHandler(
        policy=ocp.StandardCheckpointHandler(multiprocessing_options=alone),
        training=ocp.StandardCheckpointHandler(multiprocessing_options=alone),
        metadata=ocp.JsonCheckpointHandler(multiprocessing_options=alone),
        composite_options=ocp.CompositeOptions(multiprocessing_options=alone),
    )
    with _checkpointer(handler) as checkpointer:
        checkpointer.save(path, args=items)


def _alone() -> Any:
    """Of processes that share a run one alone writes, and none waits for another to read."""
    import orbax.checkpoint as ocp

    process = jax.process_index()
    return ocp.options.MultiprocessingOptions(
        primary_host=process,
        active_processes={process},
        barrier_sync_key_prefix=f"process-{process}",
    )


@contextlib.contextmanager
def _checkpointer(handler: Any) -> Iterator[Any]:
    """An orbax checkpointer that keeps its log lines off the terminal."""
    import absl.logging
    import orbax.checkpoint as ocp

    verbosity = absl.logging.get_verbosity()
    absl.logging.set_verbosity(absl.logging.FATAL)
    try:
        with ocp.Checkpointer(handler, multiprocessing_options=_alone()) as checkpointer:
            yield checkpointer
    finally:
        absl.logging.set_verbosity(verbosity)


@contextlib.contextmanager
def _late_writes_ignored() -> Iterator[None]:
    """Has nothing told of arrays that a failed save was still writing.

    Orbax closes its event loop at the first failure; each array that is through after that would
    print a traceback. They may come late, so that after a failure it stays so.
    """
    before = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if str(unraisable.exc_value) != "Event loop is closed":
            before(unraisable)

    sys.unraisablehook = hook
    yield
    sys.unraisablehook = before


def _drop_unfinished() -> None:
    """Collects the coroutines of a failed save, which orbax leaves and which warn as they go."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        gc.collect()


def _is_checkpoint(path: pathlib.Path) -> bool:
    return (path / "policy").is_dir() and (path / "metadata").is_dir()


def _iterations(directory: pathlib.Path) -> list[int]:
    """Iterations of the finished checkpoints in a folder, oldest first."""
    if not directory.is_dir():
        return []
    names = [path.name for path in directory.iterdir() if _is_checkpoint(path)]
    return sorted(int(name) for name in names if name.isdecimal() and name.isascii())


def _remove_temporary(directory: pathlib.Path) -> None:
    """Removes what was left behind by a save that was killed or failed, as far as that can be."""
    for pattern in _TEMPORARY:
        for path in directory.glob(pattern):
            shutil.rmtree(path, ignore_errors=True)
