"""The OpenStack hands on a simulated cloud, wired as a worker wires them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from threading import Lock
from typing import Any
from uuid import UUID

from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from activities.openstack.budget import StoreTokenBudget
from activities.openstack.catalog import OpenStackCatalog
from activities.openstack.compute import NovaCompute
from activities.openstack.flavors import FlavorBook
from activities.openstack.metrics import ProviderMetrics
from activities.openstack.session import Connections
from activities.openstack.settings import CloudSettings
from activities.ports import BatchSpec, ProviderError, TokenBudget
from domain.circuit import Outcome
from domain.pool import Arch
from domain.tags import MANAGED_TAG, workload_tag
from lab.cloud.server import CloudHandle
from store.budget import BudgetStore

REGION, HALL = "eu-north", "eu-north-h1"
FLAVOR, POOL = "gp.m.reclaimable", "eu-north-h1-gp-m"
IMAGES = {arch: UUID("6f1b1d52-2a3e-4a1c-8f62-0d7d2b0c9a11") for arch in Arch}


class CountingBudget:
    """A budget without a limit that counts what was taken and keeps what was reported."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        self.reported: list[tuple[str, Outcome, float | None]] = []
        self._lock = Lock()

    def take(self, region: str) -> None:
        with self._lock:
            self.taken[region] += 1

    def report(self, region: str, outcome: Outcome, retry_after_seconds: float | None) -> None:
        with self._lock:
            self.reported.append((region, outcome, retry_after_seconds))


def settings_for(cloud: CloudHandle, **changes: Any) -> CloudSettings:
    """Settings that sign in with the lab's password, unless `changes` says otherwise."""
    known = cloud.credentials
    values: dict[str, Any] = {
        "auth_url": known.auth_url,
        "regions": known.regions,
        "images": IMAGES,
        "username": known.username,
        "password": SecretStr(known.password),
        "project": known.project_name,
    }
    return CloudSettings(**{**values, **changes})


class Hands:
    """Compute, catalog and what they share, on one cloud."""

    def __init__(self, cloud: CloudHandle, budget: TokenBudget | None = None, **changes: Any) -> None:
        self.counted = CountingBudget()
        self.registry = CollectorRegistry()
        settings = settings_for(cloud, **changes)
        self.connections = Connections(
            settings, budget or self.counted, ProviderMetrics(self.registry), now=lambda: datetime.now(UTC)
        )
        flavors = FlavorBook(self.connections)
        self.compute = NovaCompute(settings, self.connections, flavors)
        self.catalog = OpenStackCatalog(settings, self.connections, flavors)

    def calls(self) -> Counter[str]:
        """Calls by outcome, all regions together, as the metrics count them."""
        return Counter(
            {
                sample.labels["outcome"]: int(sample.value)
                for metric in self.registry.collect()
                for sample in metric.samples
                if sample.name == "sco_provider_calls_total"
            }
        )


def store_budget(store: BudgetStore, *, max_wait_seconds: float = 30.0) -> StoreTokenBudget:
    """The real budget with a registry of its own."""
    metrics = ProviderMetrics(CollectorRegistry())
    return StoreTokenBudget(store, metrics, max_wait_seconds=max_wait_seconds, rng=random.Random(7))


def spec(
    batch_key: str = "b-1",
    workload_id: str = "render",
    metadata: Mapping[str, str] | None = None,
    tags: tuple[str, ...] = (),
    **changes: Any,
) -> BatchSpec:
    """A batch of one reclaimable pool in the first hall."""
    values: dict[str, Any] = {
        "batch_key": batch_key,
        "region": REGION,
        "hall": HALL,
        "flavor": FLAVOR,
        "name_prefix": f"sco-{workload_id}-g1",
        "metadata": {
            "sco_batch": batch_key,
            "sco_workload": workload_id,
            "sco_pool": POOL,
            **(metadata or {}),
        },
        "tags": (MANAGED_TAG, workload_tag(workload_id), *tags),
        "user_data": "#cloud-config\n{}\n",
    }
    return BatchSpec(**{**values, **changes})


def seen_by(cloud: CloudHandle) -> Counter[str]:
    """Requests that the cloud received, by region; logins count under `identity`."""
    regions = cloud.admin.requests()["regions"]
    return Counter({region: int(found["total"]) for region, found in regions.items()})


def caught(call: Any, *args: Any) -> ProviderError:
    """The ProviderError that the call must raise."""
    try:
        call(*args)
    except ProviderError as error:
        return error
    raise AssertionError("the call succeeded")
