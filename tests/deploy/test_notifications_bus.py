"""The bridge in the cloud's environment, on oslo.messaging itself: what the bus holds reaches the stream."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nats

from lab.openstack.waiting import VENV
from lab.stack import Stack
from tests.deploy.test_notifications_bridge import BRIDGE, PATIENCE_SECONDS, arrived, make_stream
from tests.streams import no_stream
from tests.wire.messages import server
from wire.notifications import STREAM, STREAM_SUBJECTS, EventKind

SESSION = Path(__file__).with_name("bus_session.py")
SAID = "said"


@contextmanager
def bus_session(stack: Stack, folder: Path, number: int) -> Iterator[subprocess.Popen[bytes]]:
    """The bridge among the cloud's packages; of ours it finds only the client of NATS."""
    (folder / "nats").symlink_to(Path(nats.__file__).parent)
    with (folder / SAID).open("wb") as said:
        process = subprocess.Popen(
            [str(VENV / "bin" / "python"), str(SESSION), str(BRIDGE), str(number)],
            env={**os.environ, "NATS_URL": stack.nats_url, "PYTHONPATH": str(folder)},
            stderr=said,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def says(folder: Path, words: str) -> None:
    """Until the bridge has said so."""
    for _ in range(int(PATIENCE_SECONDS * 50)):
        if words in (folder / SAID).read_text():
            return
        await asyncio.sleep(0.02)
    raise AssertionError((folder / SAID).read_text())


async def test_what_the_bus_holds_reaches_the_stream(stack: Stack, tmp_path: Path) -> None:
    """The stream comes late: what JetStream does not take goes back to the bus and is carried later."""
    client = await nats.connect(stack.nats_url)
    await no_stream(client.jetstream(), STREAM_SUBJECTS)
    with bus_session(stack, tmp_path, 200) as process:
        await says(tmp_path, "goes back to the bus")
        await make_stream(client)
        try:
            found = await arrived(client, 200)
        finally:
            await client.jetstream().delete_stream(STREAM)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0, (tmp_path / SAID).read_text()
    await client.close()
    assert {one.server_id for one in found} == {server(number) for number in range(1, 201)}
    assert {(one.kind, one.batch_key) for one in found} == {(EventKind.DELETED, "b-1")}
    assert len({one.message_id for one in found}) == len(found) == 200
