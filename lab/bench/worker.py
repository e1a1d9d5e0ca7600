"""The worker process of the durable benches: a real partition worker and the yardstick beside it."""

from __future__ import annotations

import asyncio
import sys

import uvloop

from activities.logs import configure_logs
from domain.policy import Policy
from lab.bench.yardstick import QUEUE, Yardstick, YardstickActivities
from store.engine import create_engine
from workers.assemble import PARTITION_SLOTS, Wiring, connect, make_worker, partition_worker
from workers.settings import WorkerSettings


async def run(settings: WorkerSettings) -> None:
    engine = create_engine(settings.database_url.get_secret_value(), pool_size=settings.database_connections)
    client = await connect(settings)
    yardstick = YardstickActivities(engine)
    await yardstick.prepare()
    wiring = Wiring(client, engine, settings, Policy())
    workers = [partition_worker(wiring, one) for one in settings.partitions]
    workers.append(
        make_worker(
            client,
            QUEUE,
            settings,
            slots=PARTITION_SLOTS,
            workflows=[Yardstick],
            activities=[yardstick.first, yardstick.second],
        )
    )
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.gather(*(worker.run() for worker in workers))


if __name__ == "__main__":
    configure_logs()
    uvloop.run(run(WorkerSettings()))
