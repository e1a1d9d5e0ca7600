"""What the cloud tells by itself: Nova's versioned notifications, published to NATS as its bridge does.

They may be lost, come twice, late or in another order, if so asked. The cloud works the same without NATS.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import heappop, heappush
from typing import Annotated, Any
from uuid import UUID

import nats
import orjson
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from pydantic import Field

from domain.model import Frozen
from lab.cloud.cloud import Cloud
from lab.cloud.records import Server, Status
from lab.cloud.region import Region
from wire.notifications import notifications_subject

WAITING_AT_MOST = 50_000
LOOK_SECONDS = 0.1
TROUBLE_SECONDS = 1.0
PUBLISH_SECONDS = 5.0
STATES = {
    Status.BUILD: "building",
    Status.ACTIVE: "active",
    Status.SHUTOFF: "stopped",
    Status.ERROR: "error",
    Status.DELETED: "deleted",
}
POWER = {Status.ACTIVE: "running", Status.SHUTOFF: "shutdown"}
ACTIONS = {
    (Status.BUILD, Status.ACTIVE): "instance.create.end",
    (Status.ACTIVE, Status.SHUTOFF): "instance.power_off.end",
    (Status.SHUTOFF, Status.ACTIVE): "instance.power_on.end",
}
Share = Annotated[float, Field(ge=0, le=1)]
Envelope = dict[str, Any]


class NotificationFaults(Frozen):
    """Which share of the notifications is lost, sent twice, sent late, or swapped with later ones."""

    lost: Share = 0.0
    duplicated: Share = 0.0
    late: Share = 0.0
    late_seconds: Annotated[float, Field(ge=0, le=3600)] = 5.0
    reordered: Share = 0.0
    reordered_seconds: Annotated[float, Field(ge=0, le=3600)] = 0.5


@dataclass(order=True, frozen=True, slots=True)
class _Waiting:
    due: float
    number: int
    subject: str
    message_id: str
    body: bytes


class Herald:
    """Watches the servers of a cloud and tells what becomes of them, from the cloud's own event loop."""

    def __init__(
        self, cloud: Cloud, nats_url: str, *, wall_now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.faults = NotificationFaults()
        self._cloud = cloud
        self._nats_url = nats_url
        self._wall_now = wall_now
        self._rng = random.Random(f"{cloud.settings.seed}/notifications/{cloud.starts}")
        self._waiting: list[_Waiting] = []
        self._number = 0
        self._known: dict[str, Status] = {}
        for region in cloud.regions.values():
            self._known |= {server.id: server.status for server in region.servers.live()}
            region.servers.watcher = self._watcher(region)

    async def run(self) -> None:
        """Publish until cancelled. While NATS is away the newest notifications wait."""
        while True:
            try:
                await self._session()
            except (NatsError, OSError, TimeoutError):
                await asyncio.sleep(TROUBLE_SECONDS)

    async def _session(self) -> None:
        client = await nats.connect(
            self._nats_url, name="lab-cloud", connect_timeout=3, allow_reconnect=False, error_cb=_ignore
        )
        try:
            stream = client.jetstream(timeout=PUBLISH_SECONDS)
            while True:
                self._cloud.settle()
                await self._publish_due(stream)
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            with suppress(NatsError, OSError):
                await client.close()

    async def _publish_due(self, stream: JetStreamContext) -> None:
        now = time.monotonic()
        while self._waiting and self._waiting[0].due <= now:
            first = heappop(self._waiting)
            try:
                await stream.publish(first.subject, first.body, headers={"Nats-Msg-Id": first.message_id})
            except BaseException:
                heappush(self._waiting, first)
                raise

    def _watcher(self, region: Region) -> Callable[[Server], None]:
        def watch(server: Server) -> None:
            was = self._known.get(server.id)
            if server.status is Status.DELETED:
                self._known.pop(server.id, None)
            else:
                self._known[server.id] = server.status
            if was is not None and was is not server.status:
                for event_type, priority, payload in _told(region, server, was):
                    self._send(region.name, self._envelope(event_type, priority, server, payload))

        return watch

    def _envelope(self, event_type: str, priority: str, server: Server, payload: Envelope) -> Envelope:
        service = "nova-compute" if server.group is not None else "nova-conductor"
        return {
            "message_id": str(UUID(int=self._rng.getrandbits(128), version=4)),
            "publisher_id": f"{service}:{server.group or 'lab'}",
            "event_type": event_type,
            "priority": priority,
            "payload": payload,
            "timestamp": str(self._wall_now().astimezone(UTC).replace(tzinfo=None)),
        }

    def _send(self, region: str, envelope: Envelope) -> None:
        faults, chance = self.faults, self._rng.random
        if chance() < faults.lost:
            return
        copies = 2 if chance() < faults.duplicated else 1
        for copy in range(copies):
            delay = faults.late_seconds if chance() < faults.late else 0.0
            delay += faults.reordered_seconds * chance() if chance() < faults.reordered else 0.0
            self._number += 1
            heappush(
                self._waiting,
                _Waiting(
                    time.monotonic() + delay,
                    self._number,
                    notifications_subject(region),
                    # A repetition of its own to the message server, or it would be taken for one and dropped.
                    f"{envelope['message_id']}/{copy}",
                    orjson.dumps(envelope),
                ),
            )
        while len(self._waiting) > WAITING_AT_MOST:
            heappop(self._waiting)


def _told(region: Region, server: Server, was: Status) -> Iterator[tuple[str, str, Envelope]]:
    """What Nova sends, in its order, when a server changes from one status to another."""
    change: Envelope = {"old_state": STATES[was], "state": STATES[server.status]}
    change |= {"old_task_state": None, "new_task_state": server.task_state}
    facts = _facts(region, server)
    update = _object(
        "InstanceUpdatePayload",
        facts | {"state_update": _object("InstanceStateUpdatePayload", change), "old_display_name": None},
    )
    if server.status is Status.ERROR and server.fault is not None:
        fault = _fault(server.fault.message)
        if not server.fault.message.startswith("No valid host"):
            failing = facts | {"state": STATES[was], "fault": fault}
            yield "instance.create.error", "ERROR", _object("InstanceCreatePayload", failing)
        yield "instance.update", "INFO", update
        task = {"instance_uuid": server.id, "request_spec": None, "state": "error", "reason": fault}
        yield "compute_task.build_instances.error", "ERROR", _object("ComputeTaskPayload", task)
        return
    action = "instance.delete.end" if server.status is Status.DELETED else ACTIONS.get((was, server.status))
    yield "instance.update", "INFO", update
    if action is not None:
        yield action, "INFO", _object("InstanceActionPayload", facts | {"fault": None})


def _facts(region: Region, server: Server) -> Envelope:
    flavor = region.flavors[server.flavor_id]
    return {
        "uuid": server.id,
        "user_id": server.user_id,
        "tenant_id": server.project_id,
        "reservation_id": server.reservation_id,
        "display_name": server.name,
        "display_description": server.description,
        "host_name": server.hostname,
        "host": server.group,
        "node": server.group,
        "availability_zone": server.availability_zone,
        "flavor": _object("FlavorPayload", {"flavorid": flavor.id, "name": flavor.name}),
        "image_uuid": server.image_id,
        "key_name": server.key_name,
        "created_at": _time(server.created_at),
        "launched_at": _time(server.launched_at),
        "terminated_at": _time(server.terminated_at),
        "deleted_at": _time(server.terminated_at),
        "updated_at": _time(server.updated_at),
        "state": STATES[server.status],
        "power_state": POWER.get(server.status, "pending"),
        "task_state": server.task_state,
        "metadata": dict(server.metadata),
        "locked": False,
    }


def _object(name: str, data: Envelope) -> Envelope:
    return {
        "nova_object.name": name,
        "nova_object.namespace": "nova",
        "nova_object.version": "1.9",
        "nova_object.data": data,
    }


def _fault(message: str) -> Envelope:
    known = {"exception": "NovaException", "exception_message": message, "traceback": ""}
    return _object("ExceptionPayload", known | {"module_name": "nova", "function_name": "build"})


def _time(at: datetime | None) -> str | None:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at is not None else None


async def _ignore(error: Exception) -> None:
    """What goes wrong with NATS is no trouble of the cloud's."""
