"""Notifications as Nova sends them, made to measure."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import count
from typing import Any
from uuid import UUID

from wire.notifications import notifications_subject

REGION = "eu-north"
SUBJECT = notifications_subject(REGION)
SENT = datetime(2030, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
_numbers = count(1)


def server(number: int) -> str:
    return str(UUID(int=number))


def versioned(name: str, data: dict[str, Any]) -> dict[str, Any]:
    return {
        "nova_object.name": name,
        "nova_object.namespace": "nova",
        "nova_object.version": "1.9",
        "nova_object.data": data,
    }


def message(
    event_type: str = "instance.delete.end",
    server_id: str = "",
    *,
    message_id: str = "",
    at: datetime = SENT,
    batch: str | None = "b-1",
    tenant: str = "platform",
    fault: str | None = None,
    **data: Any,
) -> dict[str, Any]:
    """The envelope of one notification; every one has a message id of its own."""
    labels = {
        "sco_batch": batch,
        "sco_tenant": tenant,
        "sco_partition": "k8s-eu-north",
        "sco_workload": "orders",
    }
    content = {
        "uuid": server_id or server(1),
        "state": "deleted",
        "metadata": labels if batch is not None else {},
        "fault": versioned("ExceptionPayload", {"exception_message": fault}) if fault else None,
        **data,
    }
    return {
        "message_id": message_id or str(UUID(int=next(_numbers), version=4)),
        "publisher_id": "nova-compute:compute",
        "event_type": event_type,
        "priority": "INFO",
        "payload": versioned("InstanceActionPayload", content),
        "timestamp": at.astimezone(UTC).replace(tzinfo=None).isoformat(" "),
    }


def updated(old: str | None, new: str | None, **data: Any) -> dict[str, Any]:
    change = versioned("InstanceStateUpdatePayload", {"old_state": old, "state": new})
    return message("instance.update", state=new, state_update=change, **data)


def plain(envelope: object) -> bytes:
    return json.dumps(envelope).encode()


def wrapped(envelope: object) -> bytes:
    """As it lies on the message bus: JSON in JSON."""
    return json.dumps({"oslo.version": "2.0", "oslo.message": json.dumps(envelope)}).encode()
