"""The engine of a process: reads in one exchange, and connections that are there when they are used."""

from __future__ import annotations

import asyncio

import pytest
import sqlalchemy as sa
from psycopg import errors

from store import lost_connections
from store.engine import Engine, of_tenant, read_once
from tests.database import opened

WHO = "SELECT current_setting('sco.tenant', true) AS tenant, pg_backend_pid() AS pid"
OTHERS = """
    SELECT count(*) FILTER (WHERE pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'sco' AND pid <> pg_backend_pid()
"""
AT_ONCE = 4


async def fill(engine: Engine) -> set[int]:
    """Let several connections wait in the pool; their backends."""
    pause = WHO.replace("AS pid", "AS pid, pg_sleep(0.2)")
    answers = await asyncio.gather(*(read_once(engine, pause, {}) for _ in range(AT_ONCE)))
    return {rows[0]["pid"] for rows in answers}


async def kill_waiting(dsn: str) -> int:
    async with opened(dsn) as other, other.connect() as connection:
        return int((await connection.execute(sa.text(OTHERS))).scalar_one())


async def test_a_read_names_its_tenant_and_forgets_it(engine: Engine) -> None:
    (first,) = await read_once(of_tenant(engine, "acme"), WHO, {})
    (second,) = await read_once(engine, WHO, {})
    assert first["tenant"] == "acme"
    assert (second["tenant"] or "", second["pid"]) == ("", first["pid"])


async def test_a_read_that_fails_leaves_its_connection_as_it_was(engine: Engine) -> None:
    (first,) = await read_once(engine, WHO, {})
    with pytest.raises(errors.DivisionByZero):
        await read_once(of_tenant(engine, "acme"), "SELECT 1 / %(zero)s", {"zero": 0})
    (second,) = await read_once(engine, WHO, {})
    assert (second["tenant"] or "", second["pid"]) == ("", first["pid"])


async def test_a_tenant_is_one_view_of_one_engine(engine: Engine, tenant_engine: Engine) -> None:
    assert of_tenant(engine, "acme") is of_tenant(engine, "acme")
    assert of_tenant(engine, "acme") is not of_tenant(engine, "umbra")
    assert of_tenant(engine, "acme").sync_engine.pool is engine.sync_engine.pool
    assert of_tenant(tenant_engine, "acme").sync_engine.pool is tenant_engine.sync_engine.pool


@pytest.mark.parametrize("idle_seconds", [lost_connections.IDLE_SECONDS, 0.0])
async def test_connections_that_were_lost_are_replaced_before_use(
    dsn: str, monkeypatch: pytest.MonkeyPatch, idle_seconds: float
) -> None:
    monkeypatch.setattr(lost_connections, "IDLE_SECONDS", idle_seconds)
    async with opened(dsn) as engine:
        before = await fill(engine)
        assert len(before) == AT_ONCE
        assert await kill_waiting(dsn) == AT_ONCE
        after = await fill(engine)
        assert len(after) == AT_ONCE
        assert before.isdisjoint(after)


async def test_a_connection_that_is_there_is_used_again(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_connections, "IDLE_SECONDS", 0.0)
    async with opened(dsn) as engine:
        (first,) = await read_once(engine, WHO, {})
        (second,) = await read_once(engine, WHO, {})
        assert first["pid"] == second["pid"]
