"""Audit: whether what is recorded and what exists at the provider are one world."""

from domain.audit.facts import (
    CountFact,
    EndFact,
    Facts,
    GapFact,
    LicenceFact,
    PlanFact,
    ServerFact,
    SlotFact,
)
from domain.audit.findings import WHAT_TO_DO, Finding, FindingKind
from domain.audit.report import (
    MAX_FINDINGS,
    AuditCounts,
    AuditReport,
    RegionFailure,
    Verdict,
    failed,
    merged,
    report_of,
)
from domain.audit.rule import ENDED_BY, STARTED_BY, AuditTerms, InFlight, audit, notes

__all__ = [
    "ENDED_BY",
    "MAX_FINDINGS",
    "STARTED_BY",
    "WHAT_TO_DO",
    "AuditCounts",
    "AuditReport",
    "AuditTerms",
    "CountFact",
    "EndFact",
    "Facts",
    "Finding",
    "FindingKind",
    "GapFact",
    "InFlight",
    "LicenceFact",
    "PlanFact",
    "RegionFailure",
    "ServerFact",
    "SlotFact",
    "Verdict",
    "audit",
    "failed",
    "merged",
    "notes",
    "report_of",
]
