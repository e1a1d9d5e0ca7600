"""Connections to Postgres: one async engine per process, one transaction per use.

The API's engine sees no rows until `of_tenant` says whose: each transaction names its tenant to
Postgres and forgets it with its end, so that a connection never carries one tenant to another.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from psycopg import AsyncConnection as Driver
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from store import documents
from store.lost_connections import replace_lost

Connection = AsyncConnection
Engine = AsyncEngine
__all__ = [
    "Connection",
    "Driver",
    "Engine",
    "async_url",
    "create_engine",
    "driver_of",
    "of_tenant",
    "read_once",
]
NAME_TENANT = "SELECT set_config('sco.tenant', %(tenant)s, true)"
TENANT_OPTION = "sco_tenant"


def async_url(dsn: str) -> sa.URL:
    """The SQLAlchemy address for a plain `postgresql://` one; anything else is a ValueError."""
    url = sa.make_url(dsn)
    if url.get_backend_name() != "postgresql":
        raise ValueError(f"the database must be a postgresql:// address, not {url.get_backend_name()}://")
    return url.set(drivername="postgresql+psycopg")


def create_engine(dsn: str, *, pool_size: int = 10, role: str | None = None) -> AsyncEngine:
    """An engine for this process. Connections that died with the server are replaced before use.

    It has at most twice `pool_size` connections. `role` is one that the login belongs to and works as;
    without it the login works as itself.
    """
    as_role = {} if role is None else {"options": f"-c role={role}"}
    engine = create_async_engine(
        async_url(dsn),
        # All are kept: a connection closed after its use would have to be opened again under load.
        pool_size=2 * pool_size,
        max_overflow=0,
        pool_use_lifo=True,
        pool_recycle=600,
        pool_timeout=10,
        hide_parameters=True,
        json_serializer=documents.dumps,
        json_deserializer=documents.loads,
        connect_args={"connect_timeout": 5, "application_name": "sco", **as_role},
    )
    replace_lost(engine)
    sa.event.listen(engine.sync_engine, "begin", _name_tenant)
    return engine


# Made for each request otherwise, which costs as much as routing it.
@lru_cache(maxsize=256)
def of_tenant(engine: AsyncEngine, tenant_id: str) -> AsyncEngine:
    """The same engine and connections, whose transactions see the rows of one tenant."""
    return engine.execution_options(**{TENANT_OPTION: tenant_id})


def _name_tenant(connection: sa.Connection) -> None:
    tenant_id: Any = connection.get_execution_options().get(TENANT_OPTION)
    if tenant_id is not None:
        connection.exec_driver_sql(NAME_TENANT, {"tenant": tenant_id})


async def driver_of(connection: AsyncConnection) -> Driver:
    """The driver's connection under an SQLAlchemy one, in the same transaction.

    The transaction has begun when this returns, so that it has named its tenant. For the few statements of
    a decision: without SQLAlchemy in between each costs a fifth, and they can
    be sent together. Errors are then the driver's own.
    """
    if not connection.in_transaction():
        await connection.begin()
    return await _under(connection)


async def read_once(engine: AsyncEngine, statement: str, named: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of one statement, which sees the rows of the engine's tenant; one exchange with the database.

    The transaction begins, names its tenant, and ends in the same exchange. Errors are the driver's own.
    """
    tenant_id = engine.sync_engine.get_execution_options().get(TENANT_OPTION)
    async with engine.connect() as connection:
        driver = await _under(connection)
        async with driver.cursor(binary=True, row_factory=dict_row) as rows:
            async with driver.pipeline():
                if tenant_id is not None:
                    await driver.execute(NAME_TENANT, {"tenant": tenant_id})
                await rows.execute(statement, named)
                await driver.execute("COMMIT")
            return await rows.fetchall()


async def _under(connection: AsyncConnection) -> Driver:
    raw = await connection.get_raw_connection()
    driver = raw.driver_connection
    assert isinstance(driver, Driver)
    return driver
