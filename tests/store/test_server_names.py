"""Names of servers in the store: the provider's, of live servers, and each tenant's own."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from domain.forwarder_nodes import LiveServer
from store.engine import Engine, of_tenant
from store.server_names import LIVE, live_servers, name_servers
from tests.activities.deciding import Placer, halls
from tests.estates import PARTITION, TENANT, Estate


@pytest.fixture
async def launched(estate: Estate) -> Estate:
    """Servers s1 to s3 of one partition; s1 and s2 live, and s2 is registered."""
    await estate.open(halls())
    await estate.workload()
    await estate.claim(6)
    await Placer(estate).decide()
    for server, state in (("s1", "building"), ("s2", "active"), ("s3", "active")):
        await estate.rows(
            "UPDATE instances SET server_id = :server, state = :state WHERE slot_key ="
            " (SELECT min(slot_key) FROM instances WHERE server_id IS NULL)",
            server=server,
            state=state,
        )
    await estate.rows("UPDATE instances SET state = 'lost' WHERE server_id = 's3'")
    await identify(estate, "s2")
    return estate


async def identify(estate: Estate, server: str) -> None:
    await estate.rows(
        "INSERT INTO node_identities (tenant_id, instance_id, public_key, registered_at)"
        " VALUES (:tenant, :server, 'key-' || :server, now())",
        tenant=TENANT,
        server=server,
    )


async def test_names_are_kept_and_follow_the_provider(launched: Estate) -> None:
    told = {"s1": "n1", "s2": "n2", "s3": "n3", "another": "n4", "s4": None}
    async with launched.engine.begin() as connection:
        assert await name_servers(connection, TENANT, told) == 2
        assert await name_servers(connection, TENANT, told) == 0
        assert await name_servers(connection, TENANT, told | {"s1": "renamed"}) == 1
        assert await name_servers(connection, TENANT, {"s1": None}) == 0
        assert await name_servers(connection, "another", {"s1": "stolen"}) == 0
        listed = await live_servers(connection, TENANT, PARTITION, limit=10)
    assert listed == [LiveServer("s1", "renamed", None), LiveServer("s2", "n2", "key-s2")]


async def test_who_is_revoked_has_no_key_and_who_has_ended_is_not_listed(launched: Estate) -> None:
    async with launched.engine.begin() as connection:
        await name_servers(connection, TENANT, {"s2": "n2"})
    await launched.rows("UPDATE node_identities SET revoked_at = now(), revoked_by = 'ada'")
    async with launched.engine.connect() as connection:
        listed = await live_servers(connection, TENANT, PARTITION, limit=10)
        assert [one.public_key for one in listed] == [None, None]
        assert len(await live_servers(connection, TENANT, PARTITION, limit=1)) == 1
    await launched.rows("UPDATE instances SET state = 'lost' WHERE server_id = 's2'")
    async with launched.engine.connect() as connection:
        listed = await live_servers(connection, TENANT, PARTITION, limit=10)
        assert [one.instance_id for one in listed] == ["s1"]
        assert await live_servers(connection, TENANT, "another", limit=10) == []


async def test_slots_that_ended_are_not_read(launched: Estate) -> None:
    """There are ever more of them; the index leaves them out."""
    async with launched.engine.begin() as connection:
        await connection.execute(sa.text("SET LOCAL enable_seqscan = off"))
        named = {"tenant": TENANT, "partition": PARTITION, "limit": 10}
        plan = await connection.execute(sa.text(f"EXPLAIN {LIVE.text}"), named)
        assert "instances_live_idx" in "\n".join(plan.scalars())


async def test_a_tenant_sees_its_own_servers_alone(launched: Estate, tenant_engine: Engine) -> None:
    async with of_tenant(tenant_engine, TENANT).connect() as connection:
        assert len(await live_servers(connection, TENANT, PARTITION, limit=10)) == 2
    async with of_tenant(tenant_engine, "another").connect() as connection:
        assert await live_servers(connection, TENANT, PARTITION, limit=10) == []
