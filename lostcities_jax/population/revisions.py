"""Revisions: trained policies that never change, and the one of them that is in use.

    <registry>/revisions/<id>/agent.npz      the policy, an agent file
    <registry>/revisions/<id>/config.yaml    the settings it was trained with
    <registry>/revisions/<id>/revision.json  its parent and its metrics
    <registry>/active.json                   the revision in use, and those before it

The id is a digest of all the folder holds, so equal content has one id. A folder appears whole,
by a rename, and the revision in use changes by one: whenever a process dies, a reader finds the
state before or after. Readers take no lock; writers take turns.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from lostcities_jax.config import dump_config
from lostcities_jax.errors import UserError, nearest, shown
from lostcities_jax.evaluation import agent_file
from lostcities_jax.evaluation.agents import Agent, Mixture
from lostcities_jax.evaluation.loading import agent_of, load_checkpoint
from lostcities_jax.files import publish, sync
from lostcities_jax.metadata import Metadata
from lostcities_jax.settings import Config

REVISIONS = "revisions"
HISTORY = 100  # revisions in use before this one that can be gone back to
_ACTIVE, _LOCK, _PARTIAL = "active.json", "lock", ".partial"
_AGENT, _CONFIG, _RECORD = agent_file.IN_FOLDER, "config.yaml", agent_file.RECORD
_ID = re.compile(r"[0-9a-f]{16}")


@dataclasses.dataclass(frozen=True)
class Revision:
    """A trained policy, as it was registered.

    Attributes:
      id: digest of its content.
      policy: what a checkpoint keeps to play with, a pytree of arrays.
      metadata: what the policy was made for.
      config: YAML text of the settings it was trained with.
      metrics: figures of its training.
      parent: id of the revision that it was made from; None without.
      path: its folder.
    """

    id: str
    policy: dict[str, Any]
    metadata: Metadata
    config: str
    metrics: Mapping[str, float]
    parent: str | None
    path: pathlib.Path

    def agent(self, strategy: str | None = None) -> Agent | Mixture:
        """Who plays by it, called by its id; `strategy` as for `load_policy`."""
        return agent_of(self.id, self.metadata, self.policy, strategy)


@dataclasses.dataclass(frozen=True)
class Registry:
    """A folder of revisions; made when something is first registered."""

    path: pathlib.Path

    def ids(self) -> list[str]:
        """Ids of all revisions, in the order of the alphabet."""
        folder = self.path / REVISIONS
        names = os.listdir(folder) if folder.is_dir() else []
        return sorted(name for name in names if _ID.fullmatch(name))

    def register(
        self,
        policy: Any,
        metadata: Metadata,
        config: Config,
        metrics: Mapping[str, float],
        parent: str | None = None,
    ) -> tuple[str, bool]:
        """Keeps a policy as a revision, whole or not at all; publishes nothing.

        Args:
          policy: what a solver's `split` says there is to play with.
          metadata: what it was made for.
          config: the settings it was trained with.
          metrics: finite figures that the settings decide; no seconds, or nothing is ever equal.
          parent: id of the revision it was made from.

        Returns:
          the id, and whether the registry had it already.

        Raises:
          UserError: for a folder that cannot be written, or a parent that is not there.
        """
        if parent is not None:
            self._folder(parent)
        text = dump_config(config)
        record = {"parent": parent, "metrics": dict(metrics)}
        name = _digest(policy, metadata, text, record)
        with self._writing():
            folder = self.path / REVISIONS / name
            if folder.is_dir():
                return name, True
            partial = folder.with_name(_PARTIAL)
            shutil.rmtree(partial, ignore_errors=True)  # of a process that died
            partial.mkdir()
            agent_file.write(partial / _AGENT, policy, metadata, text)
            (partial / _CONFIG).write_text(text, encoding="utf-8")
            (partial / _RECORD).write_text(json.dumps(record, indent=2), encoding="utf-8")
            publish(partial, folder)
        return name, False

    def load(self, revision: str) -> Revision:
        """A revision by its id, checked against it.

        Raises:
          UserError: for an id that is not there, or content that is not what was registered.
        """
        folder = self._folder(revision)
        metadata, policy = load_checkpoint(str(folder))
        try:
            config = (folder / _CONFIG).read_text(encoding="utf-8")
            record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
            digest = _digest(policy, metadata, config, record)
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"revision {folder} is damaged: {shown(str(error))}") from error
        if digest != revision:
            raise UserError(f"revision {folder} is damaged: its content has the id {digest}")
        metrics, parent = record["metrics"], record["parent"]
        return Revision(revision, policy, metadata, config, metrics, parent, folder)

    def check_known(self, revision: str) -> None:
        """Raises UserError for an id that is not there."""
        self._folder(revision)

    def check_writable(self) -> None:
        """Makes the folders; raises UserError where they cannot be written."""
        with self._writing():
            pass

    def active(self) -> str | None:
        """Id of the revision in use; None before the first was activated."""
        history = self._history()
        return history[-1] if history else None

    def activate(self, revision: str) -> None:
        """Puts a revision in use instead of the one that is.

        Raises:
          UserError: for an id that is not there, a revision in use that is pinned, or a folder
            that cannot be written.
        """
        self.check_known(revision)
        self._switch(lambda history: [*history, revision])

    def rollback(self) -> str:
        """Puts the revision that was in use before in use again, and returns its id.

        Raises:
          UserError: without one, or as for `activate`.
        """

        def drop(history: list[str]) -> list[str]:
            if len(history) < 2:
                raise UserError(
                    f"registry {shown(str(self.path))} has no revision to go back to; allowed: "
                    f"after two activations"
                )
            return history[:-1]

        return self._switch(drop)

    @contextlib.contextmanager
    def pinned(self) -> Iterator[Revision]:
        """The revision in use, which stays in use until the end of the context.

        Raises:
          UserError: where none is in use.
        """
        while True:
            active = self.active()
            if active is None:
                raise UserError(f"registry {shown(str(self.path))} has no active revision")
            with _locked(self._folder(active), fcntl.LOCK_SH):
                if self.active() == active:  # else it was switched before the lock was had
                    yield self.load(active)
                    return

    def _switch(self, change: Callable[[list[str]], list[str]]) -> str:
        """Replaces the file that says what is in use; returns the id it names then.

        What was in use may be gone, but not what is to be.
        """
        with self._writing(), contextlib.ExitStack() as pin:
            history = self._history()
            changed = change(history)[-HISTORY - 1 :]
            self._folder(changed[-1])
            if history and history[-1] in self.ids():
                try:
                    lock = _locked(self._folder(history[-1]), fcntl.LOCK_EX | fcntl.LOCK_NB)
                    pin.enter_context(lock)
                except BlockingIOError as error:
                    raise UserError(
                        f"revision {history[-1]} is in use by an evaluation in flight; allowed: "
                        f"another one once that is over"
                    ) from error
            record = {"active": changed[-1], "before": changed[:-1]}
            partial = self.path / f"{_ACTIVE}{_PARTIAL}"
            partial.write_text(json.dumps(record), encoding="utf-8")
            sync(partial)
            partial.replace(self.path / _ACTIVE)
            sync(self.path)
            return changed[-1]

    def _history(self) -> list[str]:
        """Ids of the revisions that were in use, the one that is last."""
        path = self.path / _ACTIVE
        try:
            record = json.loads(path.read_bytes())
            history = [*record["before"], record["active"]]
            if not all(_ID.fullmatch(name) for name in history):
                raise ValueError("an id is none")
            return history
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise UserError(f"{path} is damaged: {shown(str(error))}") from error

    def _folder(self, revision: str) -> pathlib.Path:
        folder = self.path / REVISIONS / revision
        if not (_ID.fullmatch(revision) and folder.is_dir()):
            ids = self.ids()
            raise UserError(
                f"{shown(revision)} is no revision of {shown(str(self.path))}; allowed: one of "
                f"its {len(ids)}{nearest(revision, ids)}"
            )
        return folder

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Makes the folders, and has this process alone write them."""
        try:
            (self.path / REVISIONS).mkdir(parents=True, exist_ok=True)
            (self.path / _LOCK).touch()
            with _locked(self.path / _LOCK, fcntl.LOCK_EX):
                yield
        except OSError as error:
            raise UserError(
                f"registry {shown(str(self.path))} cannot be written: {error.strerror}"
            ) from error


@contextlib.contextmanager
def _locked(path: pathlib.Path, kind: int) -> Iterator[None]:
    """Holds a lock on a file or folder, which ends with its process."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, kind)
        yield
    finally:
        os.close(descriptor)


def _digest(policy: Any, metadata: Metadata, config: str, record: Mapping[str, Any]) -> str:
    """The id of a revision's content: every array's place, type, shape and bytes, and the texts."""
    digest = hashlib.sha256()
    texts = {"metadata": dataclasses.asdict(metadata), "config": config, "record": record}
    digest.update(json.dumps(texts, sort_keys=True, allow_nan=False).encode())
    for place, leaf in sorted(agent_file.by_place(policy).items()):
        array = np.asarray(leaf)
        digest.update(f"\n{place} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]
