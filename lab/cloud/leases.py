"""Blazar leases: committed capacity for a time, by hall and flavor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class LeaseStatus(StrEnum):
    PENDING = "PENDING"
    ACTIVE = "ACTIVE"
    TERMINATED = "TERMINATED"


@dataclass(slots=True)
class Reservation:
    """`amount` instances of one committed host group. `asked` is what the client sent, shown back."""

    id: str
    group: str
    resource_type: str
    amount: int
    asked: dict[str, object] = field(default_factory=dict)
    used: int = 0


@dataclass(slots=True)
class Lease:
    """One lease: its reservations hold from `start_at` until `end_at`."""

    id: str
    name: str
    project_id: str
    user_id: str
    start_at: datetime
    end_at: datetime
    created_at: datetime
    before_end_at: datetime | None = None
    updated_at: datetime | None = None
    status: LeaseStatus = LeaseStatus.PENDING
    reservations: list[Reservation] = field(default_factory=list)

    @property
    def next_change_at(self) -> datetime | None:
        if self.status is LeaseStatus.PENDING:
            return self.start_at
        return self.end_at if self.status is LeaseStatus.ACTIVE else None

    def overlaps(self, start: datetime, end: datetime) -> bool:
        return self.status is not LeaseStatus.TERMINATED and self.start_at < end and start < self.end_at


class LeaseBook:
    """The leases of one region, and the calendar that follows from them.

    While it is `full` no lease can be prolonged, as if others had booked all that comes after.
    """

    def __init__(self) -> None:
        self.full = False
        self._leases: dict[str, Lease] = {}

    def add(self, lease: Lease) -> None:
        self._leases[lease.id] = lease

    def remove(self, lease: Lease) -> None:
        del self._leases[lease.id]

    def get(self, lease_id: str) -> Lease | None:
        return self._leases.get(lease_id)

    def all(self) -> list[Lease]:
        return list(self._leases.values())

    def reservation(self, reservation_id: str) -> tuple[Lease, Reservation] | None:
        for lease in self._leases.values():
            for reservation in lease.reservations:
                if reservation.id == reservation_id:
                    return lease, reservation
        return None

    def active_amount(self, group: str) -> int:
        return sum(
            reservation.amount
            for lease in self._leases.values()
            if lease.status is LeaseStatus.ACTIVE
            for reservation in lease.reservations
            if reservation.group == group
        )

    def peak_amount(self, group: str, start: datetime, end: datetime, *, without: Iterable[str] = ()) -> int:
        """The most instances of a group that leases hold at once between `start` and `end`."""
        skipped = set(without)
        changes: list[tuple[datetime, int]] = []
        for lease in self._leases.values():
            if lease.id in skipped or not lease.overlaps(start, end):
                continue
            amount = sum(each.amount for each in lease.reservations if each.group == group)
            changes += [(max(lease.start_at, start), amount), (lease.end_at, -amount)]
        peak = held = 0
        for _, change in sorted(changes):
            held += change
            peak = max(peak, held)
        return peak
