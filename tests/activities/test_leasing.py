"""Leases of ours are renewed ahead of their end, whatever goes wrong, and those of others are left alone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from temporalio.exceptions import ApplicationError

from activities.openstack.catalog import OpenStackCatalog
from activities.ports import ProviderError, ProviderErrorKind
from domain.leases import LeaseTerms
from lab.cloud.faults import FaultKind, FaultRule
from lab.cloud.server import CloudHandle
from lab.cloud.settings import CloudSettings
from tests.activities.leasing import Watcher, pool_of, sample
from tests.activities.provider import Crashed, Fuse
from tests.estates import Estate

PUT = {"method": "PUT", "path": "/reservation/v1/leases/"}
TERM = timedelta(days=30)


@pytest.fixture
def cloud() -> Iterator[CloudHandle]:
    with CloudHandle.start_in_thread(CloudSettings(speed=0)) as handle:
        yield handle


@pytest_asyncio.fixture
async def watcher(estate: Estate, cloud: CloudHandle) -> Any:
    """Committed pools of ours in two halls; every other lease of the region belongs to others."""
    made = Watcher(estate, cloud)
    await made.open((1, 2))
    yield made
    made.close()


async def test_leases_that_do_not_end_soon_are_recorded_and_left_alone(watcher: Watcher) -> None:
    found = await watcher.watch()
    assert (found.leases, found.renewed, found.alarms, found.problems) == (2, 0, 0, ())
    assert found.next_end_at == watcher.ends(1) == watcher.ends(2)
    assert await watcher.rows("count(*), count(renewed_at), count(problem)") == [(36, 0, 0)]
    amount = watcher.leases()[pool_of(1)].reservations[0].amount
    recorded = await watcher.rows("status, hall, flavor, instances", f"name = '{pool_of(1)}'")
    assert recorded == [("ACTIVE", "eu-north-h1", "gp.l", amount)]
    assert await watcher.entries() == []


async def test_leases_of_ours_are_renewed_ahead_and_no_others(watcher: Watcher) -> None:
    await watcher.watch()
    before = {name: lease.ends_at for name, lease in watcher.leases().items()}
    watcher.advance(days=27, hours=1)
    done = sample("sco_lease_renewals_total", outcome="renewed") or 0
    found = await watcher.watch()
    after = {name: lease.ends_at for name, lease in watcher.leases().items()}
    ours = {pool_of(1), pool_of(2)}
    assert (found.leases, found.renewed, found.problems) == (2, 2, ())
    assert {name for name in after if after[name] != before[name]} == ours
    for name in ours:
        assert after[name] == before[name] + TERM == found.next_end_at
        assert sample("sco_lease_ends_timestamp_seconds", lease=name) == after[name].timestamp()
    assert sample("sco_lease_ends_timestamp_seconds", lease=pool_of(3)) is None
    assert sample("sco_lease_renewals_total", outcome="renewed") == done + 2
    assert await watcher.rows("name", "renewed_at IS NOT NULL") == [(name,) for name in sorted(ours)]
    assert (await watcher.watch()).renewed == 0
    assert watcher.heartbeats >= 5


async def test_every_renewal_is_in_the_audit_log_with_its_cause(watcher: Watcher) -> None:
    ends = watcher.ends(1)
    watcher.advance(days=28)
    await watcher.watch()
    entries = await watcher.entries()
    assert [entry[:3] for entry in entries] == [("tests", "renew_lease", pool_of(hall)) for hall in (1, 2)]
    assert f"ends {ends:%Y-%m-%d %H:%M} UTC and holds {pool_of(1)}" in entries[0][3]
    assert f"it shall end {ends + TERM:%Y-%m-%d %H:%M} UTC" in entries[0][3]


@pytest.mark.parametrize("watching", [True, False])
async def test_committed_servers_live_on_while_somebody_watches(watcher: Watcher, watching: bool) -> None:
    """Without the watch the provider deletes them at the lease's end: that is what it is for."""
    watcher.launch(1, 2)
    assert watcher.running() == 2
    for _ in range(20):
        watcher.advance(days=2)
        if watching:
            await watcher.watch()
    assert watcher.running() == (2 if watching else 0)
    assert ((pool_of(1)[:11], "gp.l") in watcher.hands.catalog.committed_reservations("eu-north")) is watching


async def test_a_refused_lease_holds_up_no_other_and_says_why(watcher: Watcher) -> None:
    watcher.book(1, name="of others, later", days=60, starts=31)
    watcher.advance(days=28)
    done = sample("sco_lease_renewals_total", outcome="refused") or 0
    found = await watcher.watch()
    assert (found.renewed, found.alarms) == (1, 0)
    (problem,) = found.problems
    assert problem.startswith(f"{pool_of(1)}: ")
    assert "Not enough hosts available" in problem
    assert sample("sco_lease_renewals_total", outcome="refused") == done + 1
    recorded = await watcher.rows("name", "problem LIKE '%Not enough hosts%'")
    assert recorded == [(pool_of(1),)]
    assert sample("sco_lease_alarm") == 0
    watcher.advance(days=1, hours=1)
    assert (await watcher.watch()).alarms == 1
    assert sample("sco_lease_alarm") == 1


async def test_what_was_refused_is_tried_again_and_its_problem_ends(watcher: Watcher) -> None:
    watcher.cloud.admin.set_leases("eu-north", full=True)
    watcher.advance(days=28)
    refused = await watcher.watch()
    assert (refused.renewed, len(refused.problems)) == (0, 2)
    watcher.cloud.admin.set_leases("eu-north", full=False)
    found = await watcher.watch()
    assert (found.renewed, found.problems) == (2, ())
    assert await watcher.rows("problem", "problem IS NOT NULL") == []
    assert len(await watcher.entries()) == 4


@pytest.mark.parametrize("kind", [FaultKind.TIMEOUT_AFTER, FaultKind.ERROR_AFTER])
async def test_a_renewal_whose_answer_was_lost_is_seen_at_the_next_look(
    watcher: Watcher, kind: FaultKind
) -> None:
    ends = watcher.ends(1)
    await watcher.watch()
    watcher.advance(days=28)
    watcher.cloud.admin.add_fault(FaultRule(kind=kind, delay_seconds=0.1, times=2, **PUT))
    lost = await watcher.watch()
    assert (lost.renewed, len(lost.problems)) == (0, 2)
    assert watcher.ends(1) == watcher.ends(2) == ends + TERM
    found = await watcher.watch()
    assert (found.renewed, found.problems, found.next_end_at) == (0, (), ends + TERM)
    assert await watcher.rows("count(*)", "renewed_at IS NOT NULL") == [(2,)]


async def test_a_worker_may_die_at_every_point(watcher: Watcher) -> None:
    """Above all between the audit log and the call: the entry is there, and the lease is renewed later."""
    whole = Fuse()
    ends = watcher.ends(1)
    watcher.advance(days=28)
    dying = Fuse(after=["after a commit", "after a commit"])
    with pytest.raises(Crashed):
        await watcher.watch(dying)
    assert len(await watcher.entries()) == 1
    assert watcher.ends(1) == ends
    await watcher.watch(whole)
    assert watcher.ends(1) == watcher.ends(2) == ends + TERM
    for turn, point in enumerate(whole.points, 1):
        watcher.advance(days=30)
        with pytest.raises(Crashed):
            await watcher.watch(Fuse(blows_at=turn))
        found = await watcher.watch()
        expected = ends + TERM * (turn + 1)
        assert (watcher.ends(1), watcher.ends(2)) == (expected, expected), point
        assert (found.problems, found.next_end_at) == ((), expected)


async def test_a_lease_that_ended_or_went_away_is_shown_until_another_holds_its_pool(
    watcher: Watcher,
) -> None:
    await watcher.watch()
    client = watcher.cloud.connect("eu-north")
    gone = watcher.leases()[pool_of(1)]
    client.reservation.delete(f"/leases/{gone.lease_id}")
    found = await watcher.watch()
    assert (found.leases, found.alarms) == (2, 1)
    (problem,) = found.problems
    assert problem.startswith(f"{pool_of(1)}: the provider lists it no longer, and no other lease holds ")
    assert await watcher.rows("status", f"name = '{pool_of(1)}'") == [("GONE",)]
    assert sample("sco_lease_ends_timestamp_seconds", lease=pool_of(1)) is None
    watcher.book(1, name="new", days=60)
    found = await watcher.watch()
    assert (found.leases, found.alarms, found.problems) == (2, 0, ())
    assert await watcher.rows("name", f"name = '{pool_of(1)}'") == []


async def test_an_ended_lease_is_an_alarm_and_forgotten_when_somebody_tidies_up(watcher: Watcher) -> None:
    watcher.advance(days=31)
    found = await watcher.watch()
    assert (found.renewed, found.alarms, found.next_end_at) == (0, 2, None)
    assert found.problems[0].startswith(f"{pool_of(1)}: it ended, and no other lease holds ")
    client = watcher.cloud.connect("eu-north")
    for name, lease in watcher.leases().items():
        if name == pool_of(1):
            client.reservation.delete(f"/leases/{lease.lease_id}")
    assert (await watcher.watch()).leases == 1


async def test_a_lease_in_error_is_renewed_and_shown(watcher: Watcher, monkeypatch: Any) -> None:
    """It keeps its servers until its end, so its end must move too."""
    leases = OpenStackCatalog.leases

    def with_error(self: OpenStackCatalog, region: str) -> Any:
        from dataclasses import replace

        return [
            replace(each, status="ERROR") if each.name == pool_of(1) else each
            for each in leases(self, region)
        ]

    monkeypatch.setattr(OpenStackCatalog, "leases", with_error)
    ends = watcher.ends(1)
    watcher.advance(days=28)
    found = await watcher.watch()
    assert found.renewed == 2
    assert found.problems[0].startswith(f"{pool_of(1)}: the provider reports ERROR")
    assert watcher.ends(1) == ends + TERM
    assert await watcher.rows("status", "problem IS NOT NULL") == [("ERROR",)]


async def test_a_retired_pool_lets_its_lease_end(watcher: Watcher) -> None:
    await watcher.estate.rows("UPDATE pools SET state = 'retired' WHERE pool_id = :p", p=pool_of(2))
    watcher.advance(days=28)
    found = await watcher.watch()
    assert (found.leases, found.renewed) == (1, 1)
    watcher.advance(days=3)
    assert (await watcher.watch()).problems == ()


async def test_a_region_that_does_not_answer_changes_nothing(watcher: Watcher) -> None:
    await watcher.watch()
    before = await watcher.rows("*")
    watcher.cloud.admin.add_fault(FaultRule(kind=FaultKind.ERROR_BEFORE, path="/leases$"))
    with pytest.raises(ApplicationError) as failed:
        await watcher.watch()
    assert (failed.value.type, failed.value.non_retryable) == ("unavailable", False)
    assert await watcher.rows("*") == before


class Throttling:
    """A catalog that lists, and refuses every renewal because we call too often."""

    def __init__(self, catalog: OpenStackCatalog) -> None:
        self.leases = catalog.leases
        self.asked = 0

    def extend_lease(self, region: str, lease_id: str, ends_at: datetime) -> None:
        self.asked += 1
        raise ProviderError(ProviderErrorKind.THROTTLED, "no token came")


async def test_a_throttled_look_stops_asking(watcher: Watcher) -> None:
    """Every further call would wait for a token in vain, and the next look comes soon."""
    watcher.advance(days=28)
    catalog = Throttling(watcher.hands.catalog)
    found = await watcher.watch(catalog=catalog)
    assert catalog.asked == len(await watcher.entries()) == 1
    assert found.problems == tuple(f"{pool_of(hall)}: no token came" for hall in (1, 2))


async def test_other_terms_renew_at_another_time_and_for_another_term(
    estate: Estate, cloud: CloudHandle
) -> None:
    watcher = Watcher(estate, cloud, LeaseTerms(renew_ahead_hours=200, term_days=10))
    await watcher.open()
    ends = watcher.ends(1)
    watcher.advance(days=21)
    assert (await watcher.watch()).renewed == 0
    watcher.advance(days=1)
    assert (await watcher.watch()).renewed == 2
    assert watcher.ends(1) == ends + timedelta(days=10)
    watcher.close()
