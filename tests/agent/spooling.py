"""Events and spools for the tests of what the node has to tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from agent.spool import LIMIT_BYTES, MEMORY_EVENTS, Spool
from agent.spool_policy import Loss, Spooled
from wire.lifecycle import EventType, LifecycleEvent

PATIENCE_SECONDS = 20.0
HALL, INSTANCE = "hall-a", "instance-1"


def event(kind: EventType = EventType.READY, detail: str = "", lost: int | None = None) -> LifecycleEvent:
    return LifecycleEvent(
        event_id=uuid4(),
        type=kind,
        tenant_id="tenant",
        region="eu-west",
        hall=HALL,
        instance_id=INSTANCE,
        pool_id="pool",
        partition_id="partition",
        workload_id="workload",
        occurred_at=datetime(2030, 1, 1, tzinfo=UTC),
        detail=detail,
        lost_events=lost,
    )


def gap(loss: Loss) -> LifecycleEvent:
    return event(EventType.GAP, loss.detail(), loss.events)


def started(path: Path, *, limit_bytes: int = LIMIT_BYTES, memory_events: int = MEMORY_EVENTS) -> Spool:
    spool = Spool(path, gap, limit_bytes=limit_bytes, memory_events=memory_events)
    spool.start()
    return spool


async def waiting(spool: Spool, limit: int = 100_000) -> list[Spooled]:
    return await asyncio.wait_for(spool.pending(limit), PATIENCE_SECONDS)


def told(spooled: Sequence[Spooled]) -> list[LifecycleEvent]:
    events = [one.event() for one in spooled]
    assert None not in events
    return [one for one in events if one is not None]


def own(events: Sequence[LifecycleEvent]) -> list[LifecycleEvent]:
    """Without the gaps that the spool adds."""
    return [one for one in events if one.type is not EventType.GAP]


async def until(condition: Callable[[], bool], what: str) -> None:
    for _ in range(int(PATIENCE_SECONDS / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"never: {what}")


def bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def overwrite(file: Path) -> None:
    """In place, as a broken disk does under an open file."""
    with file.open("r+b") as opened:
        opened.write(b"\xa5" * file.stat().st_size)
