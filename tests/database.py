"""A database of its own, with every table and no rows, for each test that asks for one."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import psycopg
import pytest
import pytest_asyncio
from psycopg import sql

from lab.stack import Stack
from store import migrate
from store.engine import Engine, create_engine
from tests.stack_fixtures import fresh_database

TEMPLATE = "sco_template"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def migrated(stack: Stack) -> str:
    """The name of a migrated database without rows. Copying it takes a tenth of migrating a new one."""
    migrate.upgrade(fresh_database(stack, TEMPLATE))
    return TEMPLATE


@pytest.fixture
def dsn(stack: Stack, migrated: str) -> Iterator[str]:
    """The superuser's DSN of a migrated database for one test, dropped after it."""
    with one_database(stack, migrated) as own:
        yield own


@pytest.fixture(scope="module")
def shared_dsn(stack: Stack, migrated: str) -> Iterator[str]:
    """The same for all tests of a module, which must not meet each other's rows."""
    with one_database(stack, migrated) as own:
        yield own


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


@contextmanager
def one_database(stack: Stack, template: str | None = None) -> Iterator[str]:
    """A database with a name of its own, a copy of `template`, dropped in the end."""
    name = f"sco_test_{next(_numbers)}"
    yield fresh_database(stack, name, template)
    with psycopg.connect(stack.dsn("postgres"), autocommit=True) as owner:
        owner.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@asynccontextmanager
async def opened(dsn: str, *, pool_size: int = 10) -> AsyncIterator[Engine]:
    own = create_engine(dsn, pool_size=pool_size)
    yield own
    await own.dispose()
