"""A cloud of its own for each test, and budgets in real Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import psycopg
import pytest

from lab.cloud.server import CloudHandle
from lab.cloud.settings import CloudSettings as LabSettings
from lab.stack import Stack
from store.budget import BudgetStore
from store.migrate import upgrade
from tests.activities.openstack.hands import REGION, Hands
from tests.stack_fixtures import fresh_database


@pytest.fixture
def cloud() -> Iterator[CloudHandle]:
    """A cloud whose clock moves only when it is advanced."""
    with CloudHandle.start_in_thread(LabSettings(speed=0)) as handle:
        yield handle


@pytest.fixture
def hands(cloud: CloudHandle) -> Iterator[Hands]:
    made = Hands(cloud)
    yield made
    made.connections.close()


@pytest.fixture(scope="session")
def budget_dsn(stack: Stack) -> str:
    dsn = fresh_database(stack, "openstack_budget")
    upgrade(dsn)
    return dsn


@pytest.fixture
def budgets(budget_dsn: str) -> Iterator[BudgetStore]:
    """A full bucket with plenty of tokens that practically does not refill."""
    with psycopg.connect(budget_dsn) as connection:
        connection.execute("DELETE FROM provider_budgets")
    store = BudgetStore(budget_dsn, tenant_id="platform")
    store.set_budget(REGION, burst=1_000, refill_per_second=Decimal("0.001"))
    yield store
    store.close()
