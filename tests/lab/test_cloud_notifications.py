"""The cloud tells what becomes of its servers in Nova's own shape, also when it is told to do it badly."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
import pytest_asyncio
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, StreamConfig
from openstack.connection import Connection

from lab.cloud.faults import FaultKind, FaultRule
from lab.cloud.notifications import NotificationFaults
from lab.cloud.server import CloudHandle
from lab.cloud.settings import CloudSettings
from lab.stack import Stack
from tests.lab.cloud_support import BUILT, create
from tests.streams import fresh_stream, no_stream
from wire.notifications import EventKind, Notification, parse_notification

REAL = Path(__file__).parents[1] / "wire" / "data"
LABELS = {
    "sco_batch": "b-1",
    "sco_tenant": "platform",
    "sco_partition": "k8s-eu-north",
    "sco_workload": "orders",
}
PATIENCE_SECONDS = 20
STREAM = "TOLD"
SUBJECTS = ["sco.provider.>"]


class Ear:
    """A stream of the test's own, read to its end whenever it is asked for."""

    def __init__(self, stream: JetStreamContext) -> None:
        self._stream = stream
        self.bodies: list[dict[str, Any]] = []

    async def heard(self, count: int) -> list[Notification]:
        """Every notification so far, once there are at least so many."""
        pull = await self._stream.pull_subscribe("sco.provider.>", stream=STREAM, config=ConsumerConfig())
        found: list[Notification] = []
        self.bodies = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(found) < count:
                try:
                    messages = await pull.fetch(500, timeout=0.3)
                except nats.errors.TimeoutError:
                    continue
                for message in messages:
                    one = parse_notification(message.subject, message.data)
                    assert isinstance(one, Notification), one
                    found.append(one)
                    self.bodies.append(json.loads(message.data))
        await pull.unsubscribe()
        return found


@pytest_asyncio.fixture
async def ear(stack: Stack) -> AsyncIterator[Ear]:
    client = await nats.connect(stack.nats_url)
    stream = client.jetstream()
    await fresh_stream(stream, StreamConfig(name=STREAM, subjects=SUBJECTS))
    yield Ear(stream)
    await stream.delete_stream(STREAM)
    await client.close()


@pytest.fixture
def cloud(stack: Stack) -> Iterator[CloudHandle]:
    with CloudHandle.start_in_thread(CloudSettings(speed=0, nats_url=stack.nats_url)) as handle:
        yield handle


def start(cloud: CloudHandle, count: int = 1) -> list[str]:
    connection = cloud.connect()
    made = [create(connection, name=f"node-{number}", metadata=LABELS).id for number in range(count)]
    cloud.admin.advance(BUILT)
    return made


def kinds(told: list[Notification]) -> list[EventKind]:
    return [one.kind for one in told if one.kind is not EventKind.OTHER]


async def test_a_life_is_told_from_the_first_to_the_last(cloud: CloudHandle, ear: Ear) -> None:
    (server,) = await asyncio.to_thread(start, cloud)
    connection: Connection = await asyncio.to_thread(cloud.connect)
    await asyncio.to_thread(connection.compute.stop_server, server)
    await asyncio.to_thread(connection.compute.delete_server, server)
    await asyncio.to_thread(cloud.admin.advance, BUILT)
    told = await ear.heard(6)
    assert kinds(told) == [EventKind.CREATED, *[EventKind.STOPPED] * 2, *[EventKind.DELETED] * 2]
    assert {one.server_id for one in told} == {server}
    assert {(one.region, one.batch_key, one.tenant_id) for one in told} == {("eu-north", "b-1", "platform")}
    assert len({one.message_id for one in told}) == len(told)


async def test_the_shape_is_nova_s(cloud: CloudHandle, ear: Ear) -> None:
    """Envelope and payload hold what a real Nova sent, and nothing that it would not send."""
    (server,) = await asyncio.to_thread(start, cloud)
    await asyncio.to_thread(cloud.admin.terminate, server)
    await ear.heard(4)
    for name, event_type in (
        ("create-end", "instance.create.end"),
        ("update-deleted", "instance.update"),
        ("delete-end", "instance.delete.end"),
    ):
        real = json.loads((REAL / f"{name}.json").read_text())
        mine = next(body for body in reversed(ear.bodies) if body["event_type"] == event_type)
        assert set(mine) == set(real)
        data = mine["payload"]["nova_object.data"]
        assert set(data) <= set(real["payload"]["nova_object.data"])
        assert set(mine["payload"]) == set(real["payload"])


async def test_what_the_provider_takes_is_told(cloud: CloudHandle, ear: Ear) -> None:
    servers = await asyncio.to_thread(start, cloud, 3)
    for server in servers:
        await asyncio.to_thread(cloud.admin.terminate, server)
    told = await ear.heard(12)
    deleted = Counter(one.server_id for one in told if one.event_type == "instance.delete.end")
    assert deleted == Counter(servers)


@pytest.mark.parametrize(
    ("kind", "events"),
    [
        (FaultKind.NO_VALID_HOST, ["instance.update", "compute_task.build_instances.error"]),
        (
            FaultKind.BUILD_ERROR,
            ["instance.create.error", "instance.update", "compute_task.build_instances.error"],
        ),
    ],
)
async def test_a_failure_is_told_with_its_reason(
    cloud: CloudHandle, ear: Ear, kind: FaultKind, events: list[str]
) -> None:
    await asyncio.to_thread(cloud.admin.add_fault, FaultRule(kind=kind))
    await asyncio.to_thread(start, cloud)
    told = await ear.heard(len(events))
    assert [one.event_type for one in told] == events
    assert {one.kind for one in told} == {EventKind.ERRORED}
    assert all(one.fault for one in told if one.event_type != "instance.update")


async def test_notifications_can_be_lost(cloud: CloudHandle, ear: Ear) -> None:
    await asyncio.to_thread(cloud.admin.set_notification_faults, NotificationFaults(lost=1))
    servers = await asyncio.to_thread(start, cloud, 3)
    await asyncio.to_thread(cloud.admin.set_notification_faults, NotificationFaults())
    await asyncio.to_thread(cloud.admin.terminate, servers[0])
    assert {one.kind for one in await ear.heard(2)} == {EventKind.DELETED}


async def test_notifications_can_come_twice_late_and_in_any_order(cloud: CloudHandle, ear: Ear) -> None:
    faults = NotificationFaults(duplicated=1, reordered=1, late=0.5, late_seconds=0.5)
    await asyncio.to_thread(cloud.admin.set_notification_faults, faults)
    servers = await asyncio.to_thread(start, cloud, 10)
    told = await ear.heard(40)
    assert set(Counter(one.message_id for one in told).values()) == {2}
    assert {one.server_id for one in told} == set(servers)
    assert [one.emitted_at for one in told] != sorted(one.emitted_at for one in told)


async def test_without_a_stream_they_wait(cloud: CloudHandle, stack: Stack) -> None:
    """Nobody has made the stream yet; the cloud serves, and tells once there is one."""
    client = await nats.connect(stack.nats_url)
    stream = client.jetstream()
    await no_stream(stream, SUBJECTS)
    (server,) = await asyncio.to_thread(start, cloud)
    await fresh_stream(stream, StreamConfig(name=STREAM, subjects=SUBJECTS))
    try:
        assert {one.server_id for one in await Ear(stream).heard(2)} == {server}
    finally:
        await stream.delete_stream(STREAM)
        await client.close()


def test_without_a_message_server_the_cloud_is_not_hurt() -> None:
    settings = CloudSettings(speed=0, nats_url="nats://127.0.0.1:1")
    with CloudHandle.start_in_thread(settings) as cloud:
        servers = start(cloud, 3)
        connection = cloud.connect()
        assert {connection.compute.get_server(each).status for each in servers} == {"ACTIVE"}


def test_a_cloud_without_notifications_says_so() -> None:
    with (
        CloudHandle.start_in_thread(CloudSettings(speed=0)) as cloud,
        pytest.raises(ValueError, match="nats-url"),
    ):
        cloud.admin.set_notification_faults(NotificationFaults())
