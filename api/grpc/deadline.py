"""The deadline of a call, as Postgres is told it: work that nobody waits for any more ends there too."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import sqlalchemy as sa

from store.engine import Engine

# Postgres gives up a little earlier than we do: a statement that it cancels keeps its connection usable,
# one that we cancel costs the connection.
MARGIN_SECONDS = 0.1
LEAST_MS = 10
_ENDS_AT: ContextVar[float | None] = ContextVar("deadline", default=None)


@contextmanager
def ends_in(seconds: float) -> Iterator[None]:
    """Transactions that begin in this block end within this time."""
    token = _ENDS_AT.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _ENDS_AT.reset(token)


def bound_statements(engine: Engine) -> None:
    """Let every transaction of this engine heed the deadline of its call."""
    sa.event.listen(engine.sync_engine, "begin", _set_timeout)


def _set_timeout(connection: sa.Connection) -> None:
    ends_at = _ENDS_AT.get()
    if ends_at is not None:
        left_ms = int((ends_at - MARGIN_SECONDS - time.monotonic()) * 1000)
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {max(LEAST_MS, left_ms)}")
