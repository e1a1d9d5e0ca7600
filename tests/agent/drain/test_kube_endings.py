"""How pods ended, as the API tells it while it still knows them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from agent.drain.ports import Work
from tests.agent.drain.cluster import NODE, Drain, draining

AT = "2026-11-03T09:00:07Z"


def ends(drain: Drain, name: str, *codes: int | None, phase: str = "Running", signal: int = 0) -> None:
    """Containers of a pod end with these codes; one with None runs on."""
    key = ("default", name)
    body = drain.cluster.store.find("pods", key)
    body["status"] = {"phase": phase, "containerStatuses": [_status(code, signal) for code in codes]}
    drain.cluster.store.replace("pods", key, body)


def _status(code: int | None, signal: int) -> dict[str, Any]:
    ended = {"exitCode": code, "signal": signal, "finishedAt": AT}
    state = {"running": {}} if code is None else {"terminated": ended}
    return {"name": "main", "image": "i", "imageID": "i", "ready": False, "restartCount": 0, "state": state}


@pytest.mark.parametrize(
    ("codes", "signal", "told"),
    [((0,), 0, 0), ((0, 3), 0, 3), ((137,), 9, -9), ((3, None), 0, None), ((), 0, None), ((4096,), 0, None)],
)
async def test_a_pod_has_ended_when_all_its_containers_have(
    codes: tuple[int | None, ...], signal: int, told: int | None
) -> None:
    async with draining() as drain:
        drain.cluster.add_pod("a", NODE)
        ends(drain, "a", *codes, signal=signal)
        found = await drain.driver.endings()
        assert [one.exit_code for one in found] == ([] if told is None else [told])
        if found:
            assert (found[0].kind, found[0].name) == ("pod", "default/a")
            assert found[0].ended_at == datetime(2026, 11, 3, 9, 0, 7, tzinfo=UTC)


async def test_the_end_of_a_pod_is_remembered_when_the_api_has_forgotten_it() -> None:
    async with draining() as drain:
        drain.cluster.add_pod("a", NODE)
        assert await drain.driver.endings() == ()
        ends(drain, "a", 3, phase="Failed")
        drain.cluster.finish_pod("default", "a")
        await drain.wait_drained()
        work = Work("pod", "default/a", ())
        assert [one.exit_code for one in await drain.driver.endings([work])] == [3]
        assert await drain.driver.endings([Work("pod", "default/b", ())]) == ()


async def test_a_pod_that_took_the_name_of_another_does_not_take_its_end() -> None:
    async with draining() as drain:
        drain.cluster.add_pod("db-0", NODE)
        ends(drain, "db-0", 3, phase="Failed")
        assert len(await drain.driver.endings()) == 1
        drain.cluster.finish_pod("default", "db-0")
        drain.cluster.add_pod("db-0", NODE)
        await drain.left()
        assert await drain.driver.endings() == ()


async def test_neither_daemons_nor_pods_elsewhere_count() -> None:
    async with draining() as drain:
        drain.cluster.add_pod("daemon", NODE, owner="DaemonSet")
        drain.cluster.add_pod("far", "n2")
        for name in ("daemon", "far"):
            ends(drain, name, 1, phase="Failed")
        assert await drain.driver.endings() == ()
