"""The server's answers about audits."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from clients.cli.answers import Answer


class Finding(Answer):
    """One thing that is wrong."""

    kind: str
    subject: str
    problem: str
    what_to_do: str


class RegionFailure(Answer):
    region: str
    reason: str


class Counts(Answer):
    """What was looked at; `foreign` is None where the servers of others were not counted."""

    servers: int
    slots: int
    workloads: int
    foreign: int | None = None
    servers_in_flight: int = 0
    workloads_in_flight: int = 0
    gaps: int = 0


class Audit(Answer):
    """An audit; while it runs it has neither counts nor findings."""

    audit_id: str
    partition_id: str | None = None
    status: str
    started_at: datetime
    finished_at: datetime | None = None
    regions: tuple[str, ...] = ()
    failures: tuple[RegionFailure, ...] = ()
    counts: Counts
    findings_total: int = 0
    findings_by_kind: dict[str, int] = Field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
