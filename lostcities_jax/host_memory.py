"""How much of the machine's memory this process may use: a container may have less than all."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

_GROUPS = pathlib.Path("/sys/fs/cgroup")
_OWN_GROUPS = pathlib.Path("/proc/self/cgroup")


def host_memory_bytes() -> int | None:
    """The machine's memory, or what control groups leave of it; None if unknown."""
    sizes = list(_group_limits())
    with contextlib.suppress(ValueError, OSError):
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(sizes, default=None)


def _group_limits() -> Iterator[int]:
    """Limits of this process's control groups, version 1 or 2, and of all groups around them.

    Where there is no limit, version 2 says "max" and version 1 more than any machine has.
    """
    try:
        lines = _OWN_GROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if controllers == "":
            top, name = _GROUPS, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = _GROUPS / "memory", "memory.limit_in_bytes"
        else:
            continue
        # A container may see its own group as the top one, whatever its place outside.
        own = top / place.lstrip("/")
        for group in (own, *own.parents):
            limit = _read(group / name) if group.is_relative_to(top) else ""
            if limit.isdecimal():
                yield int(limit)


def _read(path: pathlib.Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
