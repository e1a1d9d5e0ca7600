"""Audits as they are kept: running, ended once, listed newest first."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from domain.audit import AuditReport, Finding, FindingKind, Verdict, failed
from store import audits
from store.audits import UnknownAudit
from store.tables import AuditStatus
from tests.estates import START, TENANT, Estate

FINDING = Finding(kind=FindingKind.LOST, subject="b-1-001", problem="it is gone", what_to_do="Look.")
SPOILT = AuditReport(
    regions=("eu-north",),
    findings=(FINDING,),
    findings_by_kind={FindingKind.LOST: 1},
    notes=("nobody looked",),
)


async def begin(estate: Estate, seconds: int = 0, partition_id: str | None = None) -> UUID:
    audit_id = uuid4()
    async with estate.engine.begin() as connection:
        at = START + timedelta(seconds=seconds)
        await audits.add_audit(connection, TENANT, audit_id, partition_id, at)
    return audit_id


async def end(estate: Estate, audit_id: UUID, report: AuditReport, seconds: int = 60) -> None:
    async with estate.engine.begin() as connection:
        at = START + timedelta(seconds=seconds)
        await audits.end_audit(connection, TENANT, audit_id, report, at)


async def found(estate: Estate, audit_id: UUID, tenant_id: str = TENANT) -> audits.StoredAudit:
    async with estate.engine.connect() as connection:
        return await audits.find_audit(connection, tenant_id, audit_id)


def test_every_verdict_is_a_status() -> None:
    assert {verdict.value for verdict in Verdict} | {"running"} == {status.value for status in AuditStatus}


async def test_an_audit_runs_until_its_report_is_kept(estate: Estate) -> None:
    audit_id = await begin(estate, partition_id="k8s-eu-north")
    running = await found(estate, audit_id)
    assert (running.status, running.report, running.finished_at) == (
        AuditStatus.RUNNING,
        AuditReport(),
        None,
    )
    await end(estate, audit_id, SPOILT)
    ended = await found(estate, audit_id)
    assert (ended.status, ended.report, ended.partition_id) == (
        AuditStatus.FINDINGS,
        SPOILT,
        "k8s-eu-north",
    )
    assert ended.finished_at == START + timedelta(seconds=60)


@pytest.mark.parametrize(
    ("report", "status"),
    [
        (AuditReport(regions=("eu-north",)), AuditStatus.CLEAN),
        (SPOILT, AuditStatus.FINDINGS),
        (failed("eu-north", "HTTP 503"), AuditStatus.FAILED),
    ],
)
async def test_the_report_decides_the_status(
    estate: Estate, report: AuditReport, status: AuditStatus
) -> None:
    audit_id = await begin(estate)
    await end(estate, audit_id, report)
    assert (await found(estate, audit_id)).status is status


async def test_beginning_and_ending_again_change_nothing(estate: Estate) -> None:
    audit_id = await begin(estate)
    await end(estate, audit_id, SPOILT)
    async with estate.engine.begin() as connection:
        await audits.add_audit(connection, TENANT, audit_id, None, START + timedelta(hours=1))
    await end(estate, audit_id, AuditReport(), seconds=120)
    kept = await found(estate, audit_id)
    assert (kept.report, kept.started_at, kept.finished_at) == (SPOILT, START, START + timedelta(seconds=60))


async def test_an_audit_of_nobody_is_unknown(estate: Estate) -> None:
    audit_id = await begin(estate)
    with pytest.raises(UnknownAudit, match="list them with GET /factory/audits"):
        await found(estate, uuid4())
    with pytest.raises(UnknownAudit):
        await found(estate, audit_id, "another-tenant")


async def test_audits_are_listed_newest_first_without_their_findings(estate: Estate) -> None:
    ids = [await begin(estate, seconds) for seconds in (0, 30, 30, 90)]
    await end(estate, ids[0], SPOILT)
    listed: list[audits.StoredAudit] = []
    before = None
    async with estate.engine.connect() as connection:
        while page := await audits.audits_before(connection, TENANT, before, 2):
            listed += page
            before = page[-1].started_at, page[-1].audit_id
    assert [one.audit_id for one in listed] == [ids[3], *sorted(ids[1:3], reverse=True), ids[0]]
    oldest = listed[-1].report
    assert (oldest.findings, oldest.findings_total, oldest.notes) == ((), 1, SPOILT.notes)


async def test_an_audit_that_nobody_will_end_is_given_up(estate: Estate) -> None:
    old, new, ended = await begin(estate), await begin(estate, 3600), await begin(estate)
    await end(estate, ended, SPOILT)
    now = START + timedelta(hours=2)
    async with estate.engine.begin() as connection:
        await audits.give_up(connection, TENANT, START + timedelta(minutes=30), now)
    statuses = [(await found(estate, one)).status for one in (old, new, ended)]
    assert statuses == [AuditStatus.FAILED, AuditStatus.RUNNING, AuditStatus.FINDINGS]
    assert "did not end" in (await found(estate, old)).report.failures[0].reason
