"""What Nova says by itself: versioned notifications, read from any bytes, and the stream that carries them.

A message is the envelope of oslo.messaging, plain or wrapped once as text under `oslo.message`. Nothing in it
is believed beyond its shape: text is cut, times are checked, and what does not fit is refused with a reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from pydantic_core import from_json

STREAM = "SCO_PROVIDER"
STREAM_SUBJECTS = ("sco.provider.*.notifications",)
# A control plane that was away for a weekend still finds what happened; older news says nothing new.
STREAM_MAX_AGE = timedelta(days=3)
STREAM_MAX_BYTES = 256 * 1024 * 1024

MAX_BYTES = 256 * 1024
MAX_NAME = 255
MAX_FAULT = 1000
_SUBJECT = re.compile(r"sco\.provider\.([a-z0-9-]{1,40})\.notifications")
_ID = re.compile(r"[0-9A-Za-z-]{1,64}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_YEARS = range(2000, 2200)


class EventKind(StrEnum):
    """What it means for a server. `errored` may be one attempt of several, `other` is not used."""

    CREATED = "created"
    DELETED = "deleted"
    ERRORED = "errored"
    STOPPED = "stopped"
    OTHER = "other"


class RefusedAs(StrEnum):
    """Why a message is not kept. `unrelated` is no fault; `store` is what the database refused."""

    SUBJECT = "subject"
    TOO_LARGE = "too_large"
    NOT_JSON = "not_json"
    ENVELOPE = "envelope"
    PAYLOAD = "payload"
    MESSAGE_ID = "message_id"
    SERVER_ID = "server_id"
    TIME = "time"
    STORE = "store"
    UNRELATED = "unrelated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One notification about one server. Batch, tenant, partition and workload are from its metadata."""

    message_id: str
    region: str
    kind: EventKind
    event_type: str
    server_id: str
    emitted_at: datetime
    state: str | None = None
    fault: str | None = None
    batch_key: str | None = None
    tenant_id: str | None = None
    partition_id: str | None = None
    workload_id: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message that cannot be used; `detail` says what was found, cut to a line."""

    reason: RefusedAs
    detail: str


class _Refused(Exception):
    def __init__(self, reason: RefusedAs, detail: object) -> None:
        super().__init__(reason)
        self.refusal = Refusal(reason, str(detail)[:200])


_KINDS = {
    "instance.create.end": EventKind.CREATED,
    "instance.create.error": EventKind.ERRORED,
    "compute_task.build_instances.error": EventKind.ERRORED,
    "instance.delete.end": EventKind.DELETED,
    "instance.soft_delete.end": EventKind.DELETED,
    "instance.power_off.end": EventKind.STOPPED,
    "instance.pause.end": EventKind.STOPPED,
    "instance.suspend.end": EventKind.STOPPED,
    "instance.shelve.end": EventKind.STOPPED,
    "instance.shelve_offload.end": EventKind.STOPPED,
}
_STATES = {
    "error": EventKind.ERRORED,
    "deleted": EventKind.DELETED,
    "soft-delete": EventKind.DELETED,
    "stopped": EventKind.STOPPED,
    "paused": EventKind.STOPPED,
    "suspended": EventKind.STOPPED,
    "shelved": EventKind.STOPPED,
    "shelved_offloaded": EventKind.STOPPED,
}


def notifications_subject(region: str) -> str:
    """The subject on which a region's notifications are published."""
    return f"sco.provider.{region}.notifications"


def parse_notification(subject: str, body: bytes) -> Notification | Refusal:
    """Read one message of the stream. Never raises: what cannot be used comes back as a refusal."""
    try:
        return _parse(subject, body)
    except _Refused as refused:
        return refused.refusal


def _parse(subject: str, body: bytes) -> Notification:
    region = _SUBJECT.fullmatch(subject)
    if region is None:
        raise _Refused(RefusedAs.SUBJECT, f"{subject!r} is not sco.provider.<region>.notifications")
    if len(body) > MAX_BYTES:
        raise _Refused(RefusedAs.TOO_LARGE, f"{len(body)} bytes, at most {MAX_BYTES} are read")
    envelope = _envelope(body)
    event_type = _text(envelope.get("event_type"), MAX_NAME)
    if event_type is None:
        raise _Refused(RefusedAs.ENVELOPE, f"event_type is {envelope.get('event_type')!r}")
    if not event_type.startswith(("instance.", "compute_task.")):
        raise _Refused(RefusedAs.UNRELATED, event_type)
    data = _data(envelope.get("payload"))
    if data is None:
        raise _Refused(RefusedAs.PAYLOAD, f"{event_type} has no nova_object.data")
    labels = _object(data.get("metadata"))
    return Notification(
        message_id=_id(envelope.get("message_id"), RefusedAs.MESSAGE_ID),
        region=region[1],
        kind=_kind(event_type, data),
        event_type=event_type,
        server_id=_id(data.get("uuid") or data.get("instance_uuid"), RefusedAs.SERVER_ID),
        emitted_at=_time(envelope.get("timestamp")),
        state=_text(data.get("state"), MAX_NAME),
        fault=_fault(data),
        batch_key=_text(labels.get("sco_batch"), MAX_NAME),
        tenant_id=_text(labels.get("sco_tenant"), MAX_NAME),
        partition_id=_text(labels.get("sco_partition"), MAX_NAME),
        workload_id=_text(labels.get("sco_workload"), MAX_NAME),
    )


def _envelope(body: bytes) -> dict[str, Any]:
    envelope = _json(body)
    if isinstance(envelope, dict) and isinstance(envelope.get("oslo.message"), str):
        envelope = _json(envelope["oslo.message"])
    if not isinstance(envelope, dict):
        raise _Refused(RefusedAs.ENVELOPE, f"a JSON {type(envelope).__name__}, not an object")
    return envelope


def _json(text: bytes | str) -> Any:
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise _Refused(RefusedAs.NOT_JSON, error) from None


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _data(payload: object) -> dict[str, Any] | None:
    """The fields of a versioned object."""
    data = _object(payload).get("nova_object.data")
    return data if isinstance(data, dict) else None


def _kind(event_type: str, data: dict[str, Any]) -> EventKind:
    """An update tells of a change of state; any failed action counts once the server itself is in error."""
    if event_type == "instance.update":
        change = _data(data.get("state_update")) or {}
        old, new = (_text(change.get(name), MAX_NAME) for name in ("old_state", "state"))
        return _STATES.get(new or "", EventKind.OTHER) if old != new else EventKind.OTHER
    if event_type.endswith(".error") and data.get("state") == "error":
        return EventKind.ERRORED
    return _KINDS.get(event_type, EventKind.OTHER)


def _fault(data: dict[str, Any]) -> str | None:
    """What went wrong, in Nova's words; tracebacks are left out."""
    for name in ("fault", "reason"):
        fault = _data(data.get(name)) or {}
        message = _text(fault.get("exception_message"), MAX_FAULT) or _text(fault.get("exception"), MAX_FAULT)
        if message is not None:
            return message
    return None


def _id(value: object, reason: RefusedAs) -> str:
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise _Refused(reason, f"{value!r} is not an identifier")
    return value


def _text(value: object, most: int) -> str | None:
    """Text that a database takes: without control characters, cut, and None where nothing is left."""
    return _CONTROL.sub(" ", value)[:most].strip() or None if isinstance(value, str) else None


def _time(value: object) -> datetime:
    """The time of sending. oslo.messaging writes UTC without saying so."""
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
        if at is not None and at.year in _YEARS:
            return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        pass
    raise _Refused(RefusedAs.TIME, f"timestamp is {value!r}")
