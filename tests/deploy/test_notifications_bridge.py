"""The bridge as a process of its own: everything that a file tells reaches the stream, and nothing twice."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.js.api import StreamConfig

from lab.stack import Stack
from tests.stack_fixtures import new_folder
from tests.streams import fresh_stream
from tests.wire.messages import message, server, versioned
from wire.notifications import STREAM, STREAM_SUBJECTS, Notification, parse_notification

BRIDGE = Path(__file__).parents[2] / "deploy" / "notifications_bridge" / "bridge.py"
REAL = Path(__file__).parents[1] / "wire" / "data"
PATIENCE_SECONDS = 40


@pytest.fixture(scope="module")
def own_stack() -> Iterator[Stack]:
    """A stack whose NATS may be killed."""
    folder = new_folder()
    own = Stack.start(folder / "lab")
    yield own
    own.stop()
    shutil.rmtree(folder)


@pytest_asyncio.fixture
async def client(own_stack: Stack) -> AsyncIterator[Client]:
    connected = await nats.connect(own_stack.nats_url)
    await make_stream(connected)
    yield connected
    await connected.jetstream().delete_stream(STREAM)
    await connected.close()


async def make_stream(client: Client) -> None:
    await fresh_stream(client.jetstream(), StreamConfig(name=STREAM, subjects=list(STREAM_SUBJECTS)))


@contextmanager
def bridge(own_stack: Stack, jsonl: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A running bridge, told to stop in the end."""
    process = subprocess.Popen(
        [sys.executable, str(BRIDGE), "--region", "eu-north", "--jsonl", str(jsonl), *options],
        env={**os.environ, "NATS_URL": own_stack.nats_url},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode in (0, -signal.SIGKILL)


def write(path: Path, *envelopes: Any) -> None:
    with path.open("a") as file:
        for envelope in envelopes:
            file.write((envelope if isinstance(envelope, str) else json.dumps(envelope)) + "\n")


async def arrived(client: Client, count: int, *, settle: float = 0.3) -> list[Notification]:
    """Every message of the stream, once there are so many, and a moment later."""
    stream = client.jetstream()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (await stream.stream_info(STREAM)).state.messages < count:
        assert time.monotonic() < deadline, "they did not arrive"
        await asyncio.sleep(0.02)
    await asyncio.sleep(settle)
    found = []
    for sequence in range(1, (await stream.stream_info(STREAM)).state.last_seq + 1):
        raw = await stream.get_msg(STREAM, sequence)
        one = parse_notification(raw.subject or "", raw.data or b"")
        assert isinstance(one, Notification), one
        found.append(one)
    return found


async def test_a_file_is_followed_as_it_grows(client: Client, own_stack: Stack, tmp_path: Path) -> None:
    path = tmp_path / "told.jsonl"
    with bridge(own_stack, path):
        write(path, json.loads((REAL / "create-end.json").read_text()), message(server_id=server(2)))
        assert len(await arrived(client, 2)) == 2
        with path.open("a") as file:
            half = json.dumps(message(server_id=server(3)))
            file.write(half[:100])
            file.flush()
            await asyncio.sleep(0.5)
            file.write(half[100:] + "\n")
        found = await arrived(client, 3)
    assert [one.server_id for one in found[1:]] == [server(2), server(3)]
    assert {one.region for one in found} == {"eu-north"}


async def test_what_is_broken_unrelated_or_of_others_is_left_out(
    client: Client, own_stack: Stack, tmp_path: Path
) -> None:
    path = tmp_path / "told.jsonl"
    failed = versioned(
        "ComputeTaskPayload",
        {
            "instance_uuid": server(4),
            "request_spec": versioned("RequestSpecPayload", {"project_id": "ours"}),
            "state": "error",
        },
    )
    write(
        path,
        "no json",
        "[]",
        "{}",
        "[" * 100_000,
        message(message_id="a\r\nInjected: header", tenant_id="ours"),
        message("service.update", tenant_id="ours"),
        message(server_id=server(1), tenant_id="theirs"),
        message(server_id=server(2), tenant_id="ours", padding="x" * 300_000),
        message(server_id=server(3), tenant_id="ours"),
        message("compute_task.build_instances.error") | {"payload": failed},
    )
    with bridge(own_stack, path, "--project", "ours", "--project", "another"):
        found = await arrived(client, 2)
    assert [one.server_id for one in found] == [server(3), server(4)]


async def test_a_killed_bridge_goes_on_where_it_was(client: Client, own_stack: Stack, tmp_path: Path) -> None:
    path = tmp_path / "told.jsonl"
    numbers = range(1, 2001)
    write(path, *(message(server_id=server(number)) for number in numbers))
    with bridge(own_stack, path) as process:
        await arrived(client, 1, settle=0)
        process.kill()
    with bridge(own_stack, path):
        found = await arrived(client, 2000)
    assert [one.server_id for one in found] == [server(number) for number in numbers]


async def test_a_new_file_of_the_same_name_is_read_from_its_start(
    client: Client, own_stack: Stack, tmp_path: Path
) -> None:
    path = tmp_path / "told.jsonl"
    write(path, message(server_id=server(1)), message(server_id=server(2)))
    with bridge(own_stack, path):
        await arrived(client, 2)
        path.rename(tmp_path / "told.jsonl.1")
        write(path, message(server_id=server(3)))
        found = await arrived(client, 3)
    assert found[-1].server_id == server(3)


async def test_without_nats_or_stream_it_waits(own_stack: Stack, tmp_path: Path) -> None:
    path = tmp_path / "told.jsonl"
    write(path, message(server_id=server(1)))
    await asyncio.to_thread(own_stack.kill_one, "nats")
    with bridge(own_stack, path) as process:
        await asyncio.sleep(0.5)
        assert process.poll() is None
        await asyncio.to_thread(own_stack.start_one, "nats")
        client = await nats.connect(own_stack.nats_url)
        await asyncio.sleep(1)
        await make_stream(client)
        try:
            assert [one.server_id for one in await arrived(client, 1)] == [server(1)]
            await asyncio.to_thread(own_stack.kill_one, "nats")
            write(path, message(server_id=server(2)))
            await asyncio.to_thread(own_stack.start_one, "nats")
            again = await nats.connect(own_stack.nats_url)
            assert [one.server_id for one in await arrived(again, 2)] == [server(1), server(2)]
            await again.jetstream().delete_stream(STREAM)
            await again.close()
        finally:
            await client.close()
