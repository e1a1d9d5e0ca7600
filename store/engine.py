"""Connections to Postgres: one async engine per process, one transaction per use."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from store import documents

Connection = AsyncConnection
Engine = AsyncEngine


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
