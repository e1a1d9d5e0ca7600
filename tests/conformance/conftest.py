"""Both providers, each started once, and the adapter on them as a worker wires it."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from decimal import Decimal

import psycopg
import pytest

from lab.stack import Stack
from store.budget import BudgetStore
from store.migrate import upgrade
from tests.conformance.hands import Hands
from tests.conformance.nova import NovaCloud
from tests.conformance.provider import REGION, Provider
from tests.conformance.simulated import SimulatedCloud
from tests.stack_fixtures import fresh_database, new_folder

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def simulated() -> Iterator[SimulatedCloud]:
    cloud = SimulatedCloud()
    yield cloud
    cloud.close()


@pytest.fixture(scope="session")
def nova() -> Iterator[NovaCloud]:
    """Started when the first test asks for it, which takes about 15 s."""
    folder = new_folder()
    cloud = NovaCloud(folder)
    yield cloud
    cloud.close()
    shutil.rmtree(folder)


@pytest.fixture(scope="session", params=[SimulatedCloud.name, NovaCloud.name])
def cloud(request: pytest.FixtureRequest) -> Provider:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Provider)
    return found


@pytest.fixture
def provider(cloud: Provider) -> Iterator[Provider]:
    """The provider without faults, before and after."""
    cloud.heals()
    yield cloud
    cloud.heals()


@pytest.fixture(scope="session")
def budget_dsn(stack: Stack) -> str:
    dsn = fresh_database(stack, "conformance_budget")
    upgrade(dsn)
    return dsn


@pytest.fixture
def budgets(budget_dsn: str) -> Iterator[BudgetStore]:
    """A bucket that is never the reason for a refusal, in a region that is well."""
    with psycopg.connect(budget_dsn) as connection:
        connection.execute("DELETE FROM provider_budgets")
    store = BudgetStore(budget_dsn, tenant_id="platform")
    store.set_budget(REGION, burst=10_000, refill_per_second=Decimal(100))
    yield store
    store.close()


@pytest.fixture
def hands(provider: Provider, budgets: BudgetStore) -> Iterator[Hands]:
    made = Hands(provider.settings(), budgets)
    yield made
    made.close()


@pytest.fixture
def workload() -> str:
    """A workload of this test alone, so that tests do not see each other's servers."""
    return f"w-{next(_numbers)}"
