"""Provider regions over REST and on the screen: whether each is well, what its quota leaves, who may act."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest_asyncio

from domain.circuit import WELL, CircuitTerms
from domain.quota import Level, QuotaResource
from store import quota_holds, quota_reports
from store.budget import BudgetStore
from tests.api.door import Door
from tests.api.test_screens import HOSTILE, shown
from tests.estates import PARTITION, REGION, TENANT

REGIONS, SCREEN = "/factory/provider-regions", "/ui/regions"
LONG = CircuitTerms(open_seconds=600, most_open_seconds=600)
LEVELS = (
    Level(resource=QuotaResource.INSTANCES, limit=100, used=6, pending=2, alarm=False),
    Level(resource=QuotaResource.CORES, limit=400, used=320, pending=30, alarm=True),
    Level(resource=QuotaResource.RAM_MIB, limit=None, used=24_576, pending=8_192, alarm=False),
)


class Regions:
    """The front door, and the hands that change how regions are."""

    def __init__(self, door: Door, budgets: BudgetStore) -> None:
        self.door = door
        self.budgets = budgets

    async def one(self, region: str = REGION) -> dict[str, Any]:
        listed = (await self.door.get(REGIONS)).json()["items"]
        (found,) = [each for each in listed if each["region"] == region]
        return dict(found)

    async def fail(self, times: int) -> None:
        for _ in range(times):
            await asyncio.to_thread(self.budgets.report_failure, REGION, WELL, "the region was silent")

    async def quota(self, *levels: Level) -> None:
        async with self.door.estate.engine.begin() as connection:
            await quota_reports.report(connection, TENANT, REGION, levels, self.door.estate.clock())

    async def licence(self, phase: str, *, seconds: int | None, problem: str | None = None) -> None:
        now = self.door.estate.clock()
        await self.door.estate.rows(
            "INSERT INTO reconciles (tenant_id, partition_id, region, phase, cycle, fleet, backlog, problem,"
            " acting_until, last_complete_at) VALUES (:tenant, :partition, :region, :phase, 9, 40, 3,"
            " :problem, :until, :now) ON CONFLICT (tenant_id, partition_id, region) DO UPDATE SET"
            " phase = excluded.phase, problem = excluded.problem, acting_until = excluded.acting_until,"
            " fleet = excluded.fleet, backlog = excluded.backlog,"
            " last_complete_at = excluded.last_complete_at",
            tenant=TENANT,
            partition=PARTITION,
            region=REGION,
            phase=phase,
            problem=problem,
            until=None if seconds is None else now + timedelta(seconds=seconds),
            now=now,
        )

    async def drift(self, kind: str, *subjects: str) -> None:
        for subject in subjects:
            await self.door.estate.rows(
                "INSERT INTO drifts (tenant_id, partition_id, region, kind, subject, detail, first_seen_at,"
                " last_seen_at) VALUES (:tenant, :partition, :region, :kind, :subject, '', :now, :now)",
                tenant=TENANT,
                partition=PARTITION,
                region=REGION,
                kind=kind,
                subject=subject,
                now=self.door.estate.clock(),
            )

    async def lease(self, name: str, status: str = "ACTIVE", problem: str | None = None) -> None:
        await self.door.estate.rows(
            "INSERT INTO leases (tenant_id, region, lease_id, name, status, hall, flavor, instances, ends_at,"
            " problem) VALUES (:tenant, :region, :name, :name, :status, 'eu-north-h1', 'gp.l', 40, :ends,"
            " :problem)",
            tenant=TENANT,
            region=REGION,
            name=name,
            status=status,
            ends=self.door.estate.clock() + timedelta(days=9),
            problem=problem,
        )


@pytest_asyncio.fixture
async def regions(door: Door, dsn: str) -> AsyncIterator[Regions]:
    """Two regions with budgets, and a partition in one of them."""
    await door.open_estate()
    budgets = BudgetStore(dsn, tenant_id=TENANT, terms=LONG)
    for region in (REGION, "eu-west"):
        await asyncio.to_thread(budgets.set_budget, region, burst=40, refill_per_second=Decimal("0.5"))
    yield Regions(door, budgets)
    budgets.close()


async def test_a_region_that_nobody_called_is_well(regions: Regions) -> None:
    told = await regions.one("eu-west")
    assert told == {
        "region": "eu-west",
        "budget": {"tokens": 40, "burst": 40, "refillPerSecond": "0.500"},
        "circuit": {
            "state": "closed",
            "failures": 0,
            "trips": 0,
            "problem": None,
            "since": None,
            "until": None,
        },
        "pausedUntil": None,
        "quotas": [],
        "quotaAlarm": False,
        "quotaHold": None,
        "licences": [],
        "leases": [],
    }


async def test_regions_without_a_budget_are_not_called_and_not_listed(door: Door) -> None:
    await door.open_estate()
    assert (await door.get(REGIONS)).json() == {"items": [], "nextPageToken": None}
    assert "No region has a token budget yet" in (await shown(door, SCREEN)).text


async def test_listing_goes_on_where_the_page_before_it_ended(regions: Regions) -> None:
    first = (await regions.door.get(REGIONS, pageSize=1)).json()
    second = (await regions.door.get(REGIONS, pageSize=1, pageToken=first["nextPageToken"])).json()
    assert [one["region"] for one in first["items"] + second["items"]] == ["eu-north", "eu-west"]
    assert second["nextPageToken"] is None


async def test_an_open_circuit_says_since_when_why_and_until_when(regions: Regions) -> None:
    await regions.fail(3)
    assert (await regions.one())["circuit"]["failures"] == 3
    shaky = await shown(regions.door, SCREEN)
    assert "3 calls failed in a row, the last because the region was silent." in shaky.text
    await regions.fail(2)
    told = (await regions.one())["circuit"]
    assert (told["state"], told["failures"], told["trips"]) == ("open", 5, 1)
    assert told["problem"] == "the region was silent"
    assert told["since"] < told["until"]
    page = await shown(regions.door, SCREEN)
    assert "circuit open" in page.text
    assert "5 calls failed in a row, the last because the region was silent. Unwell since" in page.text
    assert "then one call tries" in page.text


async def test_the_probe_of_a_half_open_circuit_is_shown(regions: Regions) -> None:
    await regions.fail(5)
    await regions.door.estate.rows("UPDATE provider_budgets SET circuit_until = now() WHERE circuit = 'open'")
    assert (await asyncio.to_thread(regions.budgets.try_take, REGION)).taken
    assert (await regions.one())["circuit"]["state"] == "half_open"
    assert "one call is trying the region now" in (await shown(regions.door, SCREEN)).text


async def test_a_pause_is_told_while_it_lasts(regions: Regions) -> None:
    await asyncio.to_thread(regions.budgets.report_answer, REGION, WELL, pause_seconds=600)
    assert (await regions.one())["pausedUntil"] is not None
    assert (await regions.one("eu-west"))["pausedUntil"] is None
    assert "The provider asked every caller to wait until" in (await shown(regions.door, SCREEN)).text
    await regions.door.estate.rows("UPDATE provider_budgets SET paused_until = now()")
    assert (await regions.one())["pausedUntil"] is None
    assert "asked every caller" not in (await shown(regions.door, SCREEN)).text


async def test_tokens_are_those_that_are_left_now(regions: Regions) -> None:
    for _ in range(7):
        await asyncio.to_thread(regions.budgets.try_take, REGION)
    assert (await regions.one())["budget"]["tokens"] in (33, 34)
    assert "of 40" in (await shown(regions.door, SCREEN)).text


async def test_quotas_are_told_with_what_is_pending_and_their_alarms(regions: Regions) -> None:
    await regions.quota(*LEVELS)
    told = await regions.one()
    assert told["quotaAlarm"] is True
    assert [
        (one["resource"], one["limit"], one["used"], one["pending"], one["left"], one["shareLeft"])
        for one in told["quotas"]
    ] == [
        ("cores", 400, 320, 30, 50, "0.1250"),
        ("instances", 100, 6, 2, 92, "0.9200"),
        ("ram_mib", None, 24_576, 8_192, None, None),
    ]
    page = await shown(regions.door, SCREEN)
    assert "quota low" in page.text
    assert "350 of 400 cores" in [bar.attributes["aria-label"] for bar in page.all("svg")]
    assert "unlimited" in page.text


async def test_a_quota_hold_is_told_until_it_ends(regions: Regions) -> None:
    estate = regions.door.estate
    async with estate.engine.begin() as connection:
        await quota_holds.hold(connection, TENANT, REGION, "Quota exceeded for cores", estate.clock())
    told = (await regions.one())["quotaHold"]
    assert (told["refusals"], told["problem"]) == (1, "Quota exceeded for cores")
    page = await shown(regions.door, SCREEN)
    assert "after 1 refusal for quota in a row: Quota exceeded for cores" in page.text
    estate.clock.move(61)
    assert (await regions.one())["quotaHold"] is None


async def test_licences_say_who_may_act_and_what_differs(regions: Regions) -> None:
    await regions.licence("normal", seconds=300)
    await regions.drift("lost", "slot-1", "slot-2")
    await regions.drift("orphan", "server-9")
    (told,) = (await regions.one())["licences"]
    assert (told["partitionId"], told["phase"], told["mayAct"]) == (PARTITION, "normal", True)
    assert (told["fleet"], told["backlog"], told["drifts"]) == (40, 3, {"lost": 2, "orphan": 1})
    assert "2 lost, 1 orphan" in (await shown(regions.door, SCREEN)).text
    assert (await regions.one("eu-west"))["licences"] == []


async def test_a_licence_that_ran_out_lets_nobody_act_whatever_its_phase(regions: Regions) -> None:
    await regions.licence("pacing", seconds=1)
    assert (await regions.one())["licences"][0]["mayAct"] is True
    regions.door.estate.clock.move(2)
    assert (await regions.one())["licences"][0]["mayAct"] is False
    assert "read only" in (await shown(regions.door, SCREEN)).text
    await regions.licence("read_only", seconds=None, problem="page 3 of the list failed")
    (told,) = (await regions.one())["licences"]
    assert (told["mayAct"], told["actingUntil"]) == (False, None)
    assert "page 3 of the list failed" in (await shown(regions.door, SCREEN)).text


async def test_leases_are_told_by_their_end_with_what_is_wrong(regions: Regions) -> None:
    await regions.lease("gp-north", problem="it could not be renewed: no host is free then")
    (told,) = (await regions.one())["leases"]
    assert (told["name"], told["hall"], told["flavor"], told["instances"]) == (
        "gp-north",
        "eu-north-h1",
        "gp.l",
        40,
    )
    page = await shown(regions.door, SCREEN)
    assert "gp-north" in page.text
    assert "no host is free then" in page.text


async def test_what_a_provider_says_stays_text(regions: Regions) -> None:
    await asyncio.to_thread(regions.budgets.report_failure, REGION, WELL, HOSTILE)
    await regions.lease(HOSTILE, status=HOSTILE, problem=HOSTILE)
    await regions.licence("read_only", seconds=None, problem=HOSTILE)
    text = (await regions.door.get(SCREEN)).text
    assert "<script" not in text.lower()
    assert "<img" not in text.lower()
    assert HOSTILE in (await shown(regions.door, SCREEN)).text
