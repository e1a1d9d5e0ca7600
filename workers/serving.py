"""The worker of serving pools: one queue for the pools of all tenants, and what is done beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx2
from temporalio.worker import Worker

from activities.collecting import CollectingActivities
from activities.draining import DrainingActivities
from activities.model_holding import ModelHoldingActivities
from activities.model_loading import ModelLoading
from activities.placement_start import PlacementPoke
from activities.pool_gauges import PoolGauges
from activities.probing import ProbingActivities
from activities.reporting import report_endpoint
from activities.secrets.openbao import OpenBaoSecrets
from activities.secrets.ports import Credential, NoCredential, Secrets
from activities.secrets.settings import read_secrets_settings
from activities.serving.http import HttpServing
from activities.serving.ports import ServingPort
from activities.usage_sinks import HttpUsageSink, NoUsageSink, UsageSink
from activities.warm_keeping import WarmKeepingActivities
from domain.ids import SERVING_QUEUE
from domain.policy import Policy
from workers.assemble import Wiring, make_worker, utc_now
from workers.report_intake import ReportIntake
from workers.serving_chores import (
    ReportedProbes,
    keep_pools_warm,
    show_pools,
    start_lost_drains,
    start_lost_placements,
)
from workers.settings import WorkerSettings
from workflows.collector import Collector
from workflows.model_placement import ModelPlacement
from workflows.pool_drain import PoolDrain
from workflows.pool_health import PoolHealth
from workflows.warm_keep import WarmKeep

WORKFLOWS: Sequence[type] = (Collector, PoolHealth, PoolDrain, WarmKeep, ModelPlacement)
# A load waits for minutes and does nothing meanwhile; so many of them must not hold up a probe. One round of
# probes is one hand, and what it asks at the same time is bounded by the policy.
SLOTS = 1000


@dataclass(frozen=True, slots=True)
class ServingPorts:
    """What hands of serving pools reach outside, however it is filled. Close it in the end."""

    serving: ServingPort
    secrets: Secrets
    usage: UsageSink
    close: Callable[[], Awaitable[None]]


class NoSecrets:
    """Without a secrets service endpoints are asked without a credential."""

    async def endpoint_credential(self, tenant_id: str, pool_id: str) -> Credential:
        raise NoCredential(
            f"no secrets service is set up, so there is no credential for {tenant_id}/{pool_id}"
        )


def open_serving(settings: WorkerSettings, policy: Policy) -> ServingPorts:
    """The ports as settings say; `SecretsFileRefused` for a file that cannot be used."""
    secrets: Secrets = NoSecrets()
    closing: list[Callable[[], None]] = []
    if settings.secrets_file is not None:
        openbao = OpenBaoSecrets(read_secrets_settings(settings.secrets_file), now=utc_now)
        closing.append(openbao.close)
        secrets = openbao
    client = httpx2.AsyncClient(trust_env=False, follow_redirects=False)
    usage: UsageSink = NoUsageSink()
    if settings.usage_url is not None:
        usage = HttpUsageSink(client, settings.usage_url)

    async def close() -> None:
        for each in closing:
            each()
        await client.aclose()

    return ServingPorts(HttpServing(policy.endpoints), secrets, usage, close)


def probing(wiring: Wiring, ports: ServingPorts) -> ProbingActivities:
    return ProbingActivities(
        wiring.engine, ports.serving, ports.secrets, terms=wiring.policy.health, now=utc_now
    )


def model_loading(wiring: Wiring, ports: ServingPorts) -> ModelLoading:
    return ModelLoading(
        wiring.engine,
        ports.serving,
        ports.secrets,
        terms=wiring.policy.warm_keep,
        now=utc_now,
        new_key=uuid4,
    )


def model_holding(wiring: Wiring) -> ModelHoldingActivities:
    async def report(tenant_id: str, pool_tenant_id: str, pool_id: str, problem: str) -> None:
        """A pool that is gone, or has lost its endpoint, needs no report."""
        with suppress(LookupError):
            await report_endpoint(
                wiring.engine,
                tenant_id,
                pool_tenant_id,
                pool_id,
                problem,
                utc_now(),
                terms=wiring.policy.health,
            )

    return ModelHoldingActivities(wiring.engine, report, now=utc_now)


def serving_worker(wiring: Wiring, ports: ServingPorts) -> Worker:
    """Workflows and hands that see to serving pools."""
    collecting = CollectingActivities(wiring.engine, ports.usage, policy=wiring.policy, now=utc_now)
    models = model_loading(wiring, ports)
    told = PlacementPoke(wiring.client).pool_drains
    draining = DrainingActivities(wiring.engine, told, models, terms=wiring.policy.drain, now=utc_now)
    keeping = WarmKeepingActivities(wiring.engine, models, terms=wiring.policy.warm_keep, now=utc_now)
    holding = model_holding(wiring)
    return make_worker(
        wiring.client,
        SERVING_QUEUE,
        wiring.settings,
        slots=SLOTS,
        workflows=WORKFLOWS,
        activities=[
            collecting.collect,
            probing(wiring, ports).probe_pools,
            draining.drain_pool,
            models.load_model,
            keeping.look_at_models,
            holding.look,
            holding.record_load,
            holding.fail,
        ],
    )


def serving_chores(
    wiring: Wiring, ports: ServingPorts, stop: asyncio.Event
) -> list[Coroutine[Any, Any, None]]:
    """What runs beside the queue until `stop` is set."""
    settings, policy = wiring.settings, wiring.policy
    reported = ReportedProbes(wiring.engine, probing(wiring, ports), terms=policy.health, now=utc_now)
    chores = [
        show_pools(PoolGauges(wiring.engine), stop, settings.collector_seconds),
        reported.run(stop),
        start_lost_drains(wiring.engine, wiring.client, stop),
        keep_pools_warm(wiring.engine, wiring.client, stop),
        start_lost_placements(wiring.engine, wiring.client, stop, now=utc_now),
    ]
    if settings.nats_url is not None:
        intake = ReportIntake(wiring.engine, settings.nats_url, now=utc_now, terms=policy.utilization)
        chores.append(intake.run(stop))
    return chores
