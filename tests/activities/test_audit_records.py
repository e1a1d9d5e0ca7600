"""The beginning and the end of an audit in the records, in the metrics and in the log."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from activities.audit_calls import AuditClosed, AuditInput, CloseAuditRequest
from activities.auditing import CLEAN_AT, FINDINGS, GIVEN_UP_AFTER, AuditRecordsActivities
from domain.audit import AuditCounts, AuditReport, Finding, FindingKind, failed
from store import audits
from store.tables import AuditStatus
from tests.activities.deciding import Placer, halls
from tests.estates import PARTITION, TENANT, Estate, contract, demand

LOST = Finding(kind=FindingKind.LOST, subject="b-1-001", problem="it is gone", what_to_do="Look.")
CLEAN = AuditReport(regions=("eu-north",), counts=AuditCounts(servers=3, slots=3, workloads=1))
SPOILT = CLEAN.model_copy(update={"findings": (LOST,), "findings_by_kind": {FindingKind.LOST: 2}})


@pytest.fixture
def records(estate: Estate) -> AuditRecordsActivities:
    return AuditRecordsActivities(estate.engine, now=estate.clock)


@pytest.fixture(autouse=True)
def _no_audit_yet() -> None:
    FINDINGS.clear()
    CLEAN_AT.set(0)


def metric(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def lost_in_metrics() -> float | None:
    return metric("sco_audit_findings", kind="lost")


async def run(
    records: AuditRecordsActivities, report: AuditReport, partition_id: str | None = None
) -> tuple[UUID, AuditClosed]:
    asked = AuditInput(tenant_id=TENANT, audit_id=uuid4(), partition_id=partition_id)
    await records.open_audit(asked)
    return asked.audit_id, await records.close_audit(CloseAuditRequest(audit=asked, report=report))


async def status(estate: Estate, audit_id: UUID) -> AuditStatus:
    async with estate.engine.connect() as connection:
        return (await audits.find_audit(connection, TENANT, audit_id)).status


async def test_every_region_that_may_hold_something_is_opened(
    estate: Estate, records: AuditRecordsActivities
) -> None:
    """Regions of partitions, of pools that are not retired, and of slots that still live in retired ones."""
    await estate.open([*halls(1), *halls(1, region="eu-west"), *halls(1, region="eu-south")])
    await estate.rows("UPDATE pools SET state = 'retired' WHERE region = 'eu-north'")
    asked = AuditInput(tenant_id=TENANT, audit_id=uuid4())
    assert (await records.open_audit(asked)).regions == ("eu-north", "eu-south", "eu-west")
    await estate.workload("orders", contract(pool="1", group="1"))
    await estate.claim(demand(2, regions=("eu-west",)))
    await Placer(estate).decide()
    await estate.rows("UPDATE pools SET state = 'retired'")
    assert (await records.open_audit(asked)).regions == ("eu-north", "eu-west")
    assert await status(estate, asked.audit_id) is AuditStatus.RUNNING


async def test_a_report_is_kept_and_told(estate: Estate, records: AuditRecordsActivities) -> None:
    with capture_logs() as logs:
        audit_id, closed = await run(records, SPOILT)
    assert closed == AuditClosed(status="findings", findings=2)
    assert await status(estate, audit_id) is AuditStatus.FINDINGS
    (line,) = [one for one in logs if one["event"] == "audit_finished"]
    assert (line["audit"], line["status"], line["findings"]) == (str(audit_id), "findings", 2)
    assert (line["servers"], line["kinds"]) == (3, {"lost": 2})


async def test_the_gauges_are_those_of_the_last_audit_of_everything(
    estate: Estate, records: AuditRecordsActivities
) -> None:
    await run(records, SPOILT)
    assert (lost_in_metrics(), metric("sco_audit_findings", kind="orphan")) == (2, 0)
    assert metric("sco_audit_last_clean_timestamp_seconds") == 0
    await run(records, CLEAN, PARTITION)
    assert lost_in_metrics() == 2
    await run(records, CLEAN)
    assert lost_in_metrics() == 0
    assert metric("sco_audit_last_clean_timestamp_seconds") == estate.clock().timestamp()


async def test_an_audit_that_failed_leaves_the_gauges(
    estate: Estate, records: AuditRecordsActivities
) -> None:
    await run(records, SPOILT)
    audit_id, closed = await run(records, failed("eu-north", "HTTP 503"))
    assert (closed.status, lost_in_metrics()) == ("failed", 2)
    assert await status(estate, audit_id) is AuditStatus.FAILED
    assert metric("sco_audit_last_clean_timestamp_seconds") == 0


async def test_closing_again_is_harmless(estate: Estate, records: AuditRecordsActivities) -> None:
    asked = AuditInput(tenant_id=TENANT, audit_id=uuid4())
    await records.open_audit(asked)
    first = await records.close_audit(CloseAuditRequest(audit=asked, report=SPOILT))
    again = await records.close_audit(CloseAuditRequest(audit=asked, report=SPOILT))
    assert first == again


async def test_the_next_audit_ends_one_that_was_given_up(
    estate: Estate, records: AuditRecordsActivities
) -> None:
    stopped = AuditInput(tenant_id=TENANT, audit_id=uuid4())
    await records.open_audit(stopped)
    estate.clock.move(GIVEN_UP_AFTER.total_seconds() - 1)
    await run(records, CLEAN)
    assert await status(estate, stopped.audit_id) is AuditStatus.RUNNING
    estate.clock.move(2)
    await run(records, CLEAN)
    assert await status(estate, stopped.audit_id) is AuditStatus.FAILED
