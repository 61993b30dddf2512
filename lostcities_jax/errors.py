"""What a user did wrong, said in one line, and how a command says it."""

import difflib
import io
import os
import sys
from collections.abc import Callable, Iterable, Sequence

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, what a shell reports
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE


class UserError(Exception):
    """An error the user can mend: one line with the value and what is allowed instead."""

    def __init__(self, text: str):
        super().__init__(" ".join(line.strip() for line in text.splitlines()))


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Text "; did you mean 'x'?" for the allowed name closest to `name`, or nothing."""
    matches = difflib.get_close_matches(name, list(allowed), n=1, cutoff=0.5)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def shown(value: object, width: int = 60) -> str:
    """`repr` of a value cut to `width`, so that no input can flood or break an error line."""
    text = repr(value)
    return text if len(text) <= width else text[: width - 3] + "..."


def run_command(
    main: Callable[[Sequence[str]], int | None], argv: Sequence[str] | None = None
) -> int:
    """Exit code of `main(argv)`, with the user's errors as one line instead of a traceback.

    So are those of the system that nothing more specific was said of, with the path if any.

    Args:
      main: the command; None counts as 0.
      argv: arguments without the program's name; `sys.argv[1:]` by default.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # not so in a notebook
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a path need not be UTF-8
    try:
        code = main(sys.argv[1:] if argv is None else argv) or 0
        sys.stdout.flush()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes stdout once more on its way out: give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except OSError as error:
        path = "" if error.filename is None else f"{shown(str(error.filename))}: "
        print(f"error: {path}{error.strerror or error}", file=sys.stderr)
        return EXIT_USER_ERROR
    return code
