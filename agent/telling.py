"""What happened on this node, as events in the words of the bundle that was in force."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4, uuid5

from agent.bounded import describe
from agent.clock import Clock, ProviderClock
from wire.bundle import Bundle
from wire.lifecycle import Cause, EventType, LifecycleEvent
from wire.notices import Notice

SPACE = UUID("5c0f1ee7-0000-4000-8000-00000000a9e7")
log = logging.getLogger("sco.agent")


class Telling:
    """Makes events and hands them to the spool."""

    def __init__(
        self,
        bundle: Callable[[], Bundle | None],
        append: Callable[[LifecycleEvent], None],
        clock: Clock,
        provider: ProviderClock,
    ) -> None:
        self._bundle, self._append, self._clock, self._provider = bundle, append, clock, provider

    def tell(self, type: EventType, **fields: Any) -> None:
        """Keep one event. Fields are those of LifecycleEvent. Never raises and never waits."""
        try:
            event = self.event(type, **fields)
            if event is None:
                log.warning("%s is not told: without a bundle the node does not know whose it is", type)
                return
            self._append(event)
        except Exception as error:
            log.error("%s could not be told: %s", type, describe(error))

    def event(self, type: EventType, **fields: Any) -> LifecycleEvent | None:
        """One event of this node; None while no bundle says whose node it is."""
        bundle = self._bundle()
        if bundle is None:
            return None
        known: dict[str, Any] = {
            "type": type,
            "tenant_id": bundle.tenant_id,
            "region": bundle.region,
            "hall": bundle.hall,
            "instance_id": bundle.instance_id,
            "pool_id": bundle.pool_id,
            "partition_id": bundle.partition_id,
            "workload_id": bundle.workload_id,
            "occurred_at": self._provider.now() or self._clock.wall(),
        }
        if "event_id" not in fields:
            known["event_id"] = uuid4()
        return LifecycleEvent.model_validate(known | fields)


def of_notice(notice: Notice) -> dict[str, Any]:
    """What every event of a drain says about the notice that it is due to."""
    return {
        "notice_id": notice.notice_id,
        "notice_kind": notice.kind,
        "deadline": notice.deadline,
        "cause": Cause(notice.cause),
    }


def once(notice: Notice, type: EventType, detail: str = "") -> UUID:
    """The id of what happens once in a drain: equal when it is told again after a restart."""
    return uuid5(SPACE, f"{notice.notice_id}/{notice.instance_id}/{type}/{detail}")
