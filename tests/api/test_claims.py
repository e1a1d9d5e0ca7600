"""Claims over REST: what a list says is stored first, then its placement is told."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.api.door import ORDERS, Door, pod, pods, problem

CLAIMS = "/workloads/orders-daily/claims"
EXAMPLES = Path(__file__).parents[2] / "examples" / "demand"
OWN = """
apiVersion: sco/v1
kind: Claim
workload: orders-daily
units:
  - {count: 4, vcpu: 4, memory: 16Gi}
  - {count: 8, vcpu: 2, memory: 4Gi}
"""


async def test_pending_pods_become_a_claim_and_its_placement_is_told(door: Door) -> None:
    await door.open_estate()
    answer = await door.post(CLAIMS, pods(42))
    assert answer.status_code == 202
    told = answer.json()
    assert {name: told[name] for name in ("claimVersion", "units", "vcpu", "memoryGib", "gpus")} == {
        "claimVersion": 1,
        "units": 42,
        "vcpu": 168,
        "memoryGib": 672,
        "gpus": 0,
    }
    assert told["shapes"] == [{"units": 42, "vcpu": 4, "memoryGib": 16, "gpus": 0}]
    workflow_id = "placement/k8s-eu-north/orders-daily"
    assert told["placement"] == {"workflowId": workflow_id, "started": True}
    assert door.starter.started == [("platform", "k8s-eu-north", "orders-daily", 1)]


async def test_what_is_no_demand_is_named_with_the_reason(door: Door) -> None:
    await door.open_estate()
    items = [pod("a"), pod("b", phase="Running"), pod("c", cpu="four"), {"kind": "Deployment"}]
    told = (await door.post(CLAIMS, {"kind": "List", "items": items})).json()
    assert told["units"] == 1
    assert told["leftOutByReason"] == {"not_pending": 1, "unsupported_kind": 1}
    assert {entry["name"] for entry in told["leftOut"]} == {"orders/b", "items[3]"}
    assert (told["unreadable"][0]["name"], told["unreadableTotal"]) == ("orders/c", 1)


async def test_long_lists_of_others_are_counted_and_the_first_named(door: Door) -> None:
    await door.open_estate()
    running = [pod(f"r-{number}", phase="Running") for number in range(1500)]
    told = (await door.post(CLAIMS, {"kind": "List", "items": [pod("a"), *running]})).json()
    assert (len(told["leftOut"]), told["leftOutTotal"]) == (1000, 1500)
    assert told["leftOutByReason"] == {"not_pending": 1500}


@pytest.mark.parametrize("media_type", ["application/yaml", "text/yaml", "application/yaml; charset=utf-8"])
async def test_yaml_of_our_own_is_read(door: Door, media_type: str) -> None:
    await door.open_estate()
    answer = await door.http.post(CLAIMS, content=OWN, headers={"Content-Type": media_type})
    assert (answer.status_code, answer.json()["units"]) == (202, 12)


async def test_the_examples_are_what_they_say(door: Door) -> None:
    await door.open_estate()
    content = (EXAMPLES / "orders-daily-pods.json").read_bytes()
    answer = await door.http.post(CLAIMS, content=content, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["units"]) == (202, 42)


async def test_a_dry_run_counts_and_stores_nothing(door: Door) -> None:
    await door.open_estate()
    answer = await door.post(f"{CLAIMS}?dryRun=true", pods(42), headers={"Idempotency-Key": "dry"})
    told = answer.json()
    assert (answer.status_code, told["units"], told["claimVersion"], told["placement"]) == (
        200,
        42,
        None,
        None,
    )
    assert door.starter.started == []
    assert await door.estate.value("SELECT count(*) FROM claims") == 0
    assert await door.estate.value("SELECT count(*) FROM idempotency_keys") == 0


async def test_while_temporal_is_away_the_claim_is_kept_and_queued(door: Door) -> None:
    await door.open_estate()
    door.starter.down = True
    told = await door.claim(42)
    assert told["placement"]["started"] == "queued"
    assert await door.estate.rows("SELECT claim_version, planned_version FROM workloads") == [(1, 0)]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[1, 2",
        b"null",
        b"[]",
        b"{}",
        b'{"kind": "Status", "message": "Forbidden"}',
        b'{"kind": "List", "items": [{"kind": "Deployment"}]}',
        b'{"jobs": [], "errors": [{"description": "slurmctld is down"}]}',
        b"\xff\xfe\x00",
        b"JOBID PARTITION NAME",
        b"a: &a [*a]",
        b'{"a": NaN}',
        b"[" * 100_000,
    ],
)
async def test_a_body_without_demand_is_refused_and_changes_nothing(door: Door, body: bytes) -> None:
    await door.open_estate()
    answer = await door.http.post(CLAIMS, content=body, headers={"Content-Type": "application/json"})
    told = problem(answer, 422, "claim_refused")
    assert told["errors"][0]["allowed"].startswith("a pod list")
    assert await door.estate.value("SELECT count(*) FROM claims") == 0


async def test_an_allowed_list_without_pending_work_is_nothing_and_keeps_the_shapes(door: Door) -> None:
    await door.open_estate()
    empty = {"kind": "List", "items": []}
    problem(await door.post(f"{CLAIMS}?allowShrink=true", empty), 422, "claim_refused")
    await door.placed(42)
    told = (await door.post(f"{CLAIMS}?allowShrink=true", empty)).json()
    assert (told["claimVersion"], told["units"]) == (2, 0)
    assert told["shapes"] == [{"units": 0, "vcpu": 4, "memoryGib": 16, "gpus": 0}]
    assert told["notes"] == ["nothing in the list waits for a node: the claim is 0 units"]
    decided = await door.placer.decide("orders-daily")
    assert (decided.units, decided.placed_units, decided.shortfall_units) == (0, 0, 0)
    assert await door.placer.held("orders-daily") == {}
    again = (await door.post(CLAIMS, empty)).json()
    assert (again["claimVersion"], again["units"]) == (3, 0)


async def test_entries_that_cannot_be_read_are_never_taken_for_none(door: Door) -> None:
    await door.open_estate()
    await door.claim(42)
    told = problem(
        await door.post(CLAIMS, {"kind": "List", "items": [pod("a", cpu="four")]}), 422, "claim_refused"
    )
    assert told["unreadable"][0]["name"] == "orders/a"
    assert await door.estate.value("SELECT max(units) FROM claims") == 42


async def test_scaling_keeps_the_proportions_that_were_submitted(door: Door) -> None:
    await door.open_estate()
    await door.http.post(CLAIMS, content=OWN, headers={"Content-Type": "application/yaml"})
    scale = "/workloads/orders-daily/scale"
    seen = {}
    for units in (3, 1, 0, 24):
        told = (await door.post(scale, {"units": units})).json()
        seen[units] = [shape["units"] for shape in told["shapes"]]
    assert seen == {3: [1, 2], 1: [0, 1], 0: [0, 0], 24: [8, 16]}
    assert [version for *_, version in door.starter.started] == [1, 2, 3, 4, 5]


async def test_scaling_needs_a_claim_and_a_number(door: Door) -> None:
    await door.open_estate()
    scale = "/workloads/orders-daily/scale"
    problem(await door.post(scale, {"units": 3}), 409, "no_claim")
    for units in (-1, 100_001, 1.5, "three", None):
        problem(await door.post(scale, {"units": units}), 422, "invalid_request")
    problem(await door.post("/workloads/nobody/scale", {"units": 3}), 404, "unknown_workload")


async def test_an_unknown_workload_has_no_claims(door: Door) -> None:
    await door.open_estate()
    problem(await door.post("/workloads/nobody/claims", pods(1)), 404, "unknown_workload")


async def test_only_entries_of_the_workload_count(door: Door) -> None:
    await door.open_estate()
    await door.put("/workloads/web", ORDERS)
    other = pod("other")
    other["metadata"]["labels"] = {"spot-capacity.io/workload": "web"}
    told = (await door.post(CLAIMS, {"kind": "List", "items": [pod("mine"), other]})).json()
    assert (told["units"], told["leftOutByReason"]) == (1, {"other_workload": 1})


async def test_what_was_read_is_remembered_with_the_claim(door: Door) -> None:
    await door.open_estate()
    items: list[Any] = [pod("a"), pod("b", phase="Running")]
    await door.post(CLAIMS, {"kind": "List", "items": items})
    ((source, intake),) = await door.estate.rows("SELECT source, intake FROM claims")
    assert source == "kubernetes"
    assert intake["left_out"] == {"not_pending": 1}
    assert json.dumps(intake)


async def test_claims_at_once_get_versions_of_their_own(door: Door) -> None:
    await door.open_estate()
    told = await asyncio.gather(*(door.claim(units, allowShrink=True) for units in range(1, 9)))
    assert sorted(one["claimVersion"] for one in told) == list(range(1, 9))
    rows = await door.estate.rows("SELECT version, units FROM claims ORDER BY version")
    assert rows == sorted((one["claimVersion"], one["units"]) for one in told)
