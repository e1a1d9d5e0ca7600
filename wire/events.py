"""Events that leave through the outbox: their topics, the stream and the CloudEvents envelope."""

from __future__ import annotations

from datetime import UTC, datetime
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
NODE_REVOKED = "compute-pools.nodes.v1.node-revoked"
NODE_NOTICE = "lifecycle.nodes.v1.notice"
NODE_DRAINED = "lifecycle.nodes.v1.drained"
NODE_OVERRUN = "lifecycle.nodes.v1.overrun"
NODE_NO_NOTICE = "lifecycle.nodes.v1.no-notice"

STREAM = "SCO_EVENTS"
STREAM_SUBJECTS = ("compute-pools.>", "lifecycle.nodes.v1.>")

SOURCE = "/sco/control-plane"
CONTENT_TYPE = "application/cloudevents+json"
SEQUENCE_DIGITS = 19


def schema_urn(topic: str) -> str:
    """The name of the schema of a topic's payload, which is its `$id` in the AsyncAPI document."""
    context, room, version, event = topic.split(".")
    return f"urn:sco:events:{context}:{room}:{version}:{event}"


def envelope(
    *,
    event_id: UUID,
    topic: str,
    key: str,
    tenant_id: str,
    sequence: int,
    payload: dict[str, Any],
    at: datetime,
) -> dict[str, Any]:
    """One event as CloudEvents 1.0 in JSON.

    `subject` is the key within the tenant. Events of one `partitionkey` come in the order of their
    `sequence`, which compares as text.
    """
    return {
        "specversion": "1.0",
        "id": str(event_id),
        "source": SOURCE,
        "type": topic,
        "subject": key,
        "time": at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        "dataschema": schema_urn(topic),
        "tenantid": tenant_id,
        "partitionkey": f"{tenant_id}/{key}",
        "sequence": f"{sequence:0{SEQUENCE_DIGITS}d}",
        "data": payload,
    }
