"""Connections to Postgres: one async engine per process, one transaction per use."""

from __future__ import annotations

import sqlalchemy as sa
from psycopg import AsyncConnection as Driver
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from store import documents

Connection = AsyncConnection
Engine = AsyncEngine
__all__ = ["Connection", "Driver", "Engine", "async_url", "create_engine", "driver_of"]


def async_url(dsn: str) -> sa.URL:
    """The SQLAlchemy address for a plain `postgresql://` one; anything else is a ValueError."""
    url = sa.make_url(dsn)
    if url.get_backend_name() != "postgresql":
        raise ValueError(f"the database must be a postgresql:// address, not {url.get_backend_name()}://")
    return url.set(drivername="postgresql+psycopg")


def create_engine(dsn: str, *, pool_size: int = 10) -> AsyncEngine:
    """An engine for this process. Connections that died with the server are replaced before use."""
    return create_async_engine(
        async_url(dsn),
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_pre_ping=True,
        pool_recycle=600,
        pool_timeout=10,
        hide_parameters=True,
        json_serializer=documents.dumps,
        json_deserializer=documents.loads,
        connect_args={"connect_timeout": 5, "application_name": "sco"},
    )


async def driver_of(connection: AsyncConnection) -> Driver:
    """The driver's connection under an SQLAlchemy one, in the same transaction.

    For the few statements of a decision: without SQLAlchemy in between each costs a fifth, and they can
    be sent together. Errors are then the driver's own.
    """
    raw = await connection.get_raw_connection()
    driver = raw.driver_connection
    assert isinstance(driver, Driver)
    return driver
