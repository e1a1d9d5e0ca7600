"""Tenants apart, as Postgres keeps them: whatever a handler forgets, no row of another tenant is seen."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from store.engine import Engine, driver_of, of_tenant
from store.tables import metadata

AT = datetime(2030, 1, 1, tzinfo=UTC)
POOL = """
    INSERT INTO pools (tenant_id, pool_id, kind, state, region, hall, security_boundary, sku_family, size,
        arch, gpu_type, gpu_count, vram_gb, cpu_cores, ram_gb, nvme, nic_gbps, purchase_model, group_id,
        price_per_hour_usd, guaranteed_price_per_hour_usd, flavor, endpoint_ref)
    VALUES (:tenant, :pool, 'cloud_gpu', 'active', 'eu-north', 'h1', :boundary, 'g2', 'm', 'x86_64', 'a100',
        1, 80, 8, 64, false, 10, 'guaranteed', :pool, 1, 1, 'g2.m', 'https://' || :pool)
"""
GROUP = """
    INSERT INTO correlation_groups (tenant_id, group_id, basis, region) VALUES (:tenant, :pool, 'hall', 'r')
"""
CAPACITY = "INSERT INTO pool_capacity (tenant_id, pool_id) VALUES (:tenant, :pool)"
PLACE = """
    INSERT INTO model_placements (tenant_id, placement_id, deployment_id, model, requirements, candidates,
        outcome, pool_tenant_id, pool_id, vram_gb, state, decided_at, expires_at)
    VALUES (:tenant, :id, 'd', :model, '{}', '{}', 'placed', :owner, :pool, :gb, 'held', :at, :at)
"""
POOLS = (
    ("platform", "shared-1", "shared"),
    ("platform", "regional-1", "regional"),
    ("platform", "private-1", "private"),
    ("acme", "own-1", "private"),
    ("umbra", "own-1", "private"),
    ("umbra", "open-1", "shared"),
)
Rows = list[tuple[Any, ...]]


async def pools(engine: Engine) -> None:
    async with engine.begin() as connection:
        for owner, pool, boundary in POOLS:
            named = {"tenant": owner, "pool": pool}
            for statement in (GROUP, POOL, CAPACITY):
                await connection.execute(sa.text(statement), named | {"boundary": boundary})


async def rows(engine: Engine, query: str, **named: Any) -> Rows:
    async with engine.connect() as connection:
        return [tuple(row) for row in await connection.execute(sa.text(query), named)]


async def write(engine: Engine, statement: str, **named: Any) -> int:
    async with engine.begin() as connection:
        return int((await connection.execute(sa.text(statement), named)).rowcount)


async def refused(engine: Engine, statement: str, **named: Any) -> None:
    with pytest.raises(DBAPIError) as caught:
        await write(engine, statement, **named)
    assert caught.value.orig is not None
    assert getattr(caught.value.orig, "sqlstate", None) == "42501", caught.value


async def hold(engine: Engine, tenant: str, where: tuple[str, str], model: str = "m", gb: int = 40) -> None:
    named = {"tenant": tenant, "owner": where[0], "pool": where[1], "model": model, "gb": gb}
    await write(of_tenant(engine, tenant), PLACE, id=uuid4(), at=AT, **named)


async def test_every_table_is_closed_but_to_the_two_roles(engine: Engine) -> None:
    secured = await rows(
        engine,
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')"
        " AND relrowsecurity",
    )
    assert {name for (name,) in secured} == set(metadata.tables)
    policies = await rows(engine, "SELECT tablename, policyname, roles::text[] FROM pg_policies")
    for table in metadata.tables:
        own = {name: roles for on, name, roles in policies if on == table}
        assert own["own_rows"] == ["sco_tenant"], table
        assert own["all_rows"] == ["sco_service"], table
    granted = await rows(
        engine,
        "SELECT DISTINCT grantee FROM information_schema.role_table_grants"
        " WHERE table_schema = 'public' AND grantee <> 'sco_owner'",
    )
    assert {who for (who,) in granted} == {"sco_tenant", "sco_service"}


@pytest.mark.parametrize("table", sorted(metadata.tables))
async def test_without_a_tenant_there_are_no_rows(engine: Engine, tenant_engine: Engine, table: str) -> None:
    """Also after a connection has served a tenant: the name ends with its transaction."""
    await pools(engine)
    await rows(of_tenant(tenant_engine, "platform"), f"SELECT tenant_id FROM {table}")
    assert await rows(tenant_engine, f"SELECT tenant_id FROM {table}") == []
    assert await rows(of_tenant(tenant_engine, ""), f"SELECT tenant_id FROM {table}") == []


async def test_a_tenant_sees_its_own_pools_and_the_shared_ones(
    engine: Engine, tenant_engine: Engine, service_engine: Engine
) -> None:
    await pools(engine)
    for table in ("pools", "pool_capacity", "pool_serving", "correlation_groups"):
        key = "group_id" if table == "correlation_groups" else "pool_id"
        query = f"SELECT tenant_id, {key} FROM {table}"
        seen = await rows(of_tenant(tenant_engine, "acme"), query)
        assert sorted(seen) == [
            ("acme", "own-1"),
            ("platform", "regional-1"),
            ("platform", "shared-1"),
        ], table
        assert len(await rows(service_engine, query)) == len(POOLS)
    assert len(await rows(of_tenant(tenant_engine, "platform"), "SELECT pool_id FROM pools")) == 3


async def test_the_driver_under_a_connection_sees_the_same_tenant(
    engine: Engine, tenant_engine: Engine
) -> None:
    """Also where the first statement of a connection goes to the driver."""
    await pools(engine)
    for tenant, seen in (("umbra", 4), ("", 0)):
        async with of_tenant(tenant_engine, tenant).connect() as connection:
            driver = await driver_of(connection)
            assert len(await (await driver.execute("SELECT pool_id FROM pools")).fetchall()) == seen


async def test_nobody_writes_what_is_another_tenants(engine: Engine, tenant_engine: Engine) -> None:
    await pools(engine)
    acme = of_tenant(tenant_engine, "acme")
    for owner in ("umbra", "platform"):
        touched = await write(
            acme, "UPDATE pools SET price_per_hour_usd = 0 WHERE tenant_id = :owner", owner=owner
        )
        assert touched == 0
        await refused(acme, GROUP, tenant=owner, pool="new-1")
        await refused(acme, POOL, tenant=owner, pool="own-1", boundary="shared")
    await refused(acme, "UPDATE pools SET tenant_id = 'umbra' WHERE pool_id = 'own-1'")


async def test_a_shared_pool_can_be_held_and_another_tenants_cannot(
    engine: Engine, tenant_engine: Engine
) -> None:
    await pools(engine)
    await hold(tenant_engine, "acme", ("platform", "shared-1"))
    await hold(tenant_engine, "acme", ("acme", "own-1"))
    committed = "SELECT tenant_id, pool_id, committed_vram_gb FROM pool_serving WHERE committed_vram_gb > 0"
    assert sorted(await rows(engine, committed)) == [("acme", "own-1", 40), ("platform", "shared-1", 40)]
    acme = of_tenant(tenant_engine, "acme")
    for owner, pool in (("platform", "private-1"), ("umbra", "own-1"), ("umbra", "open-1")):
        named = {"tenant": "acme", "owner": owner, "pool": pool, "model": "m", "gb": 1}
        await refused(acme, PLACE, id=uuid4(), at=AT, **named)
        report = (
            "INSERT INTO endpoint_reports (tenant_id, report_id, pool_tenant_id, pool_id, problem,"
            " reported_at) VALUES ('acme', :id, :owner, :pool, 'down', :at)"
        )
        await refused(acme, report, id=uuid4(), owner=owner, pool=pool, at=AT)


async def test_models_of_others_on_a_shared_pool_stay_unseen(engine: Engine, tenant_engine: Engine) -> None:
    """A tenant sees of a shared pool the models that it holds there, and the one that it asks about."""
    await pools(engine)
    await hold(tenant_engine, "acme", ("platform", "shared-1"), "acme-secret", 20)
    await hold(tenant_engine, "umbra", ("platform", "shared-1"), "umbra-secret", 20)
    query = "SELECT model FROM cached_models"
    assert await rows(of_tenant(tenant_engine, "acme"), query) == [("acme-secret",)]
    assert await rows(of_tenant(tenant_engine, "umbra"), query) == [("umbra-secret",)]
    assert sorted(await rows(of_tenant(tenant_engine, "platform"), query)) == [
        ("acme-secret",),
        ("umbra-secret",),
    ]
    async with of_tenant(tenant_engine, "initech").begin() as connection:
        await connection.execute(sa.text("SELECT set_config('sco.model', 'umbra-secret', true)"))
        asked = list(await connection.execute(sa.text(query)))
    assert [tuple(one) for one in asked] == [("umbra-secret",)]
    assert await rows(of_tenant(tenant_engine, "initech"), query) == []


async def test_nobody_writes_the_count_of_memory(
    engine: Engine, tenant_engine: Engine, service_engine: Engine
) -> None:
    await pools(engine)
    for who in (of_tenant(tenant_engine, "platform"), service_engine):
        await refused(who, "UPDATE pool_serving SET committed_vram_gb = 0")
        await refused(who, "UPDATE pool_serving SET vram_gb = 1000")
        await refused(who, "UPDATE cached_models SET holds = 0")
        assert await write(who, "UPDATE pool_serving SET stale_since = now()") == (
            3 if who is not service_engine else len(POOLS)
        )


async def test_a_placement_is_not_moved_nor_held_again(engine: Engine, tenant_engine: Engine) -> None:
    await pools(engine)
    await hold(tenant_engine, "acme", ("acme", "own-1"))
    acme = of_tenant(tenant_engine, "acme")
    release = "UPDATE model_placements SET state = 'released', ended_at = now()"
    with pytest.raises(DBAPIError, match="place and its end once"):
        await write(acme, "UPDATE model_placements SET vram_gb = 1")
    with pytest.raises(DBAPIError, match="place and its end once"):
        await write(engine, "DELETE FROM model_placements")
    assert await write(acme, release) == 1
    assert await rows(engine, "SELECT committed_vram_gb FROM pool_serving WHERE tenant_id = 'acme'") == [(0,)]
    with pytest.raises(DBAPIError, match="place and its end once"):
        await write(acme, "UPDATE model_placements SET state = 'held', ended_at = NULL")


async def test_a_pool_that_drains_takes_no_placement(engine: Engine, tenant_engine: Engine) -> None:
    await pools(engine)
    await write(engine, "UPDATE pools SET state = 'draining', draining_since = now()")
    with pytest.raises(DBAPIError, match="takes no placements"):
        await hold(tenant_engine, "acme", ("platform", "shared-1"))


async def test_memory_is_never_promised_twice(engine: Engine, tenant_engine: Engine) -> None:
    await pools(engine)
    await hold(tenant_engine, "acme", ("platform", "shared-1"), "a", 50)
    await hold(tenant_engine, "umbra", ("platform", "shared-1"), "a", 50)
    with pytest.raises(DBAPIError, match="never_double_booked"):
        await hold(tenant_engine, "umbra", ("platform", "shared-1"), "b", 31)
    await hold(tenant_engine, "umbra", ("platform", "shared-1"), "b", 30)
    assert await rows(engine, "SELECT committed_vram_gb FROM pool_serving WHERE pool_id = 'shared-1'") == [
        (80,)
    ]
