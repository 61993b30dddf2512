"""The matches that a server keeps: bounded in number, under names nobody can guess."""

import collections
import dataclasses
import secrets
import threading

from lostcities_jax.play.match import Match


@dataclasses.dataclass
class Session:
    """A match that changes, by one request at a time.

    Attributes:
      match: as it stands.
      lock: held while a request reads or changes it.
    """

    match: Match
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)


class Sessions:
    """Up to `limit` sessions; a new one more forgets the one idle for longest."""

    def __init__(self, limit: int):
        self._limit = limit
        self._by_id: collections.OrderedDict[str, Session] = collections.OrderedDict()
        self._lock = threading.Lock()

    def add(self, match: Match) -> str:
        """Keeps a match and returns its name, 128 random bits."""
        name = secrets.token_urlsafe(16)
        with self._lock:
            while len(self._by_id) >= self._limit:
                self._by_id.popitem(last=False)
            self._by_id[name] = Session(match)
        return name

    def get(self, name: str) -> Session:
        """The session of a name, from now on the last used; KeyError if there is none."""
        with self._lock:
            self._by_id.move_to_end(name)
            return self._by_id[name]
