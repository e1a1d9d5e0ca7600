"""The report of an audit: of one region, or of all of them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum

from pydantic import Field

from domain.audit.facts import Facts
from domain.audit.findings import Finding, FindingKind
from domain.audit.rule import InFlight, notes
from domain.model import Frozen

MAX_FINDINGS = 1_000
MAX_NOTES = 100


class Verdict(StrEnum):
    """What an audit that has ended says. Where a region was not seen nothing is known, so it failed."""

    CLEAN = "clean"
    FINDINGS = "findings"
    FAILED = "failed"


class AuditCounts(Frozen):
    """What was looked at. `foreign` is None where the provider was not asked for servers of others."""

    servers: int = 0
    slots: int = 0
    workloads: int = 0
    foreign: int | None = None
    servers_in_flight: int = 0
    workloads_in_flight: int = 0
    gaps: int = 0


class RegionFailure(Frozen):
    """A region that could not be looked at, and why."""

    region: str
    reason: str


class AuditReport(Frozen):
    """Findings (the first `MAX_FINDINGS` of them, with their true number), counts and notes."""

    regions: tuple[str, ...] = ()
    failures: tuple[RegionFailure, ...] = ()
    counts: AuditCounts = AuditCounts()
    findings: tuple[Finding, ...] = ()
    findings_by_kind: dict[FindingKind, int] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def findings_total(self) -> int:
        return sum(self.findings_by_kind.values())

    @property
    def verdict(self) -> Verdict:
        if self.failures:
            return Verdict.FAILED
        return Verdict.FINDINGS if self.findings_by_kind else Verdict.CLEAN


def report_of(
    regions: Sequence[str], facts: Facts, findings: Sequence[Finding], in_flight: InFlight
) -> AuditReport:
    """The report of one look."""
    return AuditReport(
        regions=tuple(regions),
        counts=AuditCounts(
            servers=sum(one.is_managed for one in facts.servers),
            slots=sum(one.is_live for one in facts.slots),
            workloads=len(facts.plans),
            foreign=facts.foreign,
            servers_in_flight=in_flight.servers,
            workloads_in_flight=in_flight.workloads,
            gaps=len(facts.gaps),
        ),
        findings=tuple(findings[:MAX_FINDINGS]),
        findings_by_kind=dict(Counter(one.kind for one in findings)),
        notes=notes(facts)[:MAX_NOTES],
    )


def failed(region: str, reason: str) -> AuditReport:
    """The report of a region that could not be looked at."""
    return AuditReport(regions=(region,), failures=(RegionFailure(region=region, reason=reason),))


def merged(reports: Iterable[AuditReport]) -> AuditReport:
    """One report of several regions."""
    every = sorted(reports, key=lambda one: one.regions)
    by_kind: Counter[FindingKind] = Counter()
    for one in every:
        by_kind.update(one.findings_by_kind)
    findings = [finding for one in every for finding in one.findings]
    return AuditReport(
        regions=tuple(region for one in every for region in one.regions),
        failures=tuple(failure for one in every for failure in one.failures),
        counts=_sum([one.counts for one in every]),
        findings=tuple(findings[:MAX_FINDINGS]),
        findings_by_kind=dict(by_kind),
        notes=tuple(note for one in every for note in one.notes)[:MAX_NOTES],
    )


def _sum(counts: Sequence[AuditCounts]) -> AuditCounts:
    known = [one.foreign for one in counts if one.foreign is not None]
    totals = {
        name: sum(getattr(one, name) for one in counts)
        for name in AuditCounts.model_fields
        if name != "foreign"
    }
    return AuditCounts(**totals, foreign=sum(known) if known else None)
