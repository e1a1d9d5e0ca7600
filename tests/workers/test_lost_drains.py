"""Drains whose start was lost are started by whoever serves pools, of every tenant, once."""

from __future__ import annotations

import asyncio

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

from domain.ids import SERVING_QUEUE, pool_drain_workflow_id
from domain.pool_life import PoolAction
from lab.stack import Stack
from store import pool_life
from store.engine import Engine
from tests.activities.deciding import halls
from tests.estates import Estate
from tests.workers.post_office import temporal
from workers.serving_chores import start_lost_drains

LOST, DONE = "eu-north-h2-p1", "eu-north-h2-p2"
TENANTS = ("platform", "acme")


async def test_lost_drains_of_every_tenant_are_started_once(
    estate: Estate, service_engine: Engine, stack: Stack
) -> None:
    """Of pools that drain, those that are drained already are left alone."""
    client = await temporal(stack.temporal_address)
    for tenant_id in TENANTS:
        own = Estate(estate.engine, estate.clock, tenant_id)
        await own.open(halls(), free=20)
        async with estate.engine.begin() as connection:
            for pool in (LOST, DONE):
                await pool_life.take_step(
                    connection, tenant_id, pool, PoolAction.DRAIN, None, by="ada", at=estate.clock()
                )
    await estate.rows("UPDATE pools SET drained_at = :at WHERE pool_id = :p", p=DONE, at=estate.clock())
    handles = [client.get_workflow_handle(pool_drain_workflow_id(one, LOST)) for one in TENANTS]
    stop = asyncio.Event()
    sweeping = asyncio.create_task(start_lost_drains(service_engine, client, stop, every_seconds=0.1))
    try:
        for _ in range(600):
            if all([await _runs(one.id, client) for one in handles]):
                break
            await asyncio.sleep(0.05)
        first = [await one.describe() for one in handles]
        await asyncio.sleep(0.5)
        again = [await one.describe() for one in handles]
        assert [one.run_id for one in first] == [one.run_id for one in again]
        assert {(one.workflow_type, one.task_queue) for one in first} == {("PoolDrain", SERVING_QUEUE)}
    finally:
        stop.set()
        await sweeping
        for one in handles:
            await one.terminate("the test is over")
    for tenant_id in TENANTS:
        with pytest.raises(RPCError, match="not found"):
            await client.get_workflow_handle(pool_drain_workflow_id(tenant_id, DONE)).describe()


async def _runs(workflow_id: str, client: Client) -> bool:
    try:
        described = await client.get_workflow_handle(workflow_id).describe()
    except RPCError:
        return False
    return described.status is WorkflowExecutionStatus.RUNNING
