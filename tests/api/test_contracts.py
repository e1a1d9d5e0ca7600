"""Contracts over REST: refused with the remedy, and warned about when the registry cannot keep them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.door import T1, Door, problem


async def test_a_contract_is_created_then_replaced(door: Door) -> None:
    first = await door.put("/contracts/orders", T1 | {"contractId": "orders"})
    again = await door.put("/contracts/orders", T1 | {"floorShare": 0.5})
    assert (first.status_code, again.status_code) == (201, 200)
    stored = (await door.get("/contracts/orders")).json()
    assert (stored["floorShare"], stored["poolCapShare"]) == ("0.500000", "0.150000")
    listed = (await door.get("/contracts")).json()["items"]
    assert [one["contractId"] for one in listed] == ["orders"]


async def test_numbers_and_texts_are_the_same_share(door: Door) -> None:
    as_text = (await door.put("/contracts/a", T1)).json()
    as_number = (await door.put("/contracts/a", T1 | {"floorShare": 0.3})).json()
    assert as_text == as_number


async def test_what_tier_and_caps_forbid_is_refused_with_the_remedy(door: Door) -> None:
    low = T1 | {"floorShare": "0.1", "poolCapShare": "0.5", "groupCapShare": "0.2"}
    told = problem(await door.put("/contracts/orders", low), 422, "contract_refused")
    assert "raise it to at least 0.30" in told["detail"]
    assert len(told["problems"]) == 2
    problem(await door.get("/contracts/orders"), 404, "unknown_contract")


async def test_another_id_in_the_body_is_a_mistake(door: Door) -> None:
    told = problem(await door.put("/contracts/orders", T1 | {"contractId": "web"}), 422, "invalid_request")
    assert told["errors"][0]["allowed"] == "orders"


async def test_caps_that_the_registry_cannot_keep_are_warned_about(door: Door) -> None:
    warnings = (await door.put("/contracts/orders", T1)).json()["warnings"]
    assert "at least 5 active reclaimable pools and the registry has 0" in warnings[0]
    assert "at least 3 correlation groups" in warnings[1]
    await door.open_estate()
    (rest,) = (await door.get("/contracts/orders")).json()["warnings"]
    assert "declare finalWriteSeconds" in rest
    assert (await door.put("/contracts/orders", T1 | {"finalWriteSeconds": 40})).json()["warnings"] == []
    listed = (await door.get("/contracts")).json()["items"]
    assert {one["contractId"]: one["warnings"] for one in listed}["orders"] == []


ENDING = ("drainOnAdvisory", "checkpointMode", "finalWriteSeconds", "restart")


async def ending(door: Door, contract_id: str = "orders") -> list[Any]:
    stored = (await door.get(f"/contracts/{contract_id}")).json()
    return [stored[name] for name in ENDING]


async def test_how_the_work_ends_is_declared_and_shown(door: Door) -> None:
    said = {"drainOnAdvisory": True, "checkpointMode": "final", "finalWriteSeconds": 40, "restart": "requeue"}
    assert (await door.put("/contracts/orders", T1 | said)).status_code == 201
    assert await ending(door) == [True, "final", 40, "requeue"]
    # What is left out of the next file is no longer declared; null is the same as left out.
    for silent in (T1, T1 | dict.fromkeys(ENDING[1:])):
        assert (await door.put("/contracts/orders", silent)).status_code == 200
        assert await ending(door) == [False, "periodic_and_final", None, "resume"]
    given_back = (await door.get("/contracts/orders")).json()
    del given_back["warnings"]
    assert (await door.put("/contracts/orders", given_back)).status_code == 200


async def test_a_contract_from_before_reads_as_its_tier_declares(door: Door) -> None:
    for tier, floor in (("T1", "0.3"), ("T2", "0.2"), ("T4", "0")):
        await door.put(f"/contracts/{tier.lower()}", {"tier": tier, "floorShare": floor})
    await door.estate.rows("UPDATE contracts SET checkpoint_mode = NULL, restart = NULL")
    assert await ending(door, "t1") == [False, "periodic_and_final", None, "resume"]
    assert await ending(door, "t2") == [False, "none", None, "none"]
    assert await ending(door, "t4") == [False, "none", None, "requeue"]


async def test_an_end_that_cannot_be_kept_is_refused_with_the_remedy(door: Door) -> None:
    wrong = {"checkpointMode": "periodic", "drainBudgetSeconds": 60}
    told = problem(await door.put("/contracts/orders", T1 | wrong), 422, "contract_refused")
    assert "choose final or periodic_and_final" in told["detail"]
    long = {"finalWriteSeconds": 90, "drainBudgetSeconds": 60}
    told = problem(await door.put("/contracts/orders", T1 | long), 422, "contract_refused")
    assert told["problems"] == [
        "finalWriteSeconds 90 is longer than drainBudgetSeconds 60:"
        " raise drainBudgetSeconds to at least 90, or write less after a notice"
    ]


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"tier": "T9"}, "tier"),
        ({"floorShare": "1.2"}, "floorShare"),
        ({"floorShare": "NaN"}, "floorShare"),
        ({"floorShare": "0.1234567"}, "floorShare"),
        ({"poolCapShare": 0}, "poolCapShare"),
        ({"drainBudgetSeconds": 116}, "drainBudgetSeconds"),
        ({"drainOnAdvisory": "true"}, "drainOnAdvisory"),
        ({"drainOnAdvisory": 1}, "drainOnAdvisory"),
        ({"checkpointMode": "sometimes"}, "checkpointMode"),
        ({"finalWriteSeconds": 0}, "finalWriteSeconds"),
        ({"finalWriteSeconds": "40"}, "finalWriteSeconds"),
        ({"finalWriteSeconds": 86_401}, "finalWriteSeconds"),
        ({"restart": "later"}, "restart"),
        ({"toleratedInterruptionsPerHour": "0.0000001"}, "toleratedInterruptionsPerHour"),
        ({"repoCommit": "a\u0000b"}, "repoCommit"),
        ({"repo_commit": "a"}, "repo_commit"),
    ],
)
async def test_a_wrong_field_is_named(read_door: Door, changed: dict[str, Any], field: str) -> None:
    told = problem(await read_door.put("/contracts/wrong", T1 | changed), 422, "invalid_request")
    assert [error["field"] for error in told["errors"]] == [field]


async def test_contracts_come_in_pages(door: Door) -> None:
    for name in ("a", "b", "c"):
        await door.put(f"/contracts/{name}", T1)
    first = (await door.get("/contracts", pageSize=2)).json()
    second = (await door.get("/contracts", pageSize=2, pageToken=first["nextPageToken"])).json()
    names = [one["contractId"] for one in first["items"] + second["items"]]
    assert (names, second["nextPageToken"]) == (["a", "b", "c"], None)
