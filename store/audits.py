"""Audits: those that run, and the reports of those that ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from domain.audit import AuditReport, RegionFailure
from store.engine import Connection
from store.tables import AuditStatus, audits

NOT_FINISHED = AuditReport(
    failures=(RegionFailure(region="all", reason="it did not end in time: start another one"),)
)


class UnknownAudit(LookupError):
    """No audit of this id belongs to the tenant."""


class StoredAudit(NamedTuple):
    """An audit. While it runs its report is empty; in a listing, reports come without their findings."""

    audit_id: UUID
    partition_id: str | None
    status: AuditStatus
    report: AuditReport
    started_at: datetime
    finished_at: datetime | None


async def add_audit(
    connection: Connection, tenant_id: str, audit_id: UUID, partition_id: str | None, at: datetime
) -> None:
    """Record that an audit runs. Recording it again changes nothing."""
    row = {
        "tenant_id": tenant_id,
        "audit_id": audit_id,
        "partition_id": partition_id,
        "report": AuditReport(),
        "started_at": at,
    }
    await connection.execute(insert(audits).values(row).on_conflict_do_nothing())


async def end_audit(
    connection: Connection, tenant_id: str, audit_id: UUID, report: AuditReport, at: datetime
) -> None:
    """Keep the report of an audit that runs. One that has ended keeps the report that it has."""
    await connection.execute(
        sa.update(audits)
        .where(
            audits.c.tenant_id == tenant_id,
            audits.c.audit_id == audit_id,
            audits.c.status == AuditStatus.RUNNING,
        )
        .values(status=report.verdict.value, report=report, finished_at=at)
    )


async def give_up(connection: Connection, tenant_id: str, started_before: datetime, at: datetime) -> None:
    """End audits that nobody will end any more: their workflows were stopped."""
    await connection.execute(
        sa.update(audits)
        .where(
            audits.c.tenant_id == tenant_id,
            audits.c.status == AuditStatus.RUNNING,
            audits.c.started_at < started_before,
        )
        .values(status=AuditStatus.FAILED, report=NOT_FINISHED, finished_at=at)
    )


async def find_audit(connection: Connection, tenant_id: str, audit_id: UUID) -> StoredAudit:
    query = sa.select(audits).where(audits.c.tenant_id == tenant_id, audits.c.audit_id == audit_id)
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        raise UnknownAudit(f"no audit {str(audit_id)!r}: list them with GET /factory/audits")
    return _stored(row)


async def audits_before(
    connection: Connection, tenant_id: str, before: tuple[datetime, UUID] | None, limit: int
) -> Sequence[StoredAudit]:
    """Audits, newest first, from the one after `before` on."""
    columns = [column for column in audits.c if column.name != "report"]
    query = (
        sa.select(*columns, audits.c.report.op("-")(sa.cast("findings", sa.Text)).label("report"))
        .where(audits.c.tenant_id == tenant_id)
        .order_by(audits.c.started_at.desc(), audits.c.audit_id.desc())
        .limit(limit)
    )
    if before is not None:
        query = query.where(sa.tuple_(audits.c.started_at, audits.c.audit_id) < sa.tuple_(*before))
    return [_stored(row) for row in (await connection.execute(query)).mappings()]


def _stored(row: sa.RowMapping) -> StoredAudit:
    return StoredAudit(
        row["audit_id"],
        row["partition_id"],
        AuditStatus(row["status"]),
        AuditReport.model_validate(row["report"]),
        row["started_at"],
        row["finished_at"],
    )
