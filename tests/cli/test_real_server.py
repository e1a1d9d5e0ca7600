"""The command line against the real API over a real database: the examples, from contract to replay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from decimal import Decimal
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry
from temporalio.testing import ActivityEnvironment

from activities.audit_calls import AuditInput, CloseAuditRequest
from activities.auditing import AuditRecordsActivities, audit
from activities.drain_calls import PoolDrainInput
from activities.draining import DrainingActivities
from activities.finishing import FinishingActivities
from activities.model_loading import ModelLoading
from activities.model_placement_calls import ModelPlacementInput, PlacementRequest
from activities.placement_calls import FinishRequest
from activities.serving.http import HttpServing
from api.app import create_app
from api.deps import Deps
from api.sign_in.setup import SignIn
from clients.cli.main import main
from domain.circuit import WELL
from domain.ids import (
    audit_workflow_id,
    model_placement_workflow_id,
    placement_workflow_id,
    pool_drain_workflow_id,
    warm_keep_workflow_id,
)
from domain.pool_life import DrainTerms
from domain.serving.endpoint import EndpointTerms
from domain.serving.warm_keep import WarmKeepTerms
from store.budget import BudgetStore
from tests.activities.deciding import Placer
from tests.activities.model_loading import OneSecret
from tests.activities.provider import ScriptedCompute
from tests.api.door import Bearer
from tests.api.serving import served
from tests.api.sign_in.minting import verifier
from tests.cli.conftest import Ran
from tests.domain.worlds import estate as every_pool
from tests.estates import PARTITION, REGION, TENANT, Estate

EXAMPLES = Path(__file__).parents[2] / "examples"
CONTRACT = str(EXAMPLES / "contracts" / "orders-daily.yaml")
HYBRID = str(EXAMPLES / "pools" / "workstation.yaml")
DECLARED = Path(CONTRACT).read_text()
LOW_FLOOR = Path(CONTRACT).read_text().replace('floorShare: "0.30"', 'floorShare: "0.10"')
PODS = str(EXAMPLES / "demand" / "orders-daily-pods.json")
ALL_RUNNING = Path(PODS).read_text().replace('"phase": "Pending"', '"phase": "Running"')

RealSco = Callable[..., Awaitable[Ran]]


class SoonPlaced:
    """Decides, finishes and audits a moment after it was asked.

    Launches are believed to have happened, at a provider that has no servers at all.
    """

    def __init__(self, estate: Estate) -> None:
        self._placer = Placer(estate)
        self._estate = estate
        self._finishing = FinishingActivities(estate.engine)
        self._running: set[asyncio.Task[None]] = set()

    async def start(
        self, tenant_id: str, partition_id: str, workload_id: str, claim_version: int | None
    ) -> str:
        self._soon(self._place(workload_id))
        return placement_workflow_id(tenant_id, partition_id, workload_id)

    async def start_audit(
        self, tenant_id: str, audit_id: UUID, partition_id: str | None, served_by: str
    ) -> str:
        self._soon(self._audit(AuditInput(tenant_id=tenant_id, audit_id=audit_id, partition_id=partition_id)))
        return audit_workflow_id(audit_id)

    async def start_drain(self, tenant_id: str, pool_id: str) -> str:
        self._soon(self._drain(PoolDrainInput(tenant_id=tenant_id, pool_id=pool_id)))
        return pool_drain_workflow_id(tenant_id, pool_id)

    async def tell_drain(self, tenant_id: str, pool_id: str) -> None:
        """Here a drain is one look, which is over already."""

    async def start_model_placement(self, request: ModelPlacementInput) -> str:
        """Here nobody loads: a cold placement stays cold."""
        return model_placement_workflow_id(request.tenant_id, request.placement_id)

    async def tell_model_placement(self, request: PlacementRequest) -> None:
        """Here no workflow runs that could be told."""

    async def want_warm_keep(self, tenant_id: str, pool_id: str) -> str:
        """Here nobody loads: a request stays open."""
        return warm_keep_workflow_id(tenant_id, pool_id)

    async def _drain(self, request: PoolDrainInput) -> None:
        async def tell(tenant_id: str, partition_id: str, workload_id: str) -> None:
            await self.start(tenant_id, partition_id, workload_id, None)

        engine, now = self._estate.engine, self._estate.clock
        models = ModelLoading(
            engine, HttpServing(EndpointTerms()), OneSecret(), terms=WarmKeepTerms(), now=now, new_key=uuid4
        )
        hands = DrainingActivities(engine, tell, models, terms=DrainTerms(), now=now)
        await ActivityEnvironment().run(hands.drain_pool, request)

    def _soon(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def reachable(self) -> bool:
        return True

    async def _audit(self, request: AuditInput) -> None:
        estate = self._estate
        report = await audit(
            estate.engine,
            ScriptedCompute(estate.clock),
            tenant_id=request.tenant_id,
            partitions=(request.partition_id,) if request.partition_id else None,
            regions=[REGION],
            now=estate.clock,
            settle_seconds=0.01,
        )
        records = AuditRecordsActivities(estate.engine, now=estate.clock)
        await records.open_audit(request)
        await records.close_audit(CloseAuditRequest(audit=request, report=report))

    async def _place(self, workload_id: str) -> None:
        await self._placer.decide(workload_id)
        await self._placer.run()
        await self._placer.give_back(workload_id)
        await self._finishing.finish_placement(
            FinishRequest(tenant_id=TENANT, workload_id=workload_id, finish_id=uuid4())
        )


@pytest_asyncio.fixture
async def sco(
    estate: Estate, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RealSco]:
    """`sco` as people run it, beside a server with every pool of one region."""
    await estate.open(every_pool(("eu-north",), hours=500))
    starter = SoonPlaced(estate)
    deps = Deps(engine=estate.engine, starter=starter, temporal_reachable=starter.reachable, now=estate.clock)
    monkeypatch.setenv("SCO_TOKEN", Bearer(estate.clock).token)
    async with served(create_app(deps, SignIn(verifier(estate.clock)), CollectorRegistry())) as address:

        async def run(*arguments: str, code: int = 0) -> Ran:
            capsys.readouterr()
            ended = await asyncio.to_thread(main, ["--server", address, *arguments])
            captured = capsys.readouterr()
            assert ended == code, captured.err
            return Ran(ended, captured.out, captured.err)

        yield run


async def test_from_contract_to_replay(sco: RealSco) -> None:
    assert "workload orders-daily applied" in (await sco("apply", "-f", CONTRACT)).out
    counted = await sco("claim", "-f", PODS, "--workload", "orders-daily", "--dry-run")
    assert "42 units, 168 vCPU, 672 GiB, 0 GPUs" in counted.out
    assert "left out: 6 entries" in counted.out
    assert "  2 held: data-platform/orders-daily-publish-0-" in counted.out

    placed = await sco("claim", "-f", PODS, "--workload", "orders-daily", "--wait")
    assert "workload orders-daily: placed" in placed.out
    assert "floor 13 guaranteed units; at most 6 units per reclaimable pool and 12" in placed.out
    assert placed.err

    told = json.loads((await sco("explain", "orders-daily", "-o", "json")).out)
    kept = [one["poolId"] for one in told["candidates"] if one["kept"]]
    others = [one for one in told["candidates"] if not one["kept"]]
    assert "42 of 42 units placed" in (await sco("explain", "orders-daily")).out
    assert f"{kept[0]} was kept: " in (await sco("explain", "orders-daily", "--pool", kept[0])).out
    one = others[0]
    answer = (await sco("explain", "orders-daily", "--pool", one["poolId"])).out
    assert answer.startswith(f"{one['poolId']} was left out ({one['reason']}): {one['text']}")
    assert "the same" in (await sco("explain", "orders-daily", "--replay")).out


async def test_scaling_and_placing_again(sco: RealSco) -> None:
    await sco("apply", "-f", CONTRACT)
    await sco("claim", "-f", PODS, "--workload", "orders-daily", "--wait")
    grown = json.loads((await sco("scale", "orders-daily", "--units", "60", "--wait", "-o", "json")).out)
    assert (grown["phase"], grown["claim"]["units"], grown["plannedVersion"]) == ("placed", 60, 2)
    assert "60 units, 240 vCPU, 960 GiB" in (await sco("describe", "workload", "orders-daily")).out
    await sco("place", "orders-daily", "--wait")
    listed = json.loads((await sco("get", "generations", "orders-daily", "-o", "json")).out)
    assert [one["generation"] for one in listed] == [2, 1]
    progress = (await sco("get", "placements", "orders-daily")).out
    assert "placement/k8s-eu-north/orders-daily" in progress


async def test_lists_and_status(sco: RealSco) -> None:
    await sco("apply", "-f", CONTRACT)
    first = json.loads((await sco("get", "pools", "--limit", "5", "-o", "json")).out)
    every = json.loads((await sco("get", "pools", "-o", "json")).out)
    assert len(every) > len(first) == 5
    assert len({one["poolId"] for one in every}) == len(every)
    name = first[0]["poolId"]
    assert f"pool {name}: active" in (await sco("describe", "pool", name)).out
    assert name in (await sco("get", "pools", "--hall", first[0]["hall"])).out
    for kind in ("workloads", "contracts"):
        assert "orders-daily" in (await sco("get", kind)).out
    assert "k8s-eu-north" in (await sco("get", "partitions")).out
    assert "T1" in (await sco("describe", "contract", "orders-daily")).out
    assert "can run" in (await sco("status")).out


async def test_pools_are_registered_and_activated(sco: RealSco, tmp_path: Path) -> None:
    pool = json.loads((await sco("get", "pools", "--limit", "1", "-o", "json")).out)[0]
    fixed = ("region", "hall", "skuFamily", "size", "cpuCores", "ramGb", "purchaseModel", "groupId", "flavor")
    prices = ("pricePerHourUsd", "guaranteedPricePerHourUsd")
    document = {name: pool[name] for name in (*fixed, *prices)}
    document |= {"apiVersion": "sco/v1", "kind": "Pool", "poolId": "extra-pool"}
    (tmp_path / "pool.json").write_text(json.dumps(document))
    assert (await sco("apply", "-f", str(tmp_path / "pool.json"))).out == "pool extra-pool applied\n"
    assert "extra-pool: draft" in (await sco("describe", "pool", "extra-pool")).out
    await sco("activate", "pool", "extra-pool")
    assert "extra-pool: active" in (await sco("describe", "pool", "extra-pool")).out
    again = await sco("activate", "pool", "extra-pool", code=1)
    assert "it cannot activate from there; allowed is drain" in again.err
    assert "holds nothing" in (await sco("drain", "pool", "extra-pool")).out
    assert "draining since" in (await sco("describe", "pool", "extra-pool")).out
    stale = await sco("resume", "pool", "extra-pool", "--version", "1", code=1)
    assert "is at version 3, not 1" in stale.err
    assert (await sco("retire", "pool", "extra-pool", "--version", "3")).out == "pool extra-pool retired\n"
    assert "extra-pool: retired" in (await sco("describe", "pool", "extra-pool")).out


async def test_a_hybrid_pool_is_registered_from_the_example(sco: RealSco) -> None:
    await sco("apply", "-f", HYBRID)
    told = (await sco("describe", "pool", "workstation-7")).out
    assert "workstation-7: draft" in told
    wrong = await sco("change", "pool", "workstation-7", "--price", "cheap", code=1)
    assert "pricePerHourUsd" in wrong.err
    assert (await sco("change", "pool", "workstation-7", "--price", "0.125", "--cold-start", "90")).out
    changed = (await sco("describe", "pool", "workstation-7")).out
    assert "0.125" in changed
    assert "workstation" in told.partition("kind")[2].splitlines()[0]


async def test_a_contract_file_declares_how_the_work_ends(sco: RealSco, tmp_path: Path) -> None:
    applied = await sco("apply", "-f", CONTRACT)
    assert "finalWriteSeconds" not in applied.err
    told = (await sco("describe", "contract", "orders-daily")).out
    assert "periodic and final, the final write within 40 s" in told
    changed = DECLARED.replace("drainBudgetSeconds: 115", "drainBudgetSeconds: 30")
    (tmp_path / "short.yaml").write_text(changed)
    refused = await sco("apply", "-f", str(tmp_path / "short.yaml"), code=1)
    assert "finalWriteSeconds 40 is longer than drainBudgetSeconds 30" in refused.err
    assert "raise drainBudgetSeconds to at least 40" in refused.err
    (tmp_path / "silent.yaml").write_text(changed.replace("finalWriteSeconds: 40", ""))
    warned = await sco("apply", "-f", str(tmp_path / "silent.yaml"))
    assert "declare finalWriteSeconds" in warned.err


async def test_refusals_say_what_to_do(sco: RealSco, tmp_path: Path) -> None:
    (tmp_path / "low.yaml").write_text(LOW_FLOOR)
    refused = await sco("apply", "-f", str(tmp_path / "low.yaml"), code=1)
    assert "floorShare 0.10 is below the minimum of tier T1, 0.30" in refused.err
    assert "applied: nothing" in refused.err
    assert "not applied: contract orders-daily, workload orders-daily" in refused.err

    unknown = await sco("describe", "workload", "nobody", code=1)
    assert "no workload 'nobody'" in unknown.err
    assert "what to do: create one with `sco apply -f FILE`" in unknown.err
    assert "PUT" not in unknown.err

    await sco("apply", "-f", CONTRACT)
    assert "has no claim" in (await sco("place", "orders-daily", code=1)).err
    web = str(EXAMPLES / "demand" / "web-claim.yaml")
    other = await sco("claim", "-f", web, "--workload", "orders-daily", code=1)
    assert "left out: document 1 (web): it belongs to workload web" in other.err


async def test_a_list_read_again_takes_nothing_away_until_it_is_allowed(sco: RealSco, tmp_path: Path) -> None:
    await sco("apply", "-f", CONTRACT)
    await sco("claim", "-f", PODS, "--workload", "orders-daily", "--wait")
    (tmp_path / "later.json").write_text(ALL_RUNNING)
    again = ("claim", "-f", str(tmp_path / "later.json"), "--workload", "orders-daily")
    refused = await sco(*again, code=1)
    assert "the list has 0 pending units, the claim in force has 42" in refused.err
    assert "sco scale NAME --units N" in refused.err
    assert "note: the list has 0 pending units" in (await sco(*again, "--dry-run")).out
    assert "claim 1" in (await sco("describe", "workload", "orders-daily")).out
    assert "0 units" in (await sco(*again, "--allow-shrink", "--wait")).out


async def test_a_partition_is_applied_and_listed(sco: RealSco, tmp_path: Path) -> None:
    document = "apiVersion: sco/v1\nkind: Partition\npartitionId: train\nregion: {}\nscheduler: slurm\n"
    (tmp_path / "north.yaml").write_text(document.format("eu-north"))
    (tmp_path / "moon.yaml").write_text(document.format("moon").replace("train", "moon"))
    for _ in range(2):
        assert (await sco("apply", "-f", str(tmp_path / "north.yaml"))).out == "partition train applied\n"
    assert "train" in (await sco("get", "partitions")).out
    refused = await sco("apply", "-f", str(tmp_path / "moon.yaml"), code=1)
    assert "partition moon: no pool is registered in region 'moon'" in refused.err
    assert "regions with pools are eu-north" in refused.err


async def test_regions_are_shown_as_the_database_has_them(sco: RealSco, dsn: str) -> None:
    assert "no region has a token budget yet" in (await sco("regions")).err
    budgets = BudgetStore(dsn, tenant_id=TENANT)
    await asyncio.to_thread(budgets.set_budget, "eu-north", burst=40, refill_per_second=Decimal("0.001"))
    assert "closed" in (await sco("regions")).out
    for _ in range(5):
        await asyncio.to_thread(budgets.report_failure, "eu-north", WELL, "the region was silent")
    budgets.close()
    assert "5 calls failed in a row, the last because the region was silent" in (await sco("regions")).out
    (told,) = json.loads((await sco("regions", "-o", "json")).out)
    assert (told["circuit"]["state"], told["budget"]["tokens"]) == ("open", 40)


async def test_an_audit_tells_of_servers_that_do_not_exist(sco: RealSco) -> None:
    clean = await sco("audit")
    assert "audit of everything: clean" in clean.out
    await sco("apply", "-f", CONTRACT)
    await sco("claim", "-f", PODS, "--workload", "orders-daily", "--wait")
    found = await sco("audit", "--partition", PARTITION, "--json", code=1)
    told = json.loads(found.out)
    assert set(told["findingsByKind"]) == {"lost"}
    assert told["findingsTotal"] == told["counts"]["slots"] > 0
    assert "check that one runs" in (await sco("audit", code=1)).out
