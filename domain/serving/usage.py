"""Pool hours: for how many seconds of each hour a serving pool was in service, and what that costs.

A pool is in service from its activation until it is retired, while it has an endpoint. Its records say
until when it was counted, so counting goes on from there, however late: nothing is counted twice, and
an outage of the collector leaves no hole up to `catch_up_hours`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, NamedTuple

from pydantic import Field

from domain.model import Frozen
from domain.money import rounded

HOUR = timedelta(hours=1)
HOUR_SECONDS = 3600
CURRENCY = "USD"


class UsageTerms(Frozen):
    """How pool hours are counted. After an outage what is older than `catch_up_hours` stays uncounted."""

    catch_up_hours: Annotated[int, Field(ge=1, le=24 * 31)] = 72


class PoolHour(NamedTuple):
    """The usage of a pool within one hour, counted until `counted_until`.

    Its price is the one in force when the hour was first counted, in US dollars: an hour has one price.
    """

    hour: datetime
    seconds: int
    price_per_hour_usd: Decimal
    counted_until: datetime

    @property
    def amount_usd(self) -> Decimal:
        """What these seconds cost, rounded once."""
        return rounded(self.price_per_hour_usd * self.seconds / HOUR_SECONDS)


class Meter(NamedTuple):
    """What is known of a pool when its hours are counted.

    `changed_at` is when a person last changed it, and `ended_at` when it was retired, if it was. A pool
    that `serves` is in service now, or was until its end. `newest` is its newest record.
    """

    serves: bool
    changed_at: datetime
    price_per_hour_usd: Decimal
    ended_at: datetime | None = None
    newest: PoolHour | None = None


def counted(meter: Meter, now: datetime, terms: UsageTerms) -> tuple[PoolHour, ...]:
    """The records of a pool that are new or have changed, each as it is now, oldest first.

    Whole seconds are counted. A pool that was never counted is counted from its last change, which is
    not before its activation. One that stopped serving is counted on with zero seconds, so that the time
    in between is not taken for service should it serve again.
    """
    if meter.newest is None and not meter.serves:
        return ()
    until = _whole(now if meter.ended_at is None else min(now, meter.ended_at))
    spans = by_hour(_since(meter, until, terms), until)
    return tuple(_record(meter, begin, end) for begin, end in spans)


def by_hour(since: datetime, until: datetime) -> Iterator[tuple[datetime, datetime]]:
    """A span of time cut at full hours."""
    while since < until:
        end = min(hour_of(since) + HOUR, until)
        yield since, end
        since = end


def hour_of(moment: datetime) -> datetime:
    """The beginning of the hour in UTC: some zones are half an hour off."""
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _since(meter: Meter, until: datetime, terms: UsageTerms) -> datetime:
    oldest = hour_of(until) - terms.catch_up_hours * HOUR
    known = meter.changed_at if meter.newest is None else meter.newest.counted_until
    return max(_whole(known), oldest)


def _record(meter: Meter, begin: datetime, end: datetime) -> PoolHour:
    hour, newest = hour_of(begin), meter.newest
    seconds = int((end - begin).total_seconds()) if meter.serves else 0
    if newest is not None and newest.hour == hour:
        return newest._replace(seconds=newest.seconds + seconds, counted_until=end)
    return PoolHour(hour, seconds, meter.price_per_hour_usd, end)


def _whole(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)
