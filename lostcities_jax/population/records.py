"""What a population leaves to read: one line for every batch, lane and failure."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from lostcities_jax.errors import UserError, shown
from lostcities_jax.population.flight import Batch, Outcome

FILE = "population.jsonl"
ENDS = REGISTERED, DUPLICATE, GIVEN_UP = "registered", "duplicate", "given up"


def append(folder: pathlib.Path, *records: Mapping[str, Any]) -> None:
    """Adds lines to a registry's records.

    Raises:
      UserError: for a folder that cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / FILE, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(record, allow_nan=False) + "\n" for record in records)
    except OSError as error:
        raise UserError(f"{shown(str(folder))} cannot be written: {error.strerror}") from error


def batch_record(batch: Batch) -> dict[str, Any]:
    """The line of a batch."""
    return {"kind": "batch"} | batch._asdict()


def lane_records(
    outcome: Outcome, settings: Mapping[str, Any], revision: str | None, is_duplicate: bool
) -> list[dict[str, Any]]:
    """The lines of a lane: one for each of its failures, then its own.

    Args:
      outcome: what became of it.
      settings: those in which it differs from other lanes.
      revision: its revision; None for a lane that was given up.
      is_duplicate: whether the registry had that already.
    """
    end = GIVEN_UP if revision is None else DUPLICATE if is_duplicate else REGISTERED
    lane = {
        "kind": "lane",
        "lane": outcome.lane,
        "settings": dict(settings),
        "outcome": end,
        "revision": revision,
        "seconds": outcome.seconds,
    }
    failures = [{"kind": "failure"} | dataclasses.asdict(one) for one in outcome.failures]
    return [*failures, lane | outcome.metrics]
