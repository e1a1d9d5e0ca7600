"""From what a contract declares to what its nodes do: by the real API, to a real agent process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.agent.rig import Node, letter, node, notice, until
from tests.api.door import T1, Door, door_on
from tests.api.node_ways import launched, token_of
from tests.api.nodes_scene import NOTICE_KEY, SERVER
from tests.api.serving import served
from tests.estates import Clock, Estate
from wire.notices import NoticeKind

CONTRACT = "/contracts/orders-daily"
T = TypeVar("T")


@pytest.fixture
async def live(estate: Estate, clock: Clock) -> AsyncIterator[tuple[Door, str]]:
    """The real application on loopback, with one launched instance, at the real time."""
    clock.at = datetime.now(UTC)
    async with door_on(estate) as door:
        await launched(door)
        async with served(door.app) as address:
            yield door, address


async def meanwhile(look: Callable[[], T]) -> T:
    """What comes about on the node while the application answers it."""
    return await asyncio.to_thread(until, look)


def orders(one: Node) -> dict[str, Any]:
    """How the node drains, by the bundle on its disk; empty before it has one."""
    try:
        letter_kept = json.loads((one.state / "bundle.json").read_text())
    except FileNotFoundError:
        return {}
    return dict(letter_kept["payload"]["drain"])


def advise(one: Node, seconds: float) -> str:
    """Lay down an advisory notice; returns its id."""
    said = notice(one.instance_id, seconds, kind=NoticeKind.ADVISORY)
    one.metadata.letters.append(letter(said, NOTICE_KEY))
    return str(said.notice_id)


async def test_an_advisory_notice_drains_from_the_moment_that_the_contract_says_so(
    live: tuple[Door, str], tmp_path: Path
) -> None:
    door, address = live
    with node(tmp_path / "n", instance_id=SERVER) as one:
        one.launch_bundle.unlink()
        one.metadata.own = {"token": await token_of(door), "apiUrl": address}
        one.settings["SCO_AGENT_BUNDLE_REFRESH_SECONDS"] = "0.5"
        work = one.work("checkpoints")
        await asyncio.to_thread(one.start)
        before = await meanwhile(lambda: orders(one))
        assert (before["drainOnAdvisory"], before["checkpoint"], before["restart"]) == (
            False,
            "periodic_and_final",
            "resume",
        )
        first = advise(one, 60)
        await meanwhile(lambda: one.ask(op="notice").get("noticeId") == first)
        assert one.phase() is None
        assert work.runs

        said = {"drainOnAdvisory": True, "checkpointMode": "final", "restart": "requeue"}
        assert (await door.put(CONTRACT, T1 | said)).status_code == 200
        after = await meanwhile(lambda: orders(one) if orders(one)["drainOnAdvisory"] else {})
        assert (after["checkpoint"], after["restart"]) == ("final", "requeue")
        assert one.phase() is None, "what stands is not judged again"
        second = advise(one, 40)
        await meanwhile(lambda: one.phase() == "finished")
        assert not work.runs
        assert one.kept()["drain"]["notice"]["noticeId"] == second
        told = await asyncio.to_thread(one.told, "notice")
        assert [(event["noticeId"], event["noticeKind"]) for event in told] == [
            (first, "advisory"),
            (second, "advisory"),
        ]
