"""The worker process: partitions, regions and the outbox pump of one control plane."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import structlog
import uvloop
from prometheus_client import REGISTRY, CollectorRegistry, start_http_server
from sqlalchemy.exc import OperationalError
from temporalio.worker import Worker

from activities.logs import configure_logs
from activities.policy_file import read_policy
from activities.starting import answer_help, refusals_told, settings_of
from domain.policy import Policy
from store.budget import BudgetStore
from store.engine import Engine, create_engine
from store.roles import SERVICE_ROLE, require_role
from workers.assemble import (
    CloudFileRefused,
    Wiring,
    connect,
    history_writer,
    open_provider,
    partition_worker,
    read_cloud_settings,
    region_worker,
    utc_now,
)
from workers.event_stream import StreamTerms
from workers.housekeeping import keep_tidy
from workers.notification_intake import NotificationIntake
from workers.outbox_pump import OutboxPump
from workers.promises import keep_reconciling
from workers.schedules import ensure_schedules
from workers.serving import open_serving, serving_chores, serving_worker
from workers.settings import WorkerSettings

LOOPBACK = "127.0.0.1"
log = structlog.get_logger("worker")


async def run(
    settings: WorkerSettings,
    policy: Policy,
    stop: asyncio.Event,
    registry: CollectorRegistry = REGISTRY,
) -> None:
    """Run until `stop` is set; running hands get a grace period to reach a safe point."""
    dsn = settings.database_url.get_secret_value()
    engine = create_engine(dsn, pool_size=settings.database_connections)
    async with AsyncExitStack() as opened:
        opened.push_async_callback(engine.dispose)
        client = await connect(settings)
        # Zero rows must never look like success, nor may a worker be able to change the schema.
        await require_role(engine, SERVICE_ROLE)
        wiring = Wiring(client, engine, settings, policy)
        workers = [partition_worker(wiring, one) for one in settings.partitions]
        if settings.cloud_file is not None:
            budgets = BudgetStore(dsn, tenant_id=settings.tenant_id, terms=policy.circuit)
            opened.callback(budgets.close)
            for region in settings.regions:
                await asyncio.to_thread(
                    budgets.set_budget,
                    region,
                    burst=settings.provider_burst,
                    refill_per_second=settings.provider_calls_per_second,
                )
            provider = open_provider(
                read_cloud_settings(settings.cloud_file), budgets, registry, circuit=policy.circuit
            )
            opened.callback(provider.close)
            workers += [region_worker(wiring, provider, one) for one in settings.regions]
        chores = [keep_tidy(engine, stop, now=utc_now, terms=policy.model_placement)]
        if settings.serving:
            ports = open_serving(settings, policy)
            opened.push_async_callback(ports.close)
            workers.append(serving_worker(wiring, ports))
            chores += serving_chores(wiring, ports, stop)
        if settings.metrics_port:
            server, _ = start_http_server(settings.metrics_port, LOOPBACK, registry)
            opened.callback(server.shutdown)
        await ensure_schedules(client, settings)
        chores += [pump.run(stop)] if (pump := _pump(settings, engine)) is not None else []
        if settings.nats_url:
            intake = NotificationIntake(
                engine, client, settings.nats_url, tenant_id=settings.tenant_id, now=utc_now
            )
            chores.append(intake.run(stop))
        if (writer := history_writer(settings, engine)) is not None:
            chores.append(writer.run(stop))
        else:
            log.info("history_writer_not_run", why="SCO_NODE_BUS_URL is not set")
        if settings.cloud_file is not None:
            chores.append(keep_reconciling(client, settings, stop))
        await _serve(workers, chores, stop)


def _pump(settings: WorkerSettings, engine: Engine) -> OutboxPump | None:
    if not settings.nats_url:
        return None
    terms = StreamTerms(
        max_age=timedelta(days=settings.events_stream_days),
        max_bytes=settings.events_stream_bytes,
        replicas=settings.events_stream_replicas,
    )
    keep = timedelta(days=settings.events_keep_days)
    return OutboxPump(engine, settings.nats_url, now=utc_now, keep=keep, terms=terms)


async def _serve(
    workers: list[Worker], chores: Sequence[Coroutine[Any, Any, None]], stop: asyncio.Event
) -> None:
    """Run every worker and chore; the first one that fails stops the process with its error."""
    tasks = [asyncio.create_task(worker.run(), name=worker.task_queue) for worker in workers]
    tasks += [asyncio.create_task(chore) for chore in chores]
    stopped = asyncio.create_task(stop.wait(), name="stop")
    log.info("worker_started", queues=[worker.task_queue for worker in workers], chores=len(chores))
    done, _ = await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    await asyncio.gather(*(worker.shutdown() for worker in workers))
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
    log.info("worker_stopped")


async def _main(settings: WorkerSettings, policy: Policy) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    await run(settings, policy, stop)


def main() -> int:
    """Entry of `sco-worker`: 0 when told to stop, 1 without a service, 2 for wrong settings."""
    answer_help("sco-worker", "A worker: workflows, activities, and the pumps beside them.", WorkerSettings)
    configure_logs()
    settings = settings_of("sco-worker", WorkerSettings)
    try:
        with refusals_told("sco-worker", {CloudFileRefused: "SCO_CLOUD_FILE"}):
            uvloop.run(_main(settings, read_policy(settings.policy_file)))
    except (OSError, OperationalError) as error:
        print(f"sco-worker: a service cannot be reached: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
