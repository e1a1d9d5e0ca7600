"""What the audit workflow may ask of its hands: names, requests and answers. No other imports."""

from __future__ import annotations

from uuid import UUID

from domain.audit import AuditReport
from domain.model import Frozen

AUDIT = "Audit"
OPEN_AUDIT = "open_audit"
AUDIT_REGION = "audit_region"
CLOSE_AUDIT = "close_audit"


class AuditInput(Frozen):
    """Audit one partition, or with None everything of the tenant."""

    tenant_id: str
    audit_id: UUID
    partition_id: str | None = None


class AuditOpened(Frozen):
    """The regions to look at."""

    regions: tuple[str, ...]


class AuditRegionRequest(Frozen):
    """Compare the records of one region with its servers."""

    tenant_id: str
    region: str
    partition_id: str | None = None


class CloseAuditRequest(Frozen):
    """Keep the report of an audit."""

    audit: AuditInput
    report: AuditReport


class AuditClosed(Frozen):
    """What the audit says: `clean`, `findings` or `failed`."""

    status: str
    findings: int
