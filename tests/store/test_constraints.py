"""What the database refuses, whoever asks: the invariants that no caller can break."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from domain.placement.scoring import PoolInputs
from store.engine import Connection
from tests.domain.worlds import facts
from tests.estates import BROKEN_COUNTS, Estate

POOL, OTHER = "eu-north-h1-gp-m", "eu-north-h2-gp-m"
FREE = 3
INSERT_SLOT = """
    INSERT INTO instances (tenant_id, slot_key, workload_id, partition_id, pool_id, region, shape_key,
                           generation, batch_key, state, server_id)
    VALUES ('platform', :key, :workload, 'k8s-eu-north', :pool, 'eu-north', 'unit', 1, 'b-1', :state, :server)
"""
UPDATE_SLOT = "UPDATE instances SET {} WHERE tenant_id = 'platform' AND slot_key = 's-1'"


class Cellar:
    """One transaction on two pools with room for three instances each, and one workload with a claim."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def do(self, statement: str, **named: Any) -> None:
        await self._connection.execute(sa.text(statement), named)

    async def slot(
        self,
        key: str = "s-1",
        *,
        state: str = "planned",
        server: str | None = None,
        pool: str = POOL,
        workload: str = "orders",
    ) -> None:
        await self.do(INSERT_SLOT, key=key, state=state, server=server, pool=pool, workload=workload)

    async def refuses(self, why: str, statement: str, **named: Any) -> None:
        """The statement fails for this reason, and leaves every count as it was."""
        before = await self._connection.begin_nested()
        *first, last = statement.split("; ")
        for one in first:
            await self.do(one)
        with pytest.raises(IntegrityError, match=re.escape(why)):
            await self.do(last, **named)
        await before.rollback()
        assert (await self._connection.execute(sa.text(BROKEN_COUNTS))).all() == []

    async def reserved(self) -> int:
        query = sa.text("SELECT reserved_instances FROM pool_capacity WHERE pool_id = :pool")
        return int((await self._connection.execute(query, {"pool": POOL})).scalar_one())


@pytest_asyncio.fixture(scope="module")
async def two_pools(shared_estate: Estate) -> Estate:
    pools = [facts(POOL), facts(OTHER, hall="eu-north-h2", group="eu-north-h2-a1")]
    await shared_estate.open([PoolInputs(facts=one, free_instances=FREE) for one in pools], free=FREE)
    await shared_estate.workload()
    await shared_estate.claim(1)
    return shared_estate


@pytest_asyncio.fixture
async def cellar(two_pools: Estate) -> AsyncIterator[Cellar]:
    async with two_pools.engine.connect() as connection:
        yield Cellar(connection)
        await connection.rollback()


async def test_a_pool_is_never_booked_beyond_its_capacity(cellar: Cellar) -> None:
    for number in range(FREE):
        await cellar.slot(f"s-{number}")
    await cellar.refuses(
        "never_double_booked",
        INSERT_SLOT,
        key="s-3",
        state="planned",
        server=None,
        pool=POOL,
        workload="orders",
    )
    await cellar.do("UPDATE instances SET state = 'failed' WHERE slot_key = 's-0'")
    await cellar.slot("s-3")


async def test_a_statement_that_plans_too_many_plans_none(cellar: Cellar) -> None:
    statement = INSERT_SLOT.split("VALUES", maxsplit=1)[0] + (
        " SELECT 'platform', 's-' || n, 'orders', 'k8s-eu-north', :pool, 'eu-north', 'unit', 1, 'b-1',"
        " 'planned', NULL FROM generate_series(1, :count) n"
    )
    await cellar.refuses("never_double_booked", statement, pool=POOL, count=FREE + 1)
    await cellar.do(statement, pool=POOL, count=FREE)
    assert await cellar.reserved() == FREE


async def test_capacity_is_never_lowered_below_what_is_booked(cellar: Cellar) -> None:
    await cellar.slot()
    await cellar.refuses("never_double_booked", "UPDATE pool_capacity SET capacity_instances = 0")


@pytest.mark.parametrize(
    "change",
    [
        f"pool_id = '{OTHER}'",
        "workload_id = 'others'",
        "shape_key = 'other'",
        "slot_key = 's-2'",
        "tenant_id = 'others'",
        "server_id = 'server-2'",
        "server_id = NULL, state = 'releasing'",
    ],
)
async def test_a_slot_keeps_its_place_and_its_server(cellar: Cellar, change: str) -> None:
    await cellar.slot(state="building", server="server-1")
    await cellar.refuses("keeps its workload, pool and shape", UPDATE_SLOT.format(change))


@pytest.mark.parametrize("ended", ["gone", "failed"])
@pytest.mark.parametrize("state", ["planned", "building", "active", "releasing", "gone", "failed"])
async def test_an_ended_slot_stays_ended(cellar: Cellar, ended: str, state: str) -> None:
    await cellar.slot(state="active", server="server-1")
    await cellar.do(UPDATE_SLOT.format(f"state = '{ended}'"))
    if state == ended:
        await cellar.do(UPDATE_SLOT.format(f"state = '{state}', problem = 'told later'"))
    else:
        await cellar.refuses("its final state", UPDATE_SLOT.format(f"state = '{state}'"))


async def test_a_server_has_one_slot(cellar: Cellar) -> None:
    await cellar.slot(state="building", server="server-1")
    await cellar.slot("s-2")
    update = "UPDATE instances SET state = 'building', server_id = 'server-1' WHERE slot_key = 's-2'"
    await cellar.refuses("instances_server_id_key", update)
    await cellar.do(UPDATE_SLOT.format("state = 'failed'"))
    await cellar.refuses("instances_server_id_key", update)


@pytest.mark.parametrize("state", ["building", "active"])
async def test_nothing_runs_without_a_server(cellar: Cellar, state: str) -> None:
    await cellar.slot()
    await cellar.refuses("running_has_server", UPDATE_SLOT.format(f"state = '{state}'"))


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE reservations SET units = -1", "units_not_negative"),
        ("UPDATE reservations SET target_instances = -1", "instances_not_negative"),
        ("UPDATE instances SET state = 'nowhere'", "state_known"),
        ("UPDATE pools SET state = 'asleep'", "pools_state_known"),
        ("UPDATE pools SET purchase_model = 'borrowed'", "purchase_model_known"),
        ("UPDATE pools SET arch = 'mips'", "arch_known"),
        ("UPDATE pools SET kind = 'cellar'", "kind_known"),
        ("UPDATE pools SET security_boundary = 'open'", "security_boundary_known"),
        ("UPDATE pools SET guaranteed_price_per_hour_usd = 0", "guaranteed_price_positive"),
        ("UPDATE pools SET price_per_hour_usd = -0.01", "price_not_negative"),
        ("UPDATE pools SET cpu_cores = 0", "pools_sizes"),
        ("UPDATE pool_capacity SET standing = 'forgiven'", "standing_known"),
        ("UPDATE pool_capacity SET utilization = 1.01", "utilization_share"),
        ("UPDATE partitions SET scheduler = 'cron'", "scheduler_known"),
        ("UPDATE correlation_groups SET basis = 'guess'", "basis_known"),
        ("UPDATE workloads SET phase = 'resting'", "phase_known"),
        ("UPDATE workloads SET owner_team = ''", "has_owner"),
        ("UPDATE workloads SET planned_version = claim_version + 1", "planned_after_claimed"),
        ("UPDATE workloads SET contract_id = 'nobody'", "workloads_contracts_fkey"),
        ("UPDATE workloads SET partition_id = 'nowhere'", "workloads_partitions_fkey"),
        ("UPDATE contracts SET tier = 'T9'", "tier_known"),
        ("UPDATE contracts SET group_cap_share = pool_cap_share - 0.01", "group_cap_is_share"),
        ("UPDATE contracts SET group_cap_share = 1.01", "group_cap_is_share"),
        ("UPDATE contracts SET pool_cap_share = 0", "pool_cap_is_share"),
        ("UPDATE contracts SET floor_share = 1.01", "floor_is_share"),
        ("UPDATE contracts SET drain_budget_seconds = 116", "drain_fits_notice"),
        ("UPDATE contracts SET checkpoint_mode = 'sometimes'", "checkpoint_mode_known"),
        ("UPDATE contracts SET restart = 'later'", "restart_known"),
        ("UPDATE contracts SET final_write_seconds = drain_budget_seconds + 1", "final_write_fits_drain"),
        ("UPDATE contracts SET restart = 'resume', checkpoint_mode = 'none'", "resumes_from_checkpoint"),
        ("UPDATE claims SET units = -1", "units_not_negative"),
        ("UPDATE claims SET workload_id = 'nobody'", "claims_workloads_fkey"),
        (
            "INSERT INTO provider_budgets VALUES ('platform', 'r', 6, 5, 1, now())",
            "tokens_within_burst",
        ),
        (
            "INSERT INTO provider_budgets VALUES ('platform', 'r', -1, 5, 1, now())",
            "tokens_within_burst",
        ),
        ("INSERT INTO provider_budgets VALUES ('platform', 'r', 0, 5, 0, now())", "budget_positive"),
        (
            f"INSERT INTO pool_history VALUES ('platform', '{POOL}', now(), 0, 25)",
            "pool_history_counts",
        ),
        (
            f"INSERT INTO pool_history VALUES ('platform', '{POOL}', now(), -1, 24)",
            "pool_history_counts",
        ),
        (f"INSERT INTO cached_models VALUES ('platform', '{POOL}', 'm', now(), now(), 0)", "vram_positive"),
        ("DELETE FROM pools", "fkey"),
        ("DELETE FROM workloads", "fkey"),
        ("UPDATE reservations SET instances = 0", "follows the slots"),
        ("DELETE FROM reservations", "follows the slots"),
        (
            "INSERT INTO reservations VALUES ('platform', 'w', 'p', 's', 1, 1, 1, 1, 1)",
            "follows the slots",
        ),
        ("UPDATE pool_capacity SET reserved_instances = 0", "follows the slots"),
        ("DELETE FROM pool_capacity", "follows the slots"),
        ("INSERT INTO pool_capacity VALUES ('platform', 'p', 9, 1)", "follows the slots"),
        ("TRUNCATE instances", "follows the slots"),
    ],
)
async def test_what_cannot_be_is_refused(cellar: Cellar, statement: str, why: str) -> None:
    await cellar.slot()
    await cellar.refuses(why, statement)


async def test_slots_belong_to_known_workloads_and_pools(cellar: Cellar) -> None:
    named = {"key": "s-1", "state": "planned", "server": None}
    await cellar.refuses("fkey", INSERT_SLOT, workload="nobody", pool=POOL, **named)
    await cellar.refuses("fkey", INSERT_SLOT, workload="orders", pool="nowhere", **named)
