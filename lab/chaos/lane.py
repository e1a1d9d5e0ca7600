"""What cases run on, one after another: a cloud, a database, and servers of others in both's way."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from uuid import uuid4

import sqlalchemy as sa

from activities.openstack.flavors import FlavorBook
from domain.placement.scoring import PoolInputs, rank
from domain.policy import ScoringPolicy
from domain.pool import PoolState
from domain.tags import MANAGED_TAG, server_tags
from lab.bench.estate import TENANT, facts
from lab.chaos.terms import CLOUD_SPEED, Terms
from lab.cloud.cloud import Cloud
from lab.cloud.estate import stable_id
from lab.cloud.identity import PROJECT_ID, USER_ID
from lab.cloud.launch import Launch, launch
from lab.cloud.records import Server, Status
from lab.cloud.server import CloudHandle
from lab.cloud.settings import CloudSettings
from store import observations, partitions, rankings, registry
from store.budget import BudgetStore
from store.engine import Engine, create_engine
from store.observations import PoolReport
from store.tables import metadata

REGION = "eu-north"
OTHER_TENANT = "another"
# Pools of one unit per instance, two correlation groups' worth in each of four halls.
FAMILIES, SIZE = ("gp", "mm"), "s"
FREE_INSTANCES = 15


@dataclass
class Lane:
    """One cloud and one database. One case at a time runs on it, and leaves nothing behind."""

    cloud: CloudHandle
    dsn: str
    engine: Engine
    budgets: BudgetStore
    terms: Terms
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    flavors: FlavorBook | None = None
    closing: list[Callable[[], None]] = field(default_factory=list)

    @classmethod
    async def open(cls, dsn: str, terms: Terms | None = None) -> Lane:
        """A lane on a migrated database without rows."""
        chosen = terms or Terms()
        cloud = CloudHandle.start_in_thread(CloudSettings(speed=CLOUD_SPEED))
        budgets = BudgetStore(dsn, tenant_id=TENANT, terms=chosen.circuit)
        lane = cls(cloud, dsn, create_engine(dsn), budgets, chosen)
        await lane._furnish()
        return lane

    async def close(self) -> None:
        for close in self.closing:
            close()
        await self.engine.dispose()
        self.budgets.close()
        self.cloud.stop()

    async def reset(self) -> None:
        """Forget everything, as a new lane."""
        self.empty()
        async with self.engine.begin() as connection:
            await connection.execute(sa.text("SET LOCAL session_replication_role = replica"))
            for table in metadata.tables:
                await connection.execute(sa.text(f'DELETE FROM "{table}"'))  # noqa: S608 - our own names
        await self._furnish()

    def empty(self) -> None:
        """The next case meets no server of this one."""
        self.cloud.call(_empty)

    async def _furnish(self) -> None:
        self.budgets.set_budget(REGION, burst=self.terms.burst, refill_per_second=self.terms.calls_per_second)
        async with self.engine.begin() as connection:
            await registry.register_pools(connection, [one.facts for one in pool_inputs()], PoolState.ACTIVE)

    async def open_partition(self, partition_id: str) -> None:
        """A partition with a ranking, and pools that were seen just now."""
        inputs = list(pool_inputs())
        ranking = rank(str(uuid4()), partition_id, inputs, ScoringPolicy())
        async with self.engine.begin() as connection:
            await partitions.put_partition(
                connection,
                tenant_id=TENANT,
                partition_id=partition_id,
                region=REGION,
                scheduler="kubernetes",
            )
            await rankings.save_ranking(connection, TENANT, ranking, inputs)
            await observations.report_pools(
                connection, TENANT, [_report(one) for one in inputs], datetime.now(UTC)
            )

    def place_foreign(self, partition_id: str, workload_id: str) -> list[str]:
        """Servers that others own in the same project, some made to look like ours; their ids."""
        ours = {
            "sco_tenant": TENANT,
            "sco_partition": partition_id,
            "sco_workload": workload_id,
            "sco_batch": f"{workload_id}/1/look-alike",
            "sco_pool": f"{REGION}-h1-gp-s",
            "sco_shape": "4000-16384-0",
            "sco_units": "1",
            "sco_generation": "1",
        }
        tags = server_tags(partition_id, workload_id, "reclaimable")
        others: tuple[tuple[tuple[str, ...], dict[str, str]], ...] = (
            ((), {}),
            (("billing",), {"owner": "billing"}),
            # Ours in everything but the tags: who carries no tag of ours was never launched by us.
            ((), ours),
            # Tagged by another control plane that uses the same names.
            (tags, ours | {"sco_tenant": OTHER_TENANT}),
            (server_tags("another", workload_id, "reclaimable"), ours | {"sco_partition": "another"}),
            ((MANAGED_TAG,), {}),
        )
        return [self.put_server(each, metadata) for each, metadata in others]

    def put_server(self, tags: tuple[str, ...], metadata: dict[str, str], hall: int = 1) -> str:
        """One ACTIVE server with these labels; its id."""
        return self.cloud.call(lambda cloud: _put(cloud, tags, metadata, f"{REGION}-h{hall}"))


def _empty(cloud: Cloud) -> None:
    region = cloud.regions[REGION]
    for server in list(region.servers.live()):
        region.gone(server, region.now())


def _put(cloud: Cloud, tags: tuple[str, ...], metadata: dict[str, str], hall: str) -> str:
    region = cloud.regions[REGION]
    flavor = next(one for one in region.flavors.values() if one.name == f"gp.{SIZE}.reclaimable")
    order = Launch(
        name="another",
        flavor=flavor,
        image_id=stable_id("image", "node"),
        project_id=PROJECT_ID,
        user_id=USER_ID,
        request_id="req-another",
        zone=hall,
        metadata=metadata,
        tags=tags,
    )
    (server,) = launch(region, order)[1]
    server.wait_for(None, None)
    server.status, server.task_state, server.launched_at = Status.ACTIVE, None, server.created_at
    region.servers.changed(server)
    return server.id


@cache
def pool_inputs() -> tuple[PoolInputs, ...]:
    return tuple(
        PoolInputs(facts=one, free_instances=FREE_INSTANCES)
        for one in facts()
        if one.region == REGION
        and one.sku_family in FAMILIES
        and one.size == SIZE
        and one.purchase_model == "reclaimable"
    )


def _report(one: PoolInputs) -> PoolReport:
    return PoolReport(
        pool_id=one.facts.pool_id,
        free_instances=FREE_INSTANCES,
        free_24h_instances=FREE_INSTANCES,
        quota_instances=None,
        price_per_hour_usd=one.facts.price_per_hour_usd,
        guaranteed_price_per_hour_usd=one.facts.guaranteed_price_per_hour_usd,
    )


def servers_of(cloud: Cloud, partition_id: str) -> list[Server]:
    """Every server that says it is of a partition of ours, deleted ones included."""
    wanted = {"sco_partition": partition_id, "sco_tenant": TENANT}
    return [
        server for server in cloud.regions[REGION].servers.all() if wanted.items() <= server.metadata.items()
    ]
