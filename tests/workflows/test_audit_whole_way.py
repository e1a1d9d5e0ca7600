"""An audit of a whole world: real workers, records and servers, from the start to the kept report."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import psycopg

from activities.audit_calls import AuditClosed, AuditInput
from activities.audit_start import start_audit
from domain.audit import FindingKind
from lab.seed import TENANT
from store import audits
from store.audits import StoredAudit
from store.tables import AuditStatus
from tests.world import PARTITION, PATIENCE_SECONDS, World

RELABEL = "UPDATE audit_log SET action = %s WHERE workload_id = %s AND action = %s"


async def audited(world: World, partition_id: str | None = None) -> StoredAudit:
    """The report of an audit that was started as the API starts it."""
    audit_id = uuid4()
    await begin(world, audit_id, partition_id)
    async with world.engine.connect() as connection:
        return await audits.find_audit(connection, TENANT, audit_id)


async def begin(world: World, audit_id: UUID, partition_id: str | None) -> None:
    request = AuditInput(tenant_id=TENANT, audit_id=audit_id, partition_id=partition_id)
    workflow_id = await start_audit(world.client, request, PARTITION)
    handle = world.client.get_workflow_handle(workflow_id, result_type=AuditClosed)
    await asyncio.wait_for(handle.result(), PATIENCE_SECONDS)


async def test_a_world_that_was_placed_is_clean_in_every_region(world: World) -> None:
    workload = await world.workload()
    await world.place(workload, 12)
    told = await audited(world)
    assert (told.status, told.report.findings) == (AuditStatus.CLEAN, ())
    assert set(told.report.regions) == set(world.settings.regions)
    servers = [one for one in world.cloud.admin.servers() if one["status"] != "DELETED"]
    assert told.report.counts.servers == told.report.counts.slots == len(servers)
    assert told.finished_at is not None


async def test_what_nobody_logged_is_found_in_its_partition(world: World) -> None:
    workload = await world.workload()
    await world.place(workload, 3)
    with psycopg.connect(world.dsn, autocommit=True) as owner:
        owner.execute("SET session_replication_role = replica")
        owner.execute(RELABEL, ["renew_lease", workload, "launch"])
        told, elsewhere = await audited(world, PARTITION), await audited(world, "slurm-eu-west")
        owner.execute(RELABEL, ["launch", workload, "renew_lease"])
    assert told.status is AuditStatus.FINDINGS
    assert {(one.kind, one.workload_id) for one in told.report.findings} == {(FindingKind.UNLOGGED, workload)}
    assert (elsewhere.status, elsewhere.report.counts.servers) == (AuditStatus.CLEAN, 0)
