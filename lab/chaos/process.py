"""The hands of one process on a lane, as the worker of the product wires them."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from activities.acquiring import AcquiringActivities
from activities.adopting import Adoptions
from activities.finishing import FinishingActivities
from activities.launching import Launcher
from activities.openstack.budget import StoreTokenBudget
from activities.openstack.catalog import OpenStackCatalog
from activities.openstack.compute import NovaCompute
from activities.openstack.flavors import FlavorBook
from activities.openstack.metrics import ProviderMetrics
from activities.openstack.session import Connections
from activities.openstack.settings import CloudSettings as ProviderSettings
from activities.placing import PlacingActivities
from activities.provider_acts import ProviderActs
from activities.reconciling import ReconcilingActivities
from activities.repairing import Poke, Repairs
from domain.pool import Arch
from lab.chaos.killing import Fuse, FusedBudget, FusedEngine
from lab.chaos.lane import REGION, Lane
from lab.chaos.terms import MAX_BUDGET_WAIT_SECONDS, POLL_SECONDS, READ_TIMEOUT_SECONDS
from lab.cloud.server import CloudHandle
from lab.control_plane import IMAGE


class Process:
    """The hands of one process: everything that is in memory only, and ends with it."""

    def __init__(
        self,
        lane: Lane,
        fuse: Fuse,
        poke: Poke,
        *,
        identity: str,
        read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.fuse = fuse
        terms = lane.terms
        engine: Any = FusedEngine(lane.engine, fuse)
        metrics = ProviderMetrics(CollectorRegistry())
        budget = _budget(lane, metrics, identity)
        settings = provider_settings(lane.cloud, read_timeout_seconds)
        self.connections = Connections(settings, FusedBudget(budget, fuse), metrics, now=now)
        flavors = flavors_of(lane)
        self.compute = NovaCompute(settings, self.connections, flavors)
        catalog = OpenStackCatalog(settings, self.connections, flavors)
        self.acts = ProviderActs(
            engine,
            self.compute,
            identity=identity,
            terms=terms.reconcile,
            settle_seconds=terms.acquisition.settle_seconds,
            now=now,
        )
        launcher = Launcher(
            engine,
            catalog,
            self.acts,
            terms=terms.acquisition,
            backoff=terms.placement,
            now=now,
        )
        self.acquiring = AcquiringActivities(
            engine,
            self.compute,
            self.acts,
            launcher,
            identity=identity,
            terms=terms.acquisition,
            now=now,
            poll_seconds=POLL_SECONDS,
        )
        self.repairs = Repairs(
            engine,
            self.compute,
            self.acts,
            poke,
            identity=identity,
            terms=terms.reconcile,
            backoff=terms.placement,
            now=now,
        )
        self.reconciling = ReconcilingActivities(
            engine,
            self.compute,
            Adoptions(engine, identity=identity, now=now),
            self.repairs,
            terms=terms.reconcile,
            now=now,
        )
        self.placing = PlacingActivities(engine, policy=terms.placement, now=now)
        self.finishing = FinishingActivities(engine)


def flavors_of(lane: Lane) -> FlavorBook:
    """The flavors of a lane, read once: they never change, and cost more than all else that a start does."""
    if lane.flavors is None:
        metrics = ProviderMetrics(CollectorRegistry())
        settings = provider_settings(lane.cloud, READ_TIMEOUT_SECONDS)
        connections = Connections(
            settings, _budget(lane, metrics, "flavors"), metrics, now=lambda: datetime.now(UTC)
        )
        lane.flavors = FlavorBook(connections)
        lane.closing.append(connections.close)
    return lane.flavors


def _budget(lane: Lane, metrics: ProviderMetrics, identity: str) -> StoreTokenBudget:
    return StoreTokenBudget(
        lane.budgets,
        metrics,
        max_wait_seconds=MAX_BUDGET_WAIT_SECONDS,
        rng=random.Random(identity),
        terms=lane.terms.circuit,
    )


def provider_settings(cloud: CloudHandle, read_timeout_seconds: float) -> ProviderSettings:
    known = cloud.credentials
    return ProviderSettings.model_validate(
        {
            "auth_url": known.auth_url,
            "regions": [REGION],
            "images": {arch.value: IMAGE for arch in Arch},
            "username": known.username,
            "password": SecretStr(known.password),
            "project": known.project_name,
            "read_timeout_seconds": read_timeout_seconds,
        }
    )
