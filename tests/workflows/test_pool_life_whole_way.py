"""A pool's life in a whole world: drained while its servers run, retired empty, and the audit is clean."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx2
from prometheus_client import CollectorRegistry

from activities.drain_calls import PoolDrained
from api.app import create_app
from api.deps import Deps
from api.sign_in.setup import SignIn
from api.temporal_starter import TemporalStarter
from domain.audit import Verdict
from domain.ids import pool_drain_workflow_id
from lab.seed import TENANT
from tests.api.door import Bearer, client_of, problem
from tests.api.sign_in.minting import verifier
from tests.workflows.fake_hands import comes_true
from tests.workflows.test_audit_whole_way import audited
from tests.world import POLICY, World

ANY = {"If-Match": "*"}
HELD = """
    SELECT r.pool_id FROM reservations r JOIN pools p USING (tenant_id, pool_id)
    WHERE r.workload_id = :workload AND r.units > 0 AND p.purchase_model = 'reclaimable'
    ORDER BY r.units DESC, 1 LIMIT 1
"""
PLACED = "SELECT coalesce(sum(units), 0) FROM reservations WHERE workload_id = :workload"
LOAD = """
    INSERT INTO cached_models (tenant_id, pool_id, model, loaded_at, last_used_at, vram_gb)
    VALUES ('platform', '{}', 'llama', now(), now(), 40) RETURNING model
"""
EVENTS = "SELECT topic FROM outbox WHERE key = :pool ORDER BY sequence"


@asynccontextmanager
async def front_door(world: World) -> AsyncIterator[httpx2.AsyncClient]:
    async def reachable() -> bool:
        return True

    deps = Deps(
        engine=world.engine,
        starter=TemporalStarter(world.client),
        temporal_reachable=reachable,
        now=utc_now,
        policy_in_force=lambda: POLICY,
    )
    async with client_of(
        create_app(deps, SignIn(verifier(utc_now)), CollectorRegistry()), Bearer(utc_now)
    ) as http:
        yield http


def utc_now() -> datetime:
    return datetime.now(UTC)


async def load(world: World, pool: str) -> None:
    async with world.engine.begin() as connection:
        await connection.exec_driver_sql(LOAD.format(pool))


def servers(world: World, pool: str) -> list[dict[str, Any]]:
    found = world.cloud.admin.servers(metadata={"sco_pool": pool})
    return [one for one in found if one["status"] != "DELETED"]


async def test_a_pool_with_running_units_is_drained_and_retired(world: World) -> None:
    workload = await world.workload(floor="0.1")
    assert (await world.place(workload, 42)).placed_units == 42
    ((pool,),) = await world.rows(HELD, workload=workload)
    await load(world, pool)
    assert servers(world, pool)
    async with front_door(world) as http:
        where = f"/factory/compute-pools/{pool}"
        tag = (await http.get(where)).headers["etag"]
        drained = await http.post(f"{where}/drain", headers={"If-Match": tag})
        assert drained.status_code == 200, drained.text
        refused = problem(await http.post(f"{where}/retire", headers=ANY), 409, "pool_holds")
        assert workload in refused["held"]["workloads"]

        async def is_drained() -> bool:
            return (await http.get(where)).json()["drainedAt"] is not None

        await comes_true(is_drained, "the pool is drained")
        assert servers(world, pool) == []
        retired = await http.post(f"{where}/retire", headers={"If-Match": drained.headers["etag"]})
        assert (retired.status_code, retired.json()["state"]) == (200, "retired"), retired.text
    assert await world.rows(PLACED, workload=workload) == [(42,)]
    told = [row[0].rpartition(".")[2] for row in await world.rows(EVENTS, pool=pool)]
    assert told[-4:] == [
        "compute-pool-state-changed",
        "model-evicted",
        "compute-pool-drained",
        "compute-pool-state-changed",
    ]
    handle = world.client.get_workflow_handle(pool_drain_workflow_id(TENANT, pool), result_type=PoolDrained)
    assert (await handle.result()).outcome == "drained"
    assert await world.problems() == []
    audit = await audited(world)
    assert (audit.report.verdict, audit.report.findings) == (Verdict.CLEAN, ())


async def test_a_resumed_pool_keeps_what_runs_there(world: World) -> None:
    """A model in use keeps the drain waiting; resuming ends it and the pool takes units again."""
    async with front_door(world) as http:
        ((pool,),) = await world.rows(
            "SELECT min(pool_id) FROM pool_capacity JOIN pools USING (tenant_id, pool_id)"
            " WHERE reserved_instances = 0 AND state = 'active' AND purchase_model = 'reclaimable'"
        )
        await load(world, pool)
        where = f"/factory/compute-pools/{pool}"
        assert (await http.post(f"{where}/drain", headers=ANY)).status_code == 200
        resumed = await http.post(f"{where}/resume", headers=ANY)
        assert (resumed.json()["state"], resumed.json()["drainingSince"]) == ("active", None)
        handle = world.client.get_workflow_handle(
            pool_drain_workflow_id(TENANT, pool), result_type=PoolDrained
        )
        assert (await handle.result()).outcome == "resumed"
        assert [one["model"] for one in (await http.get(where)).json()["held"]["models"]] == ["llama"]
    assert await world.problems() == []
