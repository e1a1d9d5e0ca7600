"""Lifecycle events: what happened to an instance and its work, in the words of who saw it."""

from __future__ import annotations

from datetime import UTC
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field, ValidationError

from wire.node import Hall, InstanceId, Letter, Moment, Name
from wire.notices import NoticeKind

TOPIC_PREFIX = "lifecycle.nodes.v1"
CONTENT_TYPE = "application/cloudevents+json"
MAX_BYTES = 32 * 1024
MAX_DETAIL = 500


class EventType(StrEnum):
    """What happened. The first four end up in every account of a drain; the others tell how it went."""

    NOTICE = "notice"
    DRAINED = "drained"
    OVERRUN = "overrun"
    NO_NOTICE = "no_notice"
    SIGNALLED = "signalled"
    CHECKPOINTED = "checkpointed"
    CHECKPOINT_FAILED = "checkpoint_failed"
    WORK_ENDED = "work_ended"
    WITHDRAWN = "withdrawn"
    REFUSED = "refused"
    READY = "ready"
    GAP = "gap"


class Cause(StrEnum):
    """Why an instance or its work ended. What is not known stays unknown."""

    RECLAIM = "reclaim"
    DEFECT = "defect"
    OPERATOR = "operator"
    DRILL = "drill"
    UNKNOWN = "unknown"


class LifecycleEvent(Letter):
    """One event. `sequence` counts what one instance said, from 1; ids are never used twice.

    `seconds_to_spare` is what was left until the deadline; `seconds_since_notice` runs on the instance's
    own steady clock, so it is right even where `occurred_at` is not. `path` is the way: by which a notice
    came (`push` or `poll`), or by which the work was told. An advisory notice that begins no drain has no
    `seconds_since_notice`.
    """

    event_id: UUID
    type: EventType
    cause: Cause = Cause.UNKNOWN
    tenant_id: Name
    region: Name
    hall: Hall
    instance_id: InstanceId
    pool_id: Name
    partition_id: Name
    workload_id: Name
    sequence: Annotated[int, Field(ge=0, lt=2**53)] = 0
    occurred_at: Moment
    notice_id: UUID | None = None
    notice_kind: Literal[NoticeKind.HARD, NoticeKind.ADVISORY] | None = None
    deadline: Moment | None = None
    path: Annotated[str, Field(max_length=40)] | None = None
    seconds_since_notice: Annotated[float, Field(ge=0, le=1e7)] | None = None
    seconds_to_spare: Annotated[float, Field(ge=-1e7, le=1e7)] | None = None
    exit_code: Annotated[int, Field(ge=-255, le=255)] | None = None
    wasted_vcpu_seconds: Annotated[float, Field(ge=0, le=1e12)] | None = None
    lost_events: Annotated[int, Field(ge=0)] | None = None
    detail: Annotated[str, Field(max_length=MAX_DETAIL)] = ""


def topic(event: LifecycleEvent) -> str:
    return f"{TOPIC_PREFIX}.{event.type.replace('_', '-')}"


def envelope(event: LifecycleEvent) -> dict[str, Any]:
    """The event as CloudEvents 1.0 in JSON; its source is the instance that it concerns."""
    return {
        "specversion": "1.0",
        "id": str(event.event_id),
        "source": f"/sco/nodes/{event.instance_id}",
        "type": topic(event),
        "subject": event.instance_id,
        "time": event.occurred_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        "tenantid": event.tenant_id,
        "partitionkey": event.instance_id,
        "data": event.model_dump(mode="json", by_alias=True, exclude_none=True),
    }


def read_event(raw: bytes) -> LifecycleEvent | str:
    """The event of an envelope, or what is wrong with it in one line. Never raises."""
    if len(raw) > MAX_BYTES:
        return f"{len(raw)} bytes, at most {MAX_BYTES} are read"
    try:
        return _Envelope.model_validate_json(raw).data
    except (ValidationError, RecursionError) as error:
        if isinstance(error, RecursionError):
            return "nested too deeply"
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"[:MAX_DETAIL]


class _Envelope(Letter):
    data: LifecycleEvent


class Receipt(Letter):
    """Events of one instance that the history keeps: the instance need not keep them any longer."""

    event_ids: Annotated[tuple[UUID, ...], Field(max_length=1000)]
