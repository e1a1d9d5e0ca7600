"""Both providers, each started once, and the adapter on them as a worker wires it."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from decimal import Decimal

import psycopg
import pytest

from lab.openstack.blazar import RunningBlazar
from lab.openstack.site import HOST_GROUPS
from lab.stack import Stack
from store.budget import BudgetStore
from store.migrate import upgrade
from tests.conformance import lessor
from tests.conformance.hands import Hands
from tests.conformance.lessor import Lessor
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


@pytest.fixture(scope="session")
def blazar(nova: NovaCloud) -> Iterator[int]:
    """Started beside Nova when the first test asks for it; the instances that its host holds."""
    folder = new_folder()
    with RunningBlazar.start(folder / "blazar", nova.running) as running:
        running.take_host(lessor.HOST, sku=lessor.SKU)
        yield next(group.vcpus for group in HOST_GROUPS if group.name == lessor.HOST) // lessor.VCPUS
    shutil.rmtree(folder)


@pytest.fixture(name="lessor")
def a_lessor(request: pytest.FixtureRequest, provider: Provider, hands: Hands) -> Iterator[Lessor]:
    """With a calendar that is empty but for what the provider booked before."""
    if isinstance(provider, NovaCloud):
        instances = request.getfixturevalue("blazar")
    else:
        hosts = provider.own.session.get("/os-hosts", endpoint_filter=lessor.WHERE).json()["hosts"]
        instances = next(each["instances"] for each in hosts if each["hypervisor_hostname"] == lessor.HOST)
    made = Lessor(provider, hands, instances)
    yield made
    made.close()


@pytest.fixture
def workload() -> str:
    """A workload of this test alone, so that tests do not see each other's servers."""
    return f"w-{next(_numbers)}"
