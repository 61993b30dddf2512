"""How many hostile inputs the tests try, and what refusing one means."""

import os

from hypothesis import HealthCheck, settings

from lostcities_jax.errors import UserError

CASES = int(os.environ.get("FUZZ_CASES", "40"))
fuzzed = settings(
    max_examples=CASES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


def refused(call, *arguments, kind=UserError):
    """What a call gives; None where it refuses, which must be in one short line."""
    try:
        return call(*arguments)
    except kind as error:
        text = str(error)
        assert text and len(text.splitlines()) == 1
        assert len(text) < 2000
        return None
