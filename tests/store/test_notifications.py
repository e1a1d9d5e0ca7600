"""What the provider told of servers: kept for whom it concerns, and found again as evidence."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
import pytest_asyncio

from store import notifications
from store.notifications import Evidence, Kept
from tests.activities.deciding import Placer, halls
from tests.estates import REGION, START, TENANT, Estate
from tests.wire.messages import server
from wire.notifications import EventKind, Notification


def told(
    message_id: str,
    kind: EventKind,
    server_id: str,
    *,
    second: int = 0,
    region: str = REGION,
    batch: str | None = "b-1",
    tenant: str | None = TENANT,
    fault: str | None = None,
) -> Notification:
    return Notification(
        message_id=message_id,
        region=region,
        kind=kind,
        event_type="instance.x.end",
        server_id=server_id,
        emitted_at=at(second),
        fault=fault,
        batch_key=batch,
        tenant_id=tenant,
    )


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


async def keep(estate: Estate, *said: Notification, tenant: str = TENANT) -> Kept:
    async with estate.engine.begin() as connection:
        return await notifications.keep(connection, tenant, said, START)


async def evidence(estate: Estate, servers: Sequence[str], region: str = REGION) -> dict[str, Evidence]:
    async with estate.engine.connect() as connection:
        return await notifications.evidence(connection, TENANT, region, servers)


@pytest_asyncio.fixture
async def running(estate: Estate) -> list[tuple[str, str]]:
    """Server and batch of six slots that run."""
    await estate.open(halls(), free=20)
    await estate.workload()
    placer = Placer(estate)
    await placer.place(6)
    await placer.run()
    return await estate.rows("SELECT server_id, batch_key FROM instances ORDER BY slot_key")


async def test_only_what_is_ours_is_kept(estate: Estate, running: list[tuple[str, str]]) -> None:
    bound = running[0][0]
    kept = await keep(
        estate,
        told("names-us", EventKind.CREATED, server(1)),
        told("bound", EventKind.ERRORED, bound, batch=None, tenant=None),
        told("of-another", EventKind.DELETED, server(2), tenant="another"),
        told("of-nobody", EventKind.DELETED, server(3), batch=None, tenant=None),
        told("no-use", EventKind.OTHER, server(1)),
    )
    assert kept == Kept(frozenset({"names-us", "bound"}), frozenset({"names-us", "bound"}))
    later = told("told-of-before", EventKind.DELETED, server(1), batch=None, tenant=None)
    assert (await keep(estate, later)).new == {"told-of-before"}


async def test_a_message_is_kept_once_for_each_tenant(estate: Estate) -> None:
    one = told("one", EventKind.CREATED, server(1))
    assert (await keep(estate, one, one)).new == {"one"}
    assert await keep(estate, one) == Kept(frozenset({"one"}), frozenset())
    other = told("one", EventKind.CREATED, server(1), tenant="other")
    assert (await keep(estate, other, tenant="other")).new == {"one"}
    assert set(await evidence(estate, [server(1)])) == {server(1)}


STORY = (
    told("1", EventKind.ERRORED, server(9), second=1, fault="the first host was full"),
    told("2", EventKind.CREATED, server(9), second=2),
    told("3", EventKind.STOPPED, server(9), second=3),
    told("4", EventKind.ERRORED, server(9), second=4, fault="the disk is gone"),
    told("5", EventKind.DELETED, server(9), second=5),
    told("6", EventKind.DELETED, server(9), second=6),
)


async def test_evidence_is_the_same_in_every_order(estate: Estate) -> None:
    for turn in range(len(STORY)):
        await estate.rows("DELETE FROM provider_notifications")
        for one in (*STORY[turn:], *STORY[:turn], STORY[turn]):
            await keep(estate, one)
        assert await evidence(estate, [server(9), server(8)]) == {
            server(9): Evidence(
                server_id=server(9),
                batch_key="b-1",
                created_at=at(2),
                stopped_at=at(3),
                errored_at=at(4),
                fault="the disk is gone",
                deleted_at=at(5),
            )
        }
        assert await evidence(estate, [server(9)], "eu-south") == {}


async def test_servers_built_since_a_time_come_with_what_became_of_them(estate: Estate) -> None:
    await keep(
        estate,
        told("a", EventKind.CREATED, server(1), second=10),
        told("b", EventKind.CREATED, server(2), second=20),
        told("c", EventKind.DELETED, server(2), second=25),
        told("d", EventKind.CREATED, server(3), second=15, batch="b-2"),
        told("e", EventKind.CREATED, server(4), second=30, region="eu-south"),
        told("f", EventKind.DELETED, server(5), second=30),
    )
    async with estate.engine.connect() as connection:
        built = await notifications.created_servers_since(connection, TENANT, REGION, at(15))
        first = await notifications.created_servers_since(connection, TENANT, REGION, at(0), limit=1)
    assert built == [
        Evidence(server_id=server(3), batch_key="b-2", created_at=at(15)),
        Evidence(server_id=server(2), batch_key="b-1", created_at=at(20), deleted_at=at(25)),
    ]
    assert [one.server_id for one in first] == [server(1)]


@pytest.mark.parametrize(
    ("kind", "state", "needed"),
    [
        (EventKind.DELETED, "active", True),
        (EventKind.ERRORED, "active", True),
        (EventKind.STOPPED, "active", True),
        (EventKind.CREATED, "active", False),
        (EventKind.DELETED, "releasing", False),
        (EventKind.DELETED, "failed", False),
    ],
)
async def test_which_ends_nobody_asked_for(
    estate: Estate, running: list[tuple[str, str]], kind: EventKind, state: str, needed: bool
) -> None:
    bound, batch = running[0]
    await estate.rows("UPDATE instances SET state = :state WHERE server_id = :s", state=state, s=bound)
    async with estate.engine.connect() as connection:
        places = await notifications.unasked(connection, TENANT, [told("x", kind, bound, batch=batch)])
    assert places == ([("k8s-eu-north", REGION)] if needed else [])
