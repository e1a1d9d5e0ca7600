"""Connections that died with their server while nobody used them, found out before they are used again.

To ask the server would cost as much as the statement that follows. What is dead has been told so: its socket
has something to read that nobody asked for. Only then is the server asked, and after long idleness, since a
network between may have dropped the connection without a word.
"""

from __future__ import annotations

import select
import time
from typing import Any

import sqlalchemy as sa
from psycopg import AsyncConnection, Error
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import ConnectionPoolEntry

IDLE_SECONDS = 30.0
_IDLE_SINCE = "sco_idle_since"


def replace_lost(engine: AsyncEngine) -> None:
    """From now on who takes a connection of this engine gets one that is there, or a new one."""
    dialect = engine.dialect

    def given_back(_: DBAPIConnection | None, entry: ConnectionPoolEntry) -> None:
        entry.info[_IDLE_SINCE] = time.monotonic()

    def taken(connection: DBAPIConnection, entry: ConnectionPoolEntry, *_: Any) -> None:
        idle_since = entry.info.get(_IDLE_SINCE)
        if idle_since is None:
            return
        try:
            if time.monotonic() - idle_since > IDLE_SECONDS or _was_told(entry.driver_connection):
                dialect.do_ping(connection)
        except Error as error:
            raise InvalidatePoolError(f"the connection is lost: {type(error).__name__}") from error

    sa.event.listen(engine.sync_engine, "checkin", given_back)
    sa.event.listen(engine.sync_engine, "checkout", taken)


def _was_told(driver: Any) -> bool:
    """Whether the server said something since the last answer; raises where the connection is closed."""
    assert isinstance(driver, AsyncConnection)
    poller = select.poll()
    poller.register(driver.fileno(), select.POLLIN)
    return bool(poller.poll(0))
