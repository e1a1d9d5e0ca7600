"""A scheduler's list shows what waits and not what runs, so it gives no capacity back by accident."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.api.door import ORDERS, Door, pod, pods, problem

CLAIMS = "/workloads/orders-daily/claims"
ALLOWED = f"{CLAIMS}?allowShrink=true"
YAML = {"Content-Type": "application/yaml"}
SQUEUE = Path(__file__).parents[2] / "examples" / "demand" / "nightly-train-squeue.json"


def own(units: int, workload: str = "orders-daily") -> str:
    return (
        f"apiVersion: sco/v1\nkind: Claim\nworkload: {workload}\n"
        f"units: {{count: {units}, vcpu: 4, memory: 16Gi}}\n"
    )


def running(waiting: int, runs: int) -> dict[str, Any]:
    """The list that follows a placement: some pods wait still, the others run."""
    items = [pod(f"orders-{number}") for number in range(waiting)]
    items += [pod(f"orders-{number}", phase="Running") for number in range(waiting, waiting + runs)]
    return {"kind": "List", "items": items}


async def stored(door: Door) -> list[Any]:
    return await door.estate.rows("SELECT version, units FROM claims ORDER BY version")


@pytest.mark.parametrize(("waiting", "runs"), [(10, 32), (0, 42), (0, 0), (41, 1)])
async def test_the_list_read_again_after_a_placement_takes_nothing_away(
    door: Door, waiting: int, runs: int
) -> None:
    await door.open_estate()
    await door.placed(42)
    held = await door.placer.held("orders-daily")
    told = problem(await door.post(CLAIMS, running(waiting, runs)), 409, "would_shrink")
    assert told["detail"].startswith(f"the list has {waiting} pending units, the claim in force has 42:")
    assert "sco scale NAME --units N" in told["whatToDo"]
    assert "allowShrink=true" in told["whatToDo"]
    assert (told["pendingUnits"], told["claimUnits"], told["unreadable"]) == (waiting, 42, [])
    assert await stored(door) == [(1, 42)]
    assert len(door.starter.started) == 1
    await door.placer.decide("orders-daily")
    assert await door.placer.held("orders-daily") == held


async def test_a_job_list_is_guarded_alike(door: Door) -> None:
    await door.open_estate()
    await door.put("/workloads/nightly-train", ORDERS)
    jobs = "/workloads/nightly-train/claims"
    listed = json.loads(SQUEUE.read_text())
    assert (await door.post(jobs, listed)).json()["units"] == 8
    told = problem(await door.post(jobs, listed | {"jobs": []}), 409, "would_shrink")
    assert (told["pendingUnits"], told["claimUnits"]) == (0, 8)


async def test_allowed_it_becomes_the_newest_claim(door: Door) -> None:
    await door.open_estate()
    await door.claim(42)
    told = (await door.post(ALLOWED, running(10, 32))).json()
    assert (told["claimVersion"], told["units"]) == (2, 10)
    assert await stored(door) == [(1, 42), (2, 10)]


async def test_as_many_or_more_go_through(door: Door) -> None:
    await door.open_estate()
    for units in (42, 42, 60):
        await door.claim(units)
    assert await stored(door) == [(1, 42), (2, 42), (3, 60)]


async def test_the_claim_in_force_is_the_newest_however_it_was_made(door: Door) -> None:
    await door.open_estate()
    await door.claim(42)
    await door.post("/workloads/orders-daily/scale", {"units": 50})
    problem(await door.post(CLAIMS, pods(42)), 409, "would_shrink")
    await door.post("/workloads/orders-daily/scale", {"units": 6})
    assert (await door.post(CLAIMS, pods(10))).status_code == 202


async def test_our_own_format_states_what_is_wanted_in_all(door: Door) -> None:
    await door.open_estate()
    await door.claim(42)
    answer = await door.http.post(CLAIMS, content=own(3), headers=YAML)
    assert (answer.status_code, answer.json()["units"]) == (202, 3)


async def test_a_file_of_ours_about_another_workload_says_nothing_about_this_one(door: Door) -> None:
    await door.open_estate()
    await door.claim(42)
    for where in (CLAIMS, ALLOWED):
        told = problem(await door.http.post(where, content=own(3, "web"), headers=YAML), 422, "claim_refused")
        assert told["leftOut"][0]["reason"] == "other_workload"
    assert await stored(door) == [(1, 42)]


async def test_a_dry_run_tells_it_in_a_note(door: Door) -> None:
    await door.open_estate()
    await door.claim(42)
    answer = await door.post(f"{CLAIMS}?dryRun=true", running(10, 32))
    told = answer.json()
    assert (answer.status_code, told["units"], told["claimVersion"]) == (200, 10, None)
    (note,) = told["notes"]
    assert note.startswith("the list has 10 pending units, the claim in force has 42:")
    assert note.endswith("; it is refused without allowShrink")
    allowed = (await door.post(f"{ALLOWED}&dryRun=true", running(10, 32))).json()
    assert (allowed["units"], allowed["notes"]) == (10, [])
    assert await stored(door) == [(1, 42)]


async def test_what_cannot_be_read_does_not_lower_the_guard(door: Door) -> None:
    await door.open_estate()
    await door.claim(3)
    broken = {"kind": "List", "items": [pod("a"), pod("b", cpu="four"), pod("c", cpu="four")]}
    told = problem(await door.post(CLAIMS, broken), 409, "would_shrink")
    assert [one["name"] for one in told["unreadable"]] == ["orders/b", "orders/c"]
    unreadable = {"kind": "List", "items": [pod("b", cpu="four")]}
    problem(await door.post(ALLOWED, unreadable), 422, "claim_refused")
    assert await stored(door) == [(1, 3)]


async def test_a_refused_list_leaves_its_key_free(door: Door) -> None:
    await door.open_estate()
    await door.claim(42)
    key = {"Idempotency-Key": "nightly"}
    problem(await door.post(CLAIMS, pods(10), headers=key), 409, "would_shrink")
    assert (await door.post(ALLOWED, pods(10), headers=key)).status_code == 202


async def test_lists_at_once_never_leave_a_smaller_claim_in_force(door: Door) -> None:
    await door.open_estate()
    answers = await asyncio.gather(*(door.post(CLAIMS, pods(units)) for units in range(8, 0, -1)))
    taken = [one for one in answers if one.status_code == 202]
    for one in answers:
        if one not in taken:
            problem(one, 409, "would_shrink")
    units = [units for _, units in await stored(door)]
    assert len(units) == len(taken)
    assert units == sorted(units)
    assert units[-1] == 8
