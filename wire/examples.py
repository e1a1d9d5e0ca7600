"""One example of each event, as the description of the events shows it."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from wire.payloads import (
    Change,
    ComputePoolChanged,
    ComputePoolDrained,
    ComputePoolRegistered,
    ComputePoolStateChanged,
    ModelEvicted,
    ModelWarmed,
    NodeDrained,
    NodeNoNotice,
    NodeNotice,
    NodeOverrun,
    NodeRevoked,
    Payload,
    PlacementDecided,
    PlacementFinished,
    PlanCommitted,
)

TENANT = "platform"
POOL = "eu-north-h1-g2-m"
WORKLOAD = "orders-daily"
MODEL = "llama-3-70b"
PLACEMENT = UUID("0b8f5d5e-2f0a-4c39-9a37-6f1d2f4f1c11")
NODE = {
    "tenant_id": TENANT,
    "instance_id": "2f0d9d0e-6a3b-4a0e-9f43-0a6c1d6f2a11",
    "region": "eu-north",
    "hall": "eu-north-h1",
    "pool_id": "eu-north-h1-gp-m",
    "partition_id": "k8s-eu-north",
    "workload_id": WORKLOAD,
}
NOTICE = UUID("9c1f2b34-7d5e-4f60-8a1b-2c3d4e5f6a7b")
DEADLINE = datetime(2030, 1, 1, 12, 2, tzinfo=UTC)

EXAMPLES: tuple[Payload, ...] = (
    ComputePoolRegistered(
        tenant_id=TENANT,
        pool_id=POOL,
        kind="cloud_gpu",
        region="eu-north",
        security_boundary="regional",
        hall="eu-north-h1",
        sku_family="g2",
        size="m",
        purchase_model="guaranteed",
        group_id="eu-north-h1-a3",
        registered_by="ada",
    ),
    ComputePoolStateChanged(
        tenant_id=TENANT, pool_id=POOL, from_state="draft", to_state="active", version=2, changed_by="ada"
    ),
    ComputePoolChanged(
        tenant_id=TENANT,
        pool_id=POOL,
        version=3,
        changes=(
            Change(name="pricePerHourUsd", old="3.100000", new="2.900000"),
            Change(name="coldStartSeconds", old=0, new=90),
        ),
        changed_by="grace",
    ),
    ComputePoolDrained(
        tenant_id=TENANT,
        pool_id=POOL,
        draining_since=datetime(2030, 1, 1, 11, 30, tzinfo=UTC),
        drained_at=datetime(2030, 1, 1, 12, tzinfo=UTC),
    ),
    ModelWarmed(tenant_id=TENANT, pool_id=POOL, model=MODEL, vram_gb=70),
    ModelEvicted(tenant_id=TENANT, pool_id=POOL, model=MODEL, reason="drained"),
    PlacementDecided(
        tenant_id="acme",
        placement_id=PLACEMENT,
        deployment_id="assistant-private",
        chosen_pool_id=POOL,
        chosen_pool_tenant_id=TENANT,
        outcome="placed",
    ),
    PlanCommitted(
        tenant_id=TENANT,
        placement_id=PLACEMENT,
        workload_id=WORKLOAD,
        generation=3,
        outcome="shortfall",
        units=40,
        placed_units=38,
    ),
    PlacementFinished(
        tenant_id=TENANT,
        workload_id=WORKLOAD,
        phase="shortfall",
        units=40,
        placed_units=38,
        active_instances=38,
        shortfall_units=2,
        shortfall_reason="capacity",
    ),
    NodeRevoked(**NODE, revoked_at=datetime(2030, 1, 1, 12, tzinfo=UTC), revoked_by="ada"),
    NodeNotice(
        **NODE,
        event_id=UUID("3d0b3c52-0c1f-4d59-9a0f-5a1f0c2b7e01"),
        cause="reclaim",
        counts_in_ledger=True,
        occurred_at=datetime(2030, 1, 1, 12, tzinfo=UTC),
        notice_id=NOTICE,
        notice_kind="hard",
        deadline=DEADLINE,
        seconds_since_notice=0.0,
    ),
    NodeDrained(
        **NODE,
        event_id=UUID("3d0b3c52-0c1f-4d59-9a0f-5a1f0c2b7e02"),
        cause="reclaim",
        counts_in_ledger=True,
        occurred_at=datetime(2030, 1, 1, 12, 0, 36, 900_000, tzinfo=UTC),
        notice_id=NOTICE,
        notice_kind="hard",
        deadline=DEADLINE,
        seconds_since_notice=36.9,
        seconds_to_spare=83.1,
    ),
    NodeOverrun(
        **NODE,
        event_id=UUID("3d0b3c52-0c1f-4d59-9a0f-5a1f0c2b7e03"),
        cause="reclaim",
        counts_in_ledger=True,
        occurred_at=datetime(2030, 1, 1, 12, 1, 58, tzinfo=UTC),
        notice_id=NOTICE,
        notice_kind="hard",
        deadline=DEADLINE,
        seconds_since_notice=118.0,
        seconds_to_spare=2.0,
        detail="3 processes of orders-daily",
    ),
    NodeNoNotice(
        **NODE,
        event_id=UUID("3d0b3c52-0c1f-4d59-9a0f-5a1f0c2b7e04"),
        cause="unknown",
        counts_in_ledger=False,
        occurred_at=datetime(2030, 1, 1, 12, tzinfo=UTC),
        detail="its server is not listed any more",
    ),
)
