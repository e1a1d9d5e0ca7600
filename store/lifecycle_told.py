"""What consumers are told of the history: the four events by which a drain is followed, once each."""

from __future__ import annotations

from collections.abc import Mapping

from domain.cause import Cause, counts_in_ledger
from domain.lifecycle import Event, EventType
from store.engine import Connection
from store.node_drains import Owner
from store.outbox import add_event
from wire.payloads import NodeDrained, NodeLifecycle, NodeNoNotice, NodeNotice, NodeOverrun

TOLD: Mapping[EventType, type[NodeLifecycle]] = {
    EventType.NOTICE: NodeNotice,
    EventType.DRAINED: NodeDrained,
    EventType.OVERRUN: NodeOverrun,
    EventType.NO_NOTICE: NodeNoNotice,
}


async def tell(connection: Connection, instance_id: str, event: Event, owner: Owner, cause: Cause) -> None:
    """Record in the outbox that an event is kept, if it is one that is told."""
    payload = TOLD.get(event.type)
    if payload is None:
        return
    said = payload(
        tenant_id=owner.tenant_id,
        event_id=event.event_id,
        instance_id=instance_id,
        region=owner.region,
        hall=owner.hall,
        pool_id=owner.pool_id,
        partition_id=owner.partition_id,
        workload_id=owner.workload_id,
        cause=cause.value,
        counts_in_ledger=counts_in_ledger(cause),
        occurred_at=event.occurred_at,
        notice_id=event.notice_id,
        notice_kind=event.notice_kind,
        deadline=event.deadline,
        seconds_since_notice=event.seconds_since_notice,
        seconds_to_spare=event.seconds_to_spare,
        detail=event.detail,
    )
    await add_event(connection, said, once=f"{instance_id}/{event.event_id}")
