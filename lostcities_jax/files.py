"""Files and folders that appear whole or not at all."""

import contextlib
import errno
import os
import pathlib
import secrets
from collections.abc import Iterator
from typing import IO

from lostcities_jax.errors import UserError, shown


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[IO[bytes]]:
    """A file to write, which takes the place of `path` when it is whole, and else is gone.

    Raises:
      OSError: for a path that cannot be written.
    """
    if path.is_dir():  # nor has "." or "/" a name, to put another beside it
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():  # /dev/stdout must not give way to a file
        with open(path, "wb") as file:
            yield file
        return
    target = path.resolve() if path.is_symlink() else path
    # Of no other process or user, and no longer than any name may be.
    partial = target.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        with open(partial, "xb") as file:
            yield file
        partial.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def publish(partial: pathlib.Path, path: pathlib.Path) -> None:
    """Has a folder that was written under another name appear as `path`, whole and for good.

    All of it is on the disk before it has the name, and the name before this returns.

    Raises:
      OSError: for a folder that cannot be written.
    """
    for inside in (*partial.rglob("*"), partial):
        sync(inside)
    partial.rename(path)
    sync(path.parent)


def sync(path: pathlib.Path) -> None:
    """Has a file, or the names in a folder, on the disk before going on.

    Raises:
      OSError: where that fails.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes a text file, all or nothing.

    Raises:
      UserError: for a file that cannot be written.
    """
    try:
        with replacing(path) as file:
            # A name from the command line need not be UTF-8.
            file.write(text.encode(errors="backslashreplace"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{shown(str(path))} cannot be written: {reason}") from error
