"""The server's answers about the provider's regions."""

from __future__ import annotations

from datetime import datetime

from clients.cli.answers import Amount, Answer


class Budget(Answer):
    tokens: int
    burst: int
    refill_per_second: Amount


class Circuit(Answer):
    state: str
    failures: int
    trips: int
    problem: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class QuotaLevel(Answer):
    """One quota; a limit of None is unlimited."""

    resource: str
    limit: int | None = None
    used: int
    pending: int
    share_left: Amount | None = None
    alarm: bool


class QuotaHold(Answer):
    until: datetime
    refusals: int
    problem: str


class Licence(Answer):
    """Whether one partition may act in the region."""

    partition_id: str
    phase: str
    may_act: bool
    acting_until: datetime | None = None
    last_complete_at: datetime | None = None
    fleet: int
    backlog: int
    drifts: dict[str, int]
    problem: str | None = None


class Lease(Answer):
    name: str
    status: str
    hall: str | None = None
    flavor: str | None = None
    instances: int
    ends_at: datetime
    problem: str | None = None


class Region(Answer):
    """One region of the provider; `paused_until` is None unless every caller waits now."""

    region: str
    budget: Budget
    circuit: Circuit
    paused_until: datetime | None = None
    quotas: tuple[QuotaLevel, ...] = ()
    quota_hold: QuotaHold | None = None
    licences: tuple[Licence, ...] = ()
    leases: tuple[Lease, ...] = ()
