"""Availability traces: how many instances of a pool the provider could give, tick by tick.

`python -m lab.reclaimer.trace --seed N` prints a synthetic one. Like recorded ones it is steady for long,
then loses much or everything within one tick, and comes back later.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

MAX_TICKS = 1_000_000
TRACES = Path(__file__).parent
# Per tick: how often a steady pool drops, how often it then drops to nothing, how often it recovers.
DROPS, TO_NOTHING, RECOVERS = 0.02, 0.7, 0.1


class TraceRefused(Exception):
    """A file that is no trace. The text names the file and what is wrong."""


class TraceMetadata(BaseModel):
    """`gap_seconds` lies between two ticks."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    gap_seconds: Annotated[float, Field(gt=0, le=86_400)]


class Trace(BaseModel):
    """`data` counts the instances available at each tick."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    metadata: TraceMetadata
    data: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1, max_length=MAX_TICKS)]


def read_trace(path: Path) -> Trace:
    """The trace of a file. TraceRefused when it cannot be read as one."""
    try:
        return Trace.model_validate_json(path.read_bytes())
    except OSError as error:
        raise TraceRefused(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise TraceRefused(
            f'{path} is no trace: {where}: {first["msg"]}. A trace is {{"metadata": {{"gap_seconds": N}},'
            ' "data": [available, ...]}'
        ) from error


def synthetic(rng: random.Random, *, instances: int, ticks: int, gap_seconds: float) -> Trace:
    """A pool of so many instances that drops and recovers by chance."""
    data: list[int] = []
    available = instances
    for _ in range(ticks):
        data.append(available)
        if available == instances and rng.random() < DROPS:
            available = 0 if rng.random() < TO_NOTHING else rng.randrange(instances)
        elif available < instances and rng.random() < RECOVERS:
            available = instances
    return Trace(metadata=TraceMetadata(gap_seconds=gap_seconds), data=tuple(data))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.reclaimer.trace")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--instances", type=int, default=8)
    parser.add_argument("--ticks", type=int, default=240)
    parser.add_argument("--gap-seconds", type=float, default=600.0)
    options = parser.parse_args()
    made = synthetic(
        random.Random(options.seed),
        instances=options.instances,
        ticks=options.ticks,
        gap_seconds=options.gap_seconds,
    )
    sys.stdout.write(made.model_dump_json() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
