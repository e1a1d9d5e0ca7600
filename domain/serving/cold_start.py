"""Cold starts: how long a pool takes to load a model, learned from the loads that were seen.

Loading is bound by the size of a model, so loads are compared within a size class: sizes up to the same
power of two. Within a class the estimate is the upper quartile of the newest loads: a placement that
waits longer than it was told misses its latency, one that waits shorter does not; and a quartile, unlike
a mean, is moved by no single load that hung. A size that was hardly seen is estimated from the pool's
seconds for each GB, by the same quartile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from statistics import median_low
from typing import Annotated, NamedTuple

from pydantic import Field

from domain.model import Frozen


class ColdStartTerms(Frozen):
    """How cold starts are learned.

    From loads of the last `history_days`, the newest `loads_per_class` of each size class. Fewer than
    `least_loads` say nothing. An estimate lies within `least_seconds` and `most_seconds`.
    """

    history_days: Annotated[int, Field(ge=1, le=400)] = 14
    loads_per_class: Annotated[int, Field(ge=1, le=1000)] = 20
    least_loads: Annotated[int, Field(ge=1, le=1000)] = 3
    least_seconds: Annotated[int, Field(ge=0, le=86_400)] = 1
    most_seconds: Annotated[int, Field(ge=1, le=86_400)] = 3600


class Load(NamedTuple):
    """One load that succeeded: the size of the model, how long it took, and when it ended."""

    vram_gb: int
    seconds: Decimal
    finished_at: datetime


def learned(loads: Sequence[Load], terms: ColdStartTerms) -> int | None:
    """Seconds to load a model on the pool of these loads, for a model of the size that is usual there.

    None where too little was seen.
    """
    if not loads:
        return None
    return learned_for(loads, median_low([one.vram_gb for one in loads]), terms)


def learned_for(loads: Sequence[Load], vram_gb: int, terms: ColdStartTerms) -> int | None:
    """Seconds to load a model of this size on the pool of these loads; None where too little was seen."""
    alike = _newest([one for one in loads if size_class(one.vram_gb) == size_class(vram_gb)], terms)
    if len(alike) >= terms.least_loads:
        return _bounded(_upper_quartile([Fraction(one.seconds) for one in alike]), terms)
    if len(loads) < terms.least_loads:
        return None
    seconds_per_gb = [Fraction(one.seconds) / one.vram_gb for one in _newest(loads, terms)]
    return _bounded(_upper_quartile(seconds_per_gb) * vram_gb, terms)


def size_class(vram_gb: int) -> int:
    """Sizes up to the same power of two are alike: 40 and 64 GB are, 64 and 70 GB are not."""
    return (vram_gb - 1).bit_length()


def _newest(loads: Sequence[Load], terms: ColdStartTerms) -> list[Load]:
    """Ordered by all that is known of a load, so that the order in which they are read decides nothing."""
    ordered = sorted(loads, key=lambda one: (one.finished_at, one.seconds, one.vram_gb), reverse=True)
    return ordered[: terms.loads_per_class]


def _upper_quartile(values: Sequence[Fraction]) -> Fraction:
    """The smallest value that at least three quarters are at most."""
    return sorted(values)[math.ceil(len(values) * 3 / 4) - 1]


def _bounded(seconds: Fraction, terms: ColdStartTerms) -> int:
    """Whole seconds, rounded up: half a second too early is late."""
    return min(max(math.ceil(seconds), terms.least_seconds), terms.most_seconds)
