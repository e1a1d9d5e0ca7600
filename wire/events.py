"""Events that leave through the outbox: topics, payloads and the CloudEvents envelope."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

POOL_REGISTERED = "compute-pools.pools.v1.compute-pool-registered"
POOL_STATE_CHANGED = "compute-pools.pools.v1.compute-pool-state-changed"
POOL_CHANGED = "compute-pools.pools.v1.compute-pool-changed"
POOL_DRAINED = "compute-pools.pools.v1.compute-pool-drained"
MODEL_WARMED = "compute-pools.cache.v1.model-warmed"
MODEL_EVICTED = "compute-pools.cache.v1.model-evicted"
PLACEMENT_DECIDED = "compute-pools.placement.v1.placement-decided"
PLAN_COMMITTED = "compute-pools.placement.v1.plan-committed"
PLACEMENT_FINISHED = "compute-pools.placement.v1.placement-finished"

STREAM = "SCO_EVENTS"
STREAM_SUBJECTS = ("compute-pools.>",)


def envelope(
    *, event_id: UUID, topic: str, key: str, tenant_id: str, payload: dict[str, Any], at: datetime
) -> dict[str, Any]:
    """One event as CloudEvents 1.0 in JSON; `subject` is the key that orders events of one aggregate."""
    return {
        "specversion": "1.0",
        "id": str(event_id),
        "source": "/sco/control-plane",
        "type": topic,
        "subject": key,
        "time": at.isoformat(),
        "datacontenttype": "application/json",
        "tenantid": tenant_id,
        "data": payload,
    }
