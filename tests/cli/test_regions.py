"""`sco regions`: how the provider's regions are, who may act there, and what is wrong, in this order."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Sco
from tests.cli.fake_api import FakeApi, document
from tests.cli.test_reading import page, row

PATH = "/factory/provider-regions"
SINCE, UNTIL = "2026-11-29T14:00:00Z", "2026-11-29T14:04:00Z"
WELL = {"state": "closed", "failures": 0, "trips": 0, "problem": None, "since": None, "until": None}
OPEN = {
    "state": "open",
    "failures": 7,
    "trips": 3,
    "problem": "the region did not answer in time",
    "since": SINCE,
    "until": UNTIL,
}


def region(name: str = "eu-north", **changed: Any) -> dict[str, Any]:
    return {
        "region": name,
        "budget": {"tokens": 38, "burst": 40, "refillPerSecond": "20.000"},
        "circuit": WELL,
        "pausedUntil": None,
        "quotas": [],
        "quotaAlarm": False,
        "quotaHold": None,
        "licences": [],
        "leases": [],
    } | changed


def quota(resource: str, limit: int | None, used: int, share: str | None, **changed: Any) -> dict[str, Any]:
    return {
        "resource": resource,
        "limit": limit,
        "used": used,
        "pending": 4,
        "left": None,
        "shareLeft": share,
        "alarm": False,
        "observedAt": SINCE,
    } | changed


def licence(**changed: Any) -> dict[str, Any]:
    return {
        "partitionId": "k8s-eu-north",
        "phase": "normal",
        "mayAct": True,
        "actingUntil": UNTIL,
        "lastCompleteAt": SINCE,
        "fleet": 1200,
        "backlog": 0,
        "drifts": {},
        "problem": None,
    } | changed


def lease(**changed: Any) -> dict[str, Any]:
    return {
        "leaseId": "l-1",
        "name": "gp-north",
        "status": "ACTIVE",
        "hall": "eu-north-h1",
        "flavor": "gp.l",
        "instances": 40,
        "endsAt": "2026-12-08T14:00:00Z",
        "renewedAt": None,
        "problem": None,
    } | changed


def shown(sco: Sco, api: FakeApi, *regions: dict[str, Any]) -> str:
    api.on("GET", PATH, document(page(*regions)))
    ran = sco("regions")
    assert (ran.code, ran.err) == (0, "")
    return ran.out


def test_a_region_that_is_well_is_one_line(sco: Sco, api: FakeApi) -> None:
    out = shown(sco, api, region(), region("eu-west"))
    assert row(out, "eu-north") == ["eu-north", "closed", "unknown", "38/40", "-", "-", "never"]
    assert row(out, "eu-west")[1] == "closed"
    assert len(out.splitlines()) == 3


def test_an_unwell_region_says_since_when_why_and_until_when(sco: Sco, api: FakeApi) -> None:
    hold = {"until": UNTIL, "refusals": 2, "problem": "Quota exceeded for cores"}
    out = shown(sco, api, region(circuit=OPEN, pausedUntil=UNTIL, quotaHold=hold))
    first = out.splitlines()[1].split()
    assert first[:2] == ["eu-north", "open"]
    assert out.splitlines()[1].count("2026-11-29 14:04:00Z") == 2
    assert "2026-11-29 14:00:00Z" in out.splitlines()[1]
    assert (
        "7 calls failed in a row, the last because the region did not answer in time;"
        " the next call goes at 2026-11-29 14:04:00Z"
    ) in out
    assert "2 refusals in a row: Quota exceeded for cores" in out


def test_failures_that_have_not_opened_the_circuit_are_told_too(sco: Sco, api: FakeApi) -> None:
    out = shown(sco, api, region(circuit=WELL | {"failures": 1, "problem": "the region was silent"}))
    assert out.splitlines()[-1].endswith("1 call failed in a row, the last because the region was silent")


def test_quotas_name_the_tightest_first_and_all_below(sco: Sco, api: FakeApi) -> None:
    quotas = [
        quota("cores", 4000, 3600, "0.0900", alarm=True),
        quota("instances", 100, 6, "0.9000"),
        quota("ram_mib", None, 7, None),
    ]
    out = shown(sco, api, region(quotas=quotas))
    lines = [line.split() for line in out.splitlines()]
    assert lines[1][2:5] == ["9", "%", "cores"]
    assert ["eu-north", "cores", "4,000", "3,600", "4", "9", "%", "low"] in lines
    assert ["eu-north", "instances", "100", "6", "4", "90", "%", "-"] in lines
    assert ["eu-north", "ram_mib", "unlimited", "7", "4", "-", "-"] in lines
    unlimited = shown(sco, api, region(quotas=quotas[2:]))
    assert unlimited.splitlines()[1].split()[2] == "unlimited"


def test_licences_tell_who_may_act_and_what_differs(sco: Sco, api: FakeApi) -> None:
    lapsed = licence(mayAct=False, phase="pacing", drifts={"lost": 2, "orphan": 1}, problem="HTTP 503")
    out = shown(sco, api, region(licences=[lapsed]), region("eu-west", licences=[licence()]))
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert any(one.startswith("eu-north k8s-eu-north read_only 2 lost, 1 orphan 1,200 0") for one in lines)
    assert any(one.startswith("eu-west k8s-eu-north normal none 1,200 0") for one in lines)
    assert "eu-north licence of k8s-eu-north HTTP 503" in lines


def test_only_the_leases_that_end_first_are_listed(sco: Sco, api: FakeApi) -> None:
    many = [lease(name=f"floor-{day}", endsAt=f"2030-01-{day:02d}T00:00:00Z") for day in range(9, 0, -1)]
    lines = shown(sco, api, region(leases=many)).splitlines()
    assert [line.split()[1] for line in lines if " floor-" in line] == ["floor-1", "floor-2", "floor-3"]
    assert "and 6 leases that end no sooner: sco regions -o json" in lines


def test_leases_tell_when_they_end_and_what_is_wrong(sco: Sco, api: FakeApi) -> None:
    out = shown(
        sco, api, region(leases=[lease(), lease(name="st-north", hall=None, problem="no host is free")])
    )
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "eu-north gp-north ACTIVE 40 2026-12-08 14:00:00Z eu-north-h1 gp.l" in lines
    assert "eu-north lease st-north no host is free" in lines


def test_without_a_region_it_says_why(sco: Sco, api: FakeApi) -> None:
    api.on("GET", PATH, document(page()))
    ran = sco("regions")
    assert (ran.code, ran.out) == (0, "")
    assert "no region has a token budget yet" in ran.err


@pytest.mark.parametrize(("form", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_get_what_the_server_said(sco: Sco, api: FakeApi, form: str, load: Any) -> None:
    listed = [region(circuit=OPEN, somethingNew=1), region("eu-west", leases=[lease()])]
    api.on("GET", PATH, document(page(*listed)))
    assert load(sco("regions", "-o", form).out) == listed


def test_an_answer_that_is_not_as_expected_is_named(sco: Sco, api: FakeApi) -> None:
    api.on("GET", PATH, document(page(region(circuit=None))))
    ran = sco("regions")
    assert ran.code == 3
    assert "the regions" in ran.err
    assert "circuit" in ran.err
