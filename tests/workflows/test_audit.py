"""The promise of an audit: every region is looked at, one report is kept, and what was not seen shows."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHandle

from activities.audit_calls import AUDIT_REGION, CLOSE_AUDIT, OPEN_AUDIT, AuditClosed, AuditInput
from activities.audit_start import start_audit
from domain.audit import Verdict
from domain.ids import audit_workflow_id
from tests.workflows.chronicle import asked, chronicle
from tests.workflows.fake_hands import PATIENCE_SECONDS, TENANT, FakeHands, Stage
from workflows import terms

Handle = WorkflowHandle[object, AuditClosed]


def hands() -> FakeHands:
    return FakeHands(("here", "there"))


async def begin(stage: Stage, own: FakeHands, audit_id: UUID | None = None, **options: str) -> Handle:
    request = AuditInput(tenant_id=TENANT, audit_id=audit_id or uuid4(), **options)
    workflow_id = await start_audit(stage.client, request, own.partition)
    return stage.client.get_workflow_handle(workflow_id, result_type=AuditClosed)


async def ended(handle: Handle) -> AuditClosed:
    return await asyncio.wait_for(handle.result(), PATIENCE_SECONDS)


async def test_every_region_is_looked_at_and_one_report_is_kept(stage: Stage) -> None:
    async with stage.playing(hands()) as own:
        handle = await begin(stage, own)
        closed = await ended(handle)
    assert closed == AuditClosed(status="clean", findings=0)
    (report,) = own.auditing.kept
    assert (report.regions, report.counts.servers) == (tuple(sorted(own.regions)), 20)
    told = chronicle(await handle.fetch_history())
    assert told[:2] == [f"+{OPEN_AUDIT}", f"-{OPEN_AUDIT}"]
    assert told[2:4] == [f"+{AUDIT_REGION}"] * 2
    assert told[-2:] == [f"+{CLOSE_AUDIT}", f"-{CLOSE_AUDIT}"]


async def test_findings_of_any_region_count(stage: Stage) -> None:
    async with stage.playing(hands()) as own:
        own.auditing.spoilt = frozenset(own.regions[:1])
        closed = await ended(await begin(stage, own))
    assert closed == AuditClosed(status="findings", findings=1)


async def test_a_region_that_does_not_answer_fails_the_audit_and_hides_nothing(stage: Stage) -> None:
    async with stage.playing(hands()) as own:
        own.auditing.silent = frozenset(own.regions[:1])
        own.auditing.spoilt = frozenset(own.regions[1:])
        closed = await ended(await begin(stage, own))
    assert closed == AuditClosed(status="failed", findings=1)
    (report,) = own.auditing.kept
    assert [(one.region, one.reason) for one in report.failures] == [(own.regions[0], "HTTP 503")]


async def test_a_region_without_a_worker_fails_the_audit(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terms, "AUDIT_PATIENCE", timedelta(seconds=1))
    async with stage.playing(hands(), sandbox=False) as own:
        own.auditing._regions = (*own.regions, f"nowhere-{own.tag}")
        closed = await ended(await begin(stage, own))
    (report,) = own.auditing.kept
    assert closed.status == "failed"
    assert report.verdict is Verdict.FAILED
    assert [one.reason for one in report.failures] == ["no worker of the region answered within 0:00:01"]


async def test_without_a_region_there_is_nothing_wrong(stage: Stage) -> None:
    async with stage.playing(FakeHands(())) as own:
        assert await ended(await begin(stage, own)) == AuditClosed(status="clean", findings=0)


async def test_a_partition_is_passed_on(stage: Stage) -> None:
    async with stage.playing(hands()) as own:
        await ended(await begin(stage, own, partition_id=own.partition))
    of_regions = [request for name, request in own.calls if name == AUDIT_REGION]
    assert {one.partition_id for one in of_regions} == {own.partition}
    assert {one.region for one in of_regions} == set(own.regions)


async def test_starting_the_same_audit_twice_runs_it_once(stage: Stage) -> None:
    audit_id = uuid4()
    async with stage.playing(hands()) as own:
        first = await begin(stage, own, audit_id)
        again = await begin(stage, own, audit_id)
        await ended(first)
        await begin(stage, own, audit_id)
        assert again.id == first.id == audit_workflow_id(audit_id)
        assert own.counts[OPEN_AUDIT] == 1


async def test_it_says_what_it_does_and_what_came_of_it(stage: Stage) -> None:
    async with stage.playing(hands()) as own:
        own.hold(AUDIT_REGION)
        own.auditing.silent = frozenset(own.regions[:1])
        handle = await begin(stage, own)
        await own.until(AUDIT_REGION)
        description = await handle.describe()
        assert await description.static_summary() == "Audit everything"
        assert await current_details(handle) == f"looking at {', '.join(own.regions)}"
        own.let_go(AUDIT_REGION)
        await ended(handle)
        told = await current_details(handle)
    assert told == (
        f"failed: findings 0; looked at servers 10, slots 10, workloads 1; {own.regions[0]}: HTTP 503"
    )


async def current_details(handle: Handle) -> str:
    metadata: Any = await handle.query("__temporal_workflow_metadata")
    return str(metadata.current_details)


async def test_a_region_is_waited_for_within_its_terms(stage: Stage) -> None:
    async with stage.playing(hands()) as own:
        handle = await begin(stage, own)
        await ended(handle)
    regions = [one for one in asked(await handle.fetch_history()) if one.activity_type.name == AUDIT_REGION]
    assert {one.task_queue.name for one in regions} == {f"provider-{region}" for region in own.regions}
    for one in regions:
        assert one.start_to_close_timeout.ToTimedelta() == terms.AUDIT_TIMEOUT
        assert one.schedule_to_close_timeout.ToTimedelta() == terms.AUDIT_PATIENCE


async def test_a_cancelled_audit_keeps_no_report(stage: Stage) -> None:
    async with stage.playing(hands()) as own:
        own.hold(AUDIT_REGION)
        handle = await begin(stage, own)
        await own.until(AUDIT_REGION)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await ended(handle)
        own.let_go(AUDIT_REGION)
    assert own.auditing.kept == []
