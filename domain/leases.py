"""Leases: committed capacity is held for a time, and a floor must not vanish because the time ran out.

A lease is ours when it holds a committed pool of ours. Others are looked at and never touched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, NamedTuple, Self

from pydantic import Field, model_validator

from domain.model import Frozen


class LeaseStatus(StrEnum):
    """What a lease's status means to us; the provider knows more words, such as PENDING.

    GONE is ours: a lease that was there, and that the provider lists no longer.
    """

    ACTIVE = "ACTIVE"
    UPDATING = "UPDATING"
    ERROR = "ERROR"
    TERMINATED = "TERMINATED"
    GONE = "GONE"


# A lease in ERROR keeps its servers until its end, where the provider deletes them as it does for any other.
RENEWABLE = frozenset({LeaseStatus.ACTIVE, LeaseStatus.ERROR})
HOLDING = frozenset({LeaseStatus.ACTIVE, LeaseStatus.UPDATING})
OVER = frozenset({LeaseStatus.TERMINATED, LeaseStatus.GONE})


class LeaseTerms(Frozen):
    """When a lease is renewed, by how much, and from when on it is an alarm that it was not.

    From `renew_ahead_hours` before its end, a lease is moved to `term_days` after that end.
    """

    renew_ahead_hours: Annotated[int, Field(ge=1, le=8_760)] = 72
    term_days: Annotated[int, Field(ge=1, le=366)] = 30
    alarm_hours: Annotated[int, Field(ge=1, le=8_760)] = 24

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.renew_ahead_hours >= self.term_days * 24:
            raise ValueError(
                f"renew_ahead_hours {self.renew_ahead_hours} is not below a term of {self.term_days} days,"
                f" so a lease would be renewed again and again: give less than {self.term_days * 24}"
            )
        if self.alarm_hours > self.renew_ahead_hours:
            raise ValueError(
                f"alarm_hours {self.alarm_hours} is above renew_ahead_hours {self.renew_ahead_hours}, so a"
                f" lease would alarm before anybody tried to renew it: give at most {self.renew_ahead_hours}"
            )
        return self


class LeaseView(NamedTuple):
    """One lease as it is known now. `pools` are the committed pools of ours that it holds, sorted."""

    lease_id: str
    status: str
    ends_at: datetime
    pools: tuple[str, ...] = ()


class Renewal(NamedTuple):
    """A lease to prolong, from the end it has to the end it shall have."""

    lease_id: str
    pools: tuple[str, ...]
    ended_at: datetime
    ends_at: datetime


def to_renew(leases: Iterable[LeaseView], now: datetime, terms: LeaseTerms) -> list[Renewal]:
    """Leases to prolong, the soonest end first.

    The new end follows from the old one, so whoever repeats a renewal asks for the same end; only a
    lease past its end is counted from now. Ends are whole minutes, as the provider counts.
    """
    due = now + timedelta(hours=terms.renew_ahead_hours)
    term = timedelta(days=terms.term_days)
    return [
        Renewal(each.lease_id, each.pools, each.ends_at, _minute_after(max(each.ends_at, now) + term))
        for each in sorted(leases, key=lambda lease: (lease.ends_at, lease.lease_id))
        if each.pools and each.status in RENEWABLE and each.ends_at <= due
    ]


def trouble(lease: LeaseView, leases: Collection[LeaseView], now: datetime, terms: LeaseTerms) -> str | None:
    """What is wrong with a lease of ours as it stands, or None.

    A lease that ended or went away matters only while no other lease holds its pools.
    """
    if not lease.pools:
        return None
    if lease.status == LeaseStatus.ERROR:
        return "the provider reports ERROR: ask the cloud team to repair the lease, or to book another"
    if lease.status in OVER:
        return _lost(lease, leases)
    due = lease.ends_at - now <= timedelta(hours=terms.renew_ahead_hours)
    if due and lease.status not in RENEWABLE:
        return f"it is {lease.status} and cannot be renewed: ask the cloud team if it stays so"
    return None


def _lost(lease: LeaseView, leases: Collection[LeaseView]) -> str | None:
    held = {pool for each in leases if each.status in HOLDING for pool in each.pools}
    lost = [pool for pool in lease.pools if pool not in held]
    if not lost:
        return None
    happened = "it ended" if lease.status == LeaseStatus.TERMINATED else "the provider lists it no longer"
    return f"{happened}, and no other lease holds {', '.join(lost)}: book a new lease"


def alarm(lease: LeaseView, problem: str | None, now: datetime, terms: LeaseTerms) -> bool:
    """Whether a person must act now: a lease with a problem that is over, or will be within `alarm_hours`."""
    if problem is None or not lease.pools:
        return False
    return lease.status in OVER or lease.ends_at - now <= timedelta(hours=terms.alarm_hours)


def _minute_after(moment: datetime) -> datetime:
    """The moment itself when it is a whole minute, else the next one: a renewal never shortens."""
    floor = moment.replace(second=0, microsecond=0)
    return floor if floor == moment else floor + timedelta(minutes=1)
