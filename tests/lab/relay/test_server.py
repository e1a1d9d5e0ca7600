"""The relay as it runs: over its HTTP door, on a real bus, with metadata beside it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest

from lab.relay.bus import NodeBus
from lab.relay.client import RelayClient, RelayRefused
from lab.relay.decisions import Decision
from lab.relay.server import RunningRelay
from tests.lab.relay.support import HALL, PATIENCE_SECONDS, TOKEN, listening, settings_in
from wire.notices import NoticeKind


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeBus]:
    with NodeBus(tmp_path_factory.mktemp("bus")) as running:
        yield running


@pytest.fixture
async def running(bus: NodeBus, tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(settings_in(tmp_path, bus)).serving() as relay:
        yield relay


async def test_a_reclaim_over_http_reaches_the_instance(
    bus: NodeBus, running: RunningRelay, tmp_path: Path
) -> None:
    client = RelayClient(running.base_url, TOKEN)
    async with listening(bus, running, tmp_path) as one, listening(bus, running, tmp_path) as other:
        ask = [Decision(instance_id=one.instance_id, hall=HALL, reason="a guaranteed tenant needs it")]
        (notice,) = await asyncio.to_thread(client.decide, ask)
        assert await one.next() == notice
        assert await asyncio.to_thread(client.standing) == (notice,)
        (withdrawal,) = await asyncio.to_thread(client.withdraw, [notice.notice_id])
        heard = await one.next()
        while heard.kind is not NoticeKind.WITHDRAWAL:
            heard = await one.next()
        assert heard == withdrawal
        # The other instance was told nothing: the next it hears is its own notice.
        (own,) = await asyncio.to_thread(client.decide, [Decision(instance_id=other.instance_id, hall=HALL)])
        assert await other.next() == own
    with pytest.raises(RelayRefused, match="no standing notice has the id"):
        await asyncio.to_thread(client.withdraw, [uuid.uuid4()])
    client.close()


async def test_nova_is_answered_with_what_stands(running: RunningRelay) -> None:
    (notice,) = await running.relay.decide([Decision(instance_id="i-1", hall=HALL)])
    async with httpx2.AsyncClient(base_url=running.base_url, trust_env=False) as http:
        asked = {"instance-id": "i-1", "project-id": "p", "hostname": "h", "metadata": {}, "boot-roles": ""}
        answer = (await http.post("/vendordata", json=asked)).json()
        nothing = (await http.post("/vendordata", json=asked | {"instance-id": "i-2"})).json()
        wrong = await http.post("/vendordata", json={"instance": "i-1"})
    (letter,) = answer["notices"]
    assert json.loads(letter)["payload"]["noticeId"] == str(notice.notice_id)
    assert nothing == {"notices": []}
    assert (wrong.status_code, "instance-id" in wrong.json()["error"]) == (400, True)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "not JSON"),
        (b"{}", "decisions"),
        (b'{"decisions": [{"instanceId": "a.b", "hall": "h"}]}', "instanceId"),
        (b'{"decisions": [{"instanceId": "a", "hall": "h", "seconds": 99999}]}', "seconds"),
        (b'{"decisions": [{"instanceId": "a", "hall": "h", "kind": "withdrawal"}]}', "kind"),
        (b'{"decisions": [{"instanceId": "a", "hall": "h", "command": "reboot"}]}', "command"),
    ],
)
async def test_a_decision_that_makes_no_sense_is_refused_with_the_field(
    running: RunningRelay, body: bytes, says: str
) -> None:
    async with httpx2.AsyncClient(base_url=running.base_url, trust_env=False) as http:
        answer = await http.post("/reclaims", content=body, headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 400
    assert says in answer.json()["error"]
    assert running.relay.standing() == ()


@pytest.mark.parametrize("given", [None, "Bearer", "Bearer wrong", "Basic dGVzdA==", f"Bearer {TOKEN}x"])
async def test_who_has_no_token_decides_nothing(running: RunningRelay, given: str | None) -> None:
    body = {"decisions": [{"instanceId": "i-1", "hall": HALL}]}
    headers = {} if given is None else {"Authorization": given}
    async with httpx2.AsyncClient(base_url=running.base_url, headers=headers, trust_env=False) as http:
        answers = [
            await http.post("/reclaims", json=body),
            await http.post("/withdrawals", json={}),
            await http.get("/notices"),
        ]
    assert {one.status_code for one in answers} == {401}
    assert running.relay.standing() == ()


async def test_a_bus_that_comes_back_is_told_what_stands(tmp_path: Path) -> None:
    """The relay decides while its bus is dead; the instance hears as soon as both are back."""
    bus = NodeBus(tmp_path / "bus")
    try:
        bus.start()
        async with (
            RunningRelay(settings_in(tmp_path, bus)).serving() as running,
            listening(bus, running, tmp_path) as instance,
        ):
            await asyncio.to_thread(bus.kill)
            (notice,) = await running.relay.decide([Decision(instance_id=instance.instance_id, hall=HALL)])
            assert running.relay.letters(instance.instance_id)
            await asyncio.to_thread(bus.start)
            assert await instance.next() == notice
    finally:
        bus.stop()


def test_the_process_serves_and_refuses_to_start_with_one_line(bus: NodeBus, tmp_path: Path) -> None:
    settings = settings_in(tmp_path, bus)
    config = tmp_path / "relay.json"
    config.write_text(settings.model_dump_json())
    command = [sys.executable, "-m", "lab.relay", "--config", str(config)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        with httpx2.Client(base_url=url, trust_env=False) as http:
            assert http.get("/healthz").json()["standing"] == 0
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)
    settings.key_file.chmod(0o644)
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) == 1
    assert "make it 600" in refused.stderr
