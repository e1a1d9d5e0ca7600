"""A database of its own, with every table and no rows, for each test that asks for one."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import psycopg
import pytest
import pytest_asyncio
from psycopg import sql

from lab.logins import API_LOGIN, WORKER_LOGIN, dsn_of, ensure_logins
from lab.stack import Stack
from store import migrate
from store.engine import Engine, create_engine
from store.roles import SERVICE_ROLE, TENANT_ROLE
from store.tables import metadata
from tests.stack_fixtures import fresh_database

TEMPLATE = "sco_template"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def migrated(stack: Stack) -> str:
    """The name of a migrated database without rows, to copy."""
    migrate.upgrade(fresh_database(stack, TEMPLATE))
    return TEMPLATE


@pytest.fixture(scope="session")
def spare() -> list[str]:
    """DSNs of migrated databases that nobody uses and that hold no rows."""
    return []


@pytest.fixture
def dsn(stack: Stack, migrated: str, spare: list[str]) -> Iterator[str]:
    """The superuser's DSN of a migrated database without rows, for one test."""
    with empty_database(stack, migrated, spare) as own:
        yield own


@pytest.fixture(scope="module")
def shared_dsn(stack: Stack, migrated: str, spare: list[str]) -> Iterator[str]:
    """The same for all tests of a module, which must not meet each other's rows."""
    with empty_database(stack, migrated, spare) as own:
        yield own


@pytest.fixture
def service_dsn(stack: Stack, dsn: str) -> str:
    """The DSN of a worker's login to the test's own database."""
    ensure_logins(dsn, stack.data_dir)
    return dsn_of(WORKER_LOGIN, dsn, stack.data_dir)


@pytest.fixture
def api_dsn(stack: Stack, dsn: str) -> str:
    """The DSN of an API's login to the test's own database."""
    ensure_logins(dsn, stack.data_dir)
    return dsn_of(API_LOGIN, dsn, stack.data_dir)


@pytest_asyncio.fixture
async def engine(dsn: str) -> AsyncIterator[Engine]:
    """An engine on the test's own database."""
    async with opened(dsn) as own:
        yield own


@pytest_asyncio.fixture(scope="module")
async def shared_engine(shared_dsn: str) -> AsyncIterator[Engine]:
    """An engine on the module's database."""
    async with opened(shared_dsn) as own:
        yield own


@pytest_asyncio.fixture
async def tenant_engine(dsn: str) -> AsyncIterator[Engine]:
    """The engine of an API: it sees no rows until `of_tenant` names one."""
    async with opened(dsn, role=TENANT_ROLE) as own:
        yield own


@pytest_asyncio.fixture
async def service_engine(dsn: str) -> AsyncIterator[Engine]:
    """The engine of a worker: it sees the rows of every tenant."""
    async with opened(dsn, role=SERVICE_ROLE) as own:
        yield own


@contextmanager
def empty_database(stack: Stack, template: str, spare: list[str]) -> Iterator[str]:
    """A spare database or a copy of `template`. Its rows are deleted, which is faster than dropping it."""
    own = spare.pop() if spare else fresh_database(stack, f"sco_test_{next(_numbers)}", template)
    yield own
    with psycopg.connect(own) as owner:
        owner.execute("SET LOCAL lock_timeout = '5s'")
        owner.execute("SET LOCAL session_replication_role = replica")
        for table in metadata.tables:
            owner.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
    spare.append(own)


@contextmanager
def bare_database(stack: Stack) -> Iterator[str]:
    """A database without tables, dropped in the end."""
    name = f"sco_test_{next(_numbers)}"
    try:
        yield fresh_database(stack, name)
    finally:
        with psycopg.connect(stack.dsn("postgres"), autocommit=True) as owner:
            owner.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@asynccontextmanager
async def opened(dsn: str, *, pool_size: int = 10, role: str | None = None) -> AsyncIterator[Engine]:
    own = create_engine(dsn, pool_size=pool_size, role=role)
    try:
        yield own
    finally:
        await own.dispose()
