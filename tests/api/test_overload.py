"""More requests than can be worked on: each is served, or refused with 429, and none fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import psycopg
import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry
from starlette.types import Message, Receive, Scope, Send

from api.overload import Admission, Limits, OverloadMetrics
from store import warm_profiles
from tests.api.door import Bearer, Door, door_on, problem
from tests.api.serving import served
from tests.estates import Estate

CLIENTS = 60
PATIENCE_SECONDS = 60
POOLS = "/factory/compute-pools"
Asking = asyncio.Task[httpx2.Response]


@asynccontextmanager
async def clients_of(door: Door) -> AsyncIterator[httpx2.AsyncClient]:
    """Many connections to a real server of the door's application."""
    bounds = httpx2.Limits(max_connections=2 * CLIENTS)
    async with (
        served(door.app) as address,
        httpx2.AsyncClient(
            base_url=address, auth=Bearer(door.estate.clock), limits=bounds, timeout=PATIENCE_SECONDS
        ) as http,
    ):
        yield http


@asynccontextmanager
async def pools_locked(estate: Estate) -> AsyncIterator[None]:
    """Nobody reads pools until the end of the block."""
    async with estate.engine.begin() as connection:
        await connection.execute(sa.text("LOCK TABLE pools IN ACCESS EXCLUSIVE MODE"))
        yield


async def first_of(asked: set[Asking], count: int) -> set[Asking]:
    """Those that are answered first, at least so many."""
    answered: set[Asking] = set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(answered) < count:
            done, _ = await asyncio.wait(asked - answered, return_when=asyncio.FIRST_COMPLETED)
            answered |= done
    return answered


def refusals(door: Door, reason: str) -> float | None:
    return door.registry.get_sample_value("sco_http_overload_refused_total", {"reason": reason})


async def test_who_does_not_fit_in_is_refused_at_once_and_the_others_are_served(estate: Estate) -> None:
    places = Limits(at_once=3, waiting=5, patience_seconds=PATIENCE_SECONDS)
    async with door_on(estate, limits=places) as door, clients_of(door) as http:
        async with pools_locked(estate):
            asked = {asyncio.create_task(http.get(POOLS)) for _ in range(CLIENTS)}
            refused = await first_of(asked, CLIENTS - 8)
            assert (await http.get("/healthz")).status_code == 200
            assert (await http.get("/readyz")).status_code == 200
            assert len(refused) == CLIENTS - 8
            for task in refused:
                problem(task.result(), 429, "overloaded")
                assert int(task.result().headers["retry-after"]) > 0
        served_late = await asyncio.gather(*(asked - refused))
        assert [answer.status_code for answer in served_late] == [200] * 8
        assert refusals(door, "queue_full") == CLIENTS - 8
        assert (await http.get(POOLS)).status_code == 200


async def test_who_waits_too_long_is_refused(estate: Estate) -> None:
    places = Limits(at_once=1, waiting=5, patience_seconds=0.05)
    async with door_on(estate, limits=places) as door, clients_of(door) as http:
        async with pools_locked(estate):
            asked = {asyncio.create_task(http.get(POOLS)) for _ in range(3)}
            refused = await first_of(asked, 2)
        for task in refused:
            problem(task.result(), 429, "overloaded")
        (served_late,) = asked - refused
        assert (await served_late).status_code == 200
        assert refusals(door, "waited_too_long") == 2
        assert (await http.get(POOLS)).status_code == 200


async def test_a_flood_is_answered_with_2xx_or_429_only(estate: Estate) -> None:
    places = Limits(at_once=2, waiting=2, patience_seconds=0.2)
    async with door_on(estate, limits=places) as door, clients_of(door) as http:
        await door.open_estate()
        for _ in range(3):
            answers = await asyncio.gather(
                *(http.get(POOLS, params={"pageSize": 1000}) for _ in range(CLIENTS)),
                *(
                    http.put("/contracts/orders-daily", json={"tier": "T1", "floorShare": "0.3"})
                    for _ in "ab"
                ),
            )
            assert {answer.status_code for answer in answers} <= {200, 429}
            assert 200 in {answer.status_code for answer in answers}
        assert (await http.get("/workloads/orders-daily")).status_code == 200


async def test_who_gives_up_waiting_or_fails_leaves_the_turn_to_the_next() -> None:
    gate = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await gate.wait()
        raise ValueError(scope["path"])

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        raise AssertionError(message)

    admission = Admission(slow, Limits(at_once=1, waiting=1), OverloadMetrics(CollectorRegistry()))
    scope = {"type": "http", "path": "/workloads"}
    first = asyncio.create_task(admission(scope, receive, send))
    await asyncio.sleep(0)
    gone = asyncio.create_task(admission(scope, receive, send))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait({gone})
    gate.set()
    last = asyncio.create_task(admission(scope, receive, send))
    done, _ = await asyncio.wait({first, last}, timeout=PATIENCE_SECONDS)
    assert {type(task.exception()) for task in done} == {ValueError}
    assert len(done) == 2


DEADLOCK = psycopg.errors.DeadlockDetected("deadlock detected")


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (DEADLOCK, 409, "contended"),
        (sa.exc.OperationalError("UPDATE", {}, DEADLOCK), 409, "contended"),
        (psycopg.errors.SerializationFailure("read and written"), 409, "contended"),
        (sa.exc.TimeoutError("QueuePool limit of size 20 reached"), 429, "overloaded"),
        (psycopg.OperationalError("the connection is lost"), 503, "not_ready"),
    ],
)
async def test_others_at_the_same_rows_are_no_failure_of_the_database(
    door: Door, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, reason: str
) -> None:
    async def run_into_it(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(warm_profiles, "list_profiles", run_into_it)
    answer = await door.get("/factory/warm-profiles")
    told = problem(answer, status, reason)
    assert int(answer.headers["retry-after"]) > 0
    assert ("database cannot be reached" in told["detail"]) is (reason == "not_ready")
