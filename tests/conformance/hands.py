"""The adapter, and what its tests say over and over."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from activities.openstack.budget import StoreTokenBudget
from activities.openstack.catalog import OpenStackCatalog
from activities.openstack.compute import NovaCompute
from activities.openstack.flavors import FlavorBook
from activities.openstack.metrics import ProviderMetrics
from activities.openstack.session import Connections
from activities.openstack.settings import CloudSettings
from activities.ports import BatchSpec, ProviderError, Server
from domain.acquisition import ServerStatus
from domain.tags import MANAGED_TAG, workload_tag
from store.budget import BudgetStore
from tests.conformance.provider import FLAVOR, HALL, REGION

SETTLE_SECONDS = 60.0
POLL_SECONDS = 0.2
T = TypeVar("T")


class Hands:
    """Compute and catalog on one cloud, with the budget that all processes share."""

    def __init__(self, settings: CloudSettings, budgets: BudgetStore) -> None:
        metrics = ProviderMetrics(CollectorRegistry())
        budget = StoreTokenBudget(budgets, metrics, max_wait_seconds=10, rng=random.Random(7))
        self.connections = Connections(settings, budget, metrics, now=lambda: datetime.now(UTC))
        flavors = FlavorBook(self.connections)
        self.compute = NovaCompute(settings, self.connections, flavors)
        self.catalog = OpenStackCatalog(settings, self.connections, flavors)

    def close(self) -> None:
        self.connections.close()

    def warm(self) -> None:
        """Sign in and read the flavors, so that the next call is the one that is tested."""
        self.catalog.catalog(REGION)

    def token(self) -> str:
        with self.connections.calling(REGION, "read the token") as client:
            return str(client.session.get_token())

    def settled(self, workload_id: str) -> Sequence[Server]:
        """The servers of a workload, once none of them builds or goes."""
        moving = (ServerStatus.BUILDING, ServerStatus.DELETING)
        return until(
            lambda: self.compute.list_workload(REGION, workload_id),
            lambda listed: not any(server.status in moving for server in listed),
        )

    def running(self, workload_id: str, count: int, **changes: Any) -> list[str]:
        """The ids of so many new servers that run."""
        self.compute.create_batch(spec(workload_id, **changes), count)
        listed = self.settled(workload_id)
        assert [server.status for server in listed] == [ServerStatus.ACTIVE] * count
        return [server.server_id for server in listed]


def until(ask: Callable[[], T], enough: Callable[[T], bool]) -> T:
    """Ask until the answer is enough; the last answer after a minute."""
    deadline = time.monotonic() + SETTLE_SECONDS
    answer = ask()
    while not enough(answer) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        answer = ask()
    return answer


def spec(
    workload_id: str,
    batch_key: str | None = None,
    metadata: Mapping[str, str] | None = None,
    tags: tuple[str, ...] = (),
    **changes: Any,
) -> BatchSpec:
    """A batch of FLAVOR in HALL, as a decision would write it."""
    key = batch_key or f"{workload_id}-b1"
    values: dict[str, Any] = {
        "batch_key": key,
        "region": REGION,
        "hall": HALL,
        "flavor": FLAVOR,
        "name_prefix": f"sco-{workload_id}-g1",
        "metadata": {
            "sco_batch": key,
            "sco_workload": workload_id,
            "sco_pool": f"{HALL}-gp-m",
            **(metadata or {}),
        },
        "tags": (MANAGED_TAG, workload_tag(workload_id), *tags),
        "user_data": "#cloud-config\n{}\n",
    }
    return BatchSpec(**{**values, **changes})


def caught(call: Callable[..., object], *args: Any) -> ProviderError:
    """The ProviderError that the call must raise."""
    try:
        call(*args)
    except ProviderError as error:
        return error
    raise AssertionError("the call succeeded")
