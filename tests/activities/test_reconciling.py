"""One look after another at a fleet: what is concluded, what is put right, and what is left alone."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import pairwise

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.provider_acts import READ_ONLY
from domain.acquisition import ServerStatus
from domain.contract import Contract, Tier
from domain.reconcile import Drift, DriftKind, FleetPhase, ReconcileTerms
from store import releases
from store.licences import Place
from tests.activities.deciding import counts_are_right, halls
from tests.activities.provider import Crashed, Create, Fuse, in_doubt
from tests.activities.reconciling import TERMS, Reconciler, tags_of
from tests.estates import PARTITION, REGION, TENANT, Estate, contract

OUTAGE_SECONDS = 3_600


@pytest.fixture
async def reconciler(estate: Estate) -> Reconciler:
    await estate.open(halls(), free=100)
    return Reconciler(estate)


async def licensed(reconciler: Reconciler) -> bool:
    return bool(
        await reconciler.estate.value(
            "SELECT count(*) FROM reconciles WHERE acting_until > :now", now=reconciler.estate.clock()
        )
    )


async def test_a_settled_fleet_has_no_drift(reconciler: Reconciler) -> None:
    await reconciler.launch(6)
    done = await reconciler.cycle()
    assert (done.phase, done.servers, done.drift) == (FleetPhase.NORMAL, 6, {})
    assert done.pause_seconds == TERMS.cycle_seconds
    assert reconciler.poked == []
    assert await licensed(reconciler)


async def test_after_an_outage_two_cycles_must_agree(reconciler: Reconciler) -> None:
    await reconciler.launch(6)
    gone = reconciler.servers()[0]
    reconciler.compute.vanish(gone)
    first = await reconciler.cycle(after_seconds=OUTAGE_SECONDS)
    assert (first.phase, first.agreeing, first.lost) == (FleetPhase.READ_ONLY, 1, 0)
    assert not await licensed(reconciler)
    second = await reconciler.cycle()
    assert (second.phase, second.agreeing, second.lost) == (FleetPhase.PACING, 2, 1)
    assert reconciler.poked == ["orders"]
    assert await reconciler.log("lose") == [(gone, True)]
    third = await reconciler.cycle()
    assert (third.phase, third.drift) == (FleetPhase.NORMAL, {})


async def test_a_gap_in_which_nobody_looked_is_marked(reconciler: Reconciler) -> None:
    await reconciler.launch(2)
    await reconciler.cycle()
    seen = reconciler.estate.clock()
    await reconciler.cycle(after_seconds=OUTAGE_SECONDS)
    ended = reconciler.estate.clock()
    await reconciler.cycle()
    gaps = await reconciler.estate.rows("SELECT since, until FROM fleet_gaps")
    assert [(since, (ended - until).total_seconds() < 10) for since, until in gaps] == [(seen, True)]


async def test_a_server_that_appears_between_two_cycles_starts_the_count_again(
    reconciler: Reconciler,
) -> None:
    await reconciler.launch(2)
    await reconciler.cycle(after_seconds=OUTAGE_SECONDS)
    reconciler.stray(reconciler.servers()[0])
    assert (await reconciler.cycle()).agreeing == 1
    assert (await reconciler.cycle()).phase is FleetPhase.PACING


async def test_two_cycles_that_are_far_apart_do_not_agree(reconciler: Reconciler) -> None:
    await reconciler.launch(2)
    assert (await reconciler.cycle(after_seconds=OUTAGE_SECONDS)).agreeing == 1
    assert (await reconciler.cycle(after_seconds=OUTAGE_SECONDS)).agreeing == 1
    assert (await reconciler.cycle()).agreeing == 2


async def test_a_deletion_that_the_provider_confirms_does_not_disturb_agreement(
    reconciler: Reconciler,
) -> None:
    await reconciler.launch(4)
    await reconciler.cycle(after_seconds=OUTAGE_SECONDS)
    reconciler.compute.vanish(reconciler.servers()[0])
    assert (await reconciler.cycle()).phase is FleetPhase.PACING


async def test_a_list_that_lies_loses_nothing(reconciler: Reconciler) -> None:
    """The provider answers an empty list; asked for each server, it knows them all."""
    await reconciler.launch(6)
    reconciler.compute.hidden = set(reconciler.servers())
    for _ in range(4):
        with pytest.raises(ApplicationError, match="incomplete"):
            await reconciler.cycle()
    assert await reconciler.states() == {"active": 6}
    reconciler.compute.hidden = set()
    assert (await reconciler.cycle()).drift == {}


async def test_a_list_that_lies_after_an_outage_grants_no_licence(reconciler: Reconciler) -> None:
    await reconciler.launch(6)
    await reconciler.cycle(after_seconds=OUTAGE_SECONDS)
    reconciler.compute.hidden = set(reconciler.servers()[:1])
    for _ in range(3):
        with pytest.raises(ApplicationError, match="incomplete"):
            await reconciler.cycle()
    assert not await licensed(reconciler)
    assert await reconciler.states() == {"active": 6}


async def test_a_failed_list_concludes_nothing_and_renews_nothing(reconciler: Reconciler) -> None:
    await reconciler.launch(3)
    for _ in range(10):
        reconciler.compute.list_answers.append(in_doubt())
        with pytest.raises(ApplicationError):
            await reconciler.cycle(after_seconds=60)
    assert not await licensed(reconciler)
    assert await reconciler.states() == {"active": 3}
    assert "503" in await reconciler.estate.value("SELECT problem FROM reconciles")


async def test_a_lost_server_is_given_up_at_once_when_the_provider_confirms_it(
    reconciler: Reconciler,
) -> None:
    await reconciler.launch(4)
    gone = reconciler.servers()[2]
    reconciler.compute.vanish(gone)
    done = await reconciler.cycle()
    assert (done.lost, done.backlog) == (1, 0)
    assert await reconciler.states() == {"active": 3, "lost": 1}
    assert await reconciler.log("lose") == [(gone, False)]
    await counts_are_right(reconciler.estate)


async def test_what_was_lost_is_placed_anew(reconciler: Reconciler) -> None:
    await reconciler.launch(4)
    reconciler.compute.vanish(reconciler.servers()[0])
    await reconciler.cycle()
    decided = await reconciler.acquirer.placer.decide()
    assert decided.placed_units == 4
    await reconciler.acquirer.acquire()
    assert (await reconciler.states())["active"] == 4
    assert (await reconciler.cycle()).drift == {}


async def test_a_server_lost_soon_after_its_launch_keeps_the_workload_away_longer_each_time(
    reconciler: Reconciler,
) -> None:
    await reconciler.launch(1)
    waits = []
    for _ in range(3):
        reconciler.compute.vanish(reconciler.servers()[0])
        await reconciler.cycle()
        rows = await reconciler.estate.rows("SELECT pool_id, failures, until FROM pool_backoffs")
        waits.append(sorted(int((until - reconciler.estate.clock()).total_seconds()) for _, _, until in rows))
        await reconciler.estate.rows("UPDATE pool_backoffs SET until = :past", past=reconciler.estate.clock())
        await reconciler.acquirer.placer.decide()
        await reconciler.acquirer.acquire()
    assert max(waits[0]) == pytest.approx(300, abs=5)
    assert max(waits[2]) == pytest.approx(1200, abs=10)


async def test_a_server_lost_late_costs_its_pool_nothing(reconciler: Reconciler) -> None:
    await reconciler.launch(2)
    await reconciler.estate.license()
    reconciler.compute.vanish(reconciler.servers()[0])
    await reconciler.cycle(after_seconds=901)
    assert await reconciler.estate.rows("SELECT 1 FROM pool_backoffs") == []


@pytest.mark.parametrize("fate", [ServerStatus.ERROR, ServerStatus.STOPPED])
async def test_a_server_that_serves_no_more_is_replaced_and_deleted(
    reconciler: Reconciler, fate: ServerStatus
) -> None:
    await reconciler.launch(3)
    broken = reconciler.servers()[1]
    reconciler.breaks(broken, fate)
    assert (await reconciler.cycle()).lost == 0
    done = await reconciler.cycle()
    assert (done.lost, done.deleted) == (1, 1)
    assert reconciler.compute.deleted == [broken]
    assert reconciler.poked == ["orders"]
    assert (await reconciler.cycle()).drift == {}


async def test_a_late_server_of_a_batch_without_a_free_slot_is_deleted(reconciler: Reconciler) -> None:
    await reconciler.launch(3)
    late = reconciler.stray(reconciler.servers()[0])
    assert (await reconciler.cycle()).deleted == 0
    assert (await reconciler.cycle()).deleted == 1
    assert reconciler.compute.deleted == [late]
    assert await reconciler.log("delete") == [(late, True)]


async def test_a_late_server_with_a_free_slot_is_left_to_its_placement(reconciler: Reconciler) -> None:
    await reconciler.estate.workload()
    await reconciler.acquirer.placer.place(2)
    slot = (await reconciler.estate.rows("SELECT batch_key, pool_id FROM instances ORDER BY 1"))[0]
    metadata = {
        "sco_tenant": "platform",
        "sco_partition": "k8s-eu-north",
        "sco_workload": "orders",
        "sco_batch": slot[0],
        "sco_pool": slot[1],
    }
    reconciler.compute.add(metadata, Create(), tags=tags_of("orders"))
    assert [done.drift for done in await reconciler.cycles(3)] == [{}, {}, {}]


async def test_the_server_of_an_ended_slot_is_deleted(reconciler: Reconciler) -> None:
    await reconciler.launch(3)
    leaked = reconciler.servers()[0]
    await reconciler.estate.rows("UPDATE instances SET state = 'gone' WHERE server_id = :s", s=leaked)
    await reconciler.cycles(2)
    assert reconciler.compute.deleted == [leaked]


async def test_foreign_servers_are_never_touched(reconciler: Reconciler) -> None:
    await reconciler.launch(2)
    like = reconciler.servers()[0]
    foreign = {
        reconciler.foreign(),
        reconciler.stray(like, sco_partition="slurm-eu-north", sco_batch="b-other"),
        reconciler.stray(like, sco_tenant="another", sco_batch="b-other"),
    }
    await reconciler.cycles(3)
    await reconciler.cycle(after_seconds=OUTAGE_SECONDS)
    await reconciler.cycles(5)
    assert reconciler.compute.deleted == []
    assert foreign <= reconciler.compute.left()


async def test_a_stranger_is_left_alone_until_patience_ends(reconciler: Reconciler) -> None:
    """Its workload may only have been forgotten, with a backup that is older than it."""
    await reconciler.launch(2)
    stranger = reconciler.stray(reconciler.servers()[0], sco_workload="unknown", sco_batch="b-unknown")
    done = (await reconciler.cycles(5))[-1]
    assert (done.drift, done.deleted, done.phase) == ({"stranger": 1}, 0, FleetPhase.NORMAL)
    assert done.pause_seconds == TERMS.cycle_seconds
    await reconciler.estate.license()
    await reconciler.cycle(after_seconds=TERMS.stranger_patience_seconds)
    assert reconciler.compute.deleted == [stranger]


async def test_lost_tags_are_written_again(reconciler: Reconciler) -> None:
    await reconciler.launch(2)
    stripped, partly = reconciler.servers()[:2]
    reconciler.compute.hidden = {stripped}
    reconciler.change(stripped, tags=())
    reconciler.change(partly, tags=tags_of("orders")[:2])
    assert (await reconciler.cycle()).drift == {"wrong_tags": 2}
    assert (await reconciler.cycle()).retagged == 2
    reconciler.compute.hidden = set()
    assert {frozenset(reconciler.compute.made[one].server.tags) for one in (stripped, partly)} == {
        frozenset(tags_of("orders"))
    }
    assert (await reconciler.cycle()).drift == {}
    assert await reconciler.states() == {"active": 2}


async def test_a_lost_fleet_is_rebuilt_from_what_servers_say(reconciler: Reconciler) -> None:
    await reconciler.launch(7)
    before = await reconciler.acquirer.placer.held()
    await reconciler.forget_fleet()
    first = await reconciler.cycle(after_seconds=OUTAGE_SECONDS)
    assert (first.drift, first.adopted) == ({"unrecorded": 7}, 0)
    second = await reconciler.cycle()
    assert (second.adopted, second.deleted, second.lost) == (7, 0, 0)
    assert await reconciler.states() == {"active": 7}
    assert await reconciler.acquirer.placer.held() == before
    assert (await reconciler.cycle()).drift == {}
    await counts_are_right(reconciler.estate)
    assert await names(reconciler) == made_names(reconciler)
    decided = await reconciler.acquirer.placer.decide()
    assert (decided.placed_units, decided.acquire_regions) == (7, ())


async def test_names_that_were_never_kept_or_have_changed_are_as_the_provider_says_after_a_cycle(
    reconciler: Reconciler,
) -> None:
    await reconciler.launch(4)
    await reconciler.estate.rows("UPDATE instances SET server_name = NULL")
    first = min(reconciler.compute.made)
    made = reconciler.compute.made[first]
    made.server = replace(made.server, name="renamed")
    await reconciler.cycle()
    kept = await names(reconciler)
    assert kept == made_names(reconciler)
    assert kept[first] == "renamed"


async def names(reconciler: Reconciler) -> dict[str, str | None]:
    rows = await reconciler.estate.rows("SELECT server_id, server_name FROM instances ORDER BY 1")
    return dict(rows)


def made_names(reconciler: Reconciler) -> dict[str, str | None]:
    return {one.server.server_id: one.server.name for one in reconciler.compute.made.values()}


async def test_what_a_claim_has_no_units_for_is_not_adopted_but_given_back_in_small_steps(
    reconciler: Reconciler,
) -> None:
    await reconciler.launch(8)
    await reconciler.forget_fleet()
    await reconciler.estate.claim(5)
    await reconciler.cycle(after_seconds=OUTAGE_SECONDS)
    done = await reconciler.cycle()
    assert (done.adopted, done.deleted) == (5, 1)
    await reconciler.cycles(3)
    assert len(reconciler.compute.deleted) == 1
    for _ in range(4):
        await reconciler.cycle(after_seconds=TERMS.pace_window_seconds - 10)
    assert len(set(reconciler.compute.deleted)) == 3
    assert await reconciler.states() == {"active": 5}


async def test_plans_made_before_the_records_were_rebuilt_launch_nothing(reconciler: Reconciler) -> None:
    """A claim that is planned while its servers are forgotten asks for all of them anew."""
    await reconciler.launch(6)
    await reconciler.forget_fleet()
    decided = await reconciler.acquirer.placer.decide()
    assert decided.placed_units == 6
    await reconciler.cycle(after_seconds=OUTAGE_SECONDS)
    assert (await reconciler.cycle()).adopted == 6
    assert (await reconciler.acquirer.acquire()).active == 6
    assert reconciler.compute.creates == []
    assert reconciler.compute.deleted == []
    assert (await reconciler.states())["active"] == 6
    await counts_are_right(reconciler.estate)


async def test_a_provider_that_was_away_costs_no_pace(reconciler: Reconciler) -> None:
    """Somebody tried to look all the time, so the records are as good as before."""
    await reconciler.launch(6)
    for _ in range(8):
        reconciler.compute.list_answers.append(in_doubt())
        with pytest.raises(ApplicationError):
            await reconciler.cycle(after_seconds=60)
    assert not await licensed(reconciler)
    lost = reconciler.servers()[:3]
    for server_id in lost:
        reconciler.compute.vanish(server_id)
    assert (await reconciler.cycle()).phase is FleetPhase.READ_ONLY
    done = await reconciler.cycle()
    assert (done.phase, done.lost) == (FleetPhase.NORMAL, 3)


async def test_a_first_launch_waits_for_two_looks_and_for_no_pace(reconciler: Reconciler) -> None:
    await reconciler.estate.workload()
    await reconciler.estate.rows("DELETE FROM reconciles")
    await reconciler.acquirer.placer.place(5)
    assert (await reconciler.cycle()).phase is FleetPhase.READ_ONLY
    assert (await reconciler.cycle()).phase is FleetPhase.NORMAL
    assert (await reconciler.acquirer.acquire()).active == 5


async def test_a_fleet_of_unknown_workloads_is_not_terminated(reconciler: Reconciler) -> None:
    await reconciler.launch(6)
    await reconciler.forget_fleet()
    for statement in ("UPDATE workloads SET claim_version = 0", "DELETE FROM claims"):
        await reconciler.estate.rows(statement)
    await reconciler.cycle(after_seconds=OUTAGE_SECONDS)
    for done in await reconciler.cycles(8):
        assert (done.deleted, done.drift) == (0, {"stranger": 6})


async def test_strict_tiers_come_first_and_the_pace_holds(reconciler: Reconciler) -> None:
    tiers = {"batch": Tier.T4, "orders": Tier.T1, "web": Tier.T2}
    for workload_id, tier in tiers.items():
        under = Contract.model_validate(contract(f"c-{workload_id}", floor="0").model_dump() | {"tier": tier})
        await reconciler.launch(4, workload_id, under=under)
    for server_id in reconciler.servers():
        reconciler.compute.vanish(server_id)
    await reconciler.cycle(after_seconds=OUTAGE_SECONDS)
    lost = []
    for _ in range(24):
        await reconciler.cycle(after_seconds=TERMS.pace_window_seconds - 10)
        lost.append(len(await reconciler.log("lose")))
    assert all(after - before <= 1 for before, after in pairwise(lost))
    rows = await reconciler.estate.rows(
        "SELECT workload_id FROM audit_log WHERE action = 'lose' ORDER BY sequence"
    )
    order = [row[0] for row in rows]
    assert order == sorted(order, key=lambda one: [*Tier].index(tiers[one]))
    assert len(order) == 12


async def test_launches_planned_before_an_outage_wait_for_the_pace(reconciler: Reconciler) -> None:
    await reconciler.launch(4)
    await reconciler.acquirer.placer.place(7)
    reconciler.estate.clock.move(OUTAGE_SECONDS)
    await reconciler.estate.license(phase=FleetPhase.PACING)
    planned = reconciler.estate.clock()
    reconciler.acquirer.reconcile = ReconcileTerms(pace_window_seconds=60)
    await reconciler.acquirer.acquire()
    launched = await reconciler.estate.rows(
        "SELECT at, instances FROM audit_log WHERE action = 'launch' AND paced ORDER BY at"
    )
    assert [number for _, number in launched] == [1] * 3
    assert launched[0][0] >= planned
    spans = [(later[0] - first[0]).total_seconds() for first, later in pairwise(launched)]
    assert min(spans) >= 60


async def paced_deletions(reconciler: Reconciler) -> list[datetime]:
    rows = await reconciler.estate.rows(
        "SELECT at FROM audit_log WHERE action = 'delete' AND paced ORDER BY sequence"
    )
    return [row[0] for row in rows]


async def test_after_an_outage_a_launch_leaves_what_is_left_over_to_the_pace(reconciler: Reconciler) -> None:
    await reconciler.launch(4)
    for _ in range(3):
        reconciler.stray(reconciler.servers()[0])
    await reconciler.estate.license(phase=FleetPhase.PACING)
    assert (await reconciler.acquirer.acquire()).active == 4
    assert len(await paced_deletions(reconciler)) == len(reconciler.compute.deleted) == 1
    await reconciler.estate.license()
    assert (await reconciler.acquirer.acquire()).active == 4
    assert len(set(reconciler.compute.deleted)) == 3
    assert len(await paced_deletions(reconciler)) == 1


async def test_after_an_outage_surplus_is_given_back_at_the_pace(reconciler: Reconciler) -> None:
    await reconciler.launch(6)
    await reconciler.acquirer.placer.place(2)
    async with reconciler.estate.engine.begin() as connection:
        await releases.mark_surplus(connection, TENANT, "orders")
    await reconciler.estate.license(phase=FleetPhase.PACING)
    reconciler.acquirer.reconcile = ReconcileTerms(pace_window_seconds=60)
    assert (await reconciler.acquirer.release()).released == 4
    asked = await paced_deletions(reconciler)
    assert len(asked) == 4
    assert min((later - first).total_seconds() for first, later in pairwise(asked)) >= 60


async def test_without_a_licence_nothing_is_launched(reconciler: Reconciler) -> None:
    await reconciler.estate.workload()
    await reconciler.acquirer.placer.place(3)
    await reconciler.cycle()
    await reconciler.cycle(after_seconds=OUTAGE_SECONDS)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reconciler.acquirer.acquire(), 0.5)
    assert reconciler.compute.creates == []


async def test_a_licence_that_lapses_between_look_and_act_stops_the_act(reconciler: Reconciler) -> None:
    await reconciler.launch(3)
    late = reconciler.stray(reconciler.servers()[0])
    await reconciler.cycle()
    seen = await reconciler.cycle()
    reconciler.estate.clock.move(TERMS.lapse_seconds)
    drift = Drift(DriftKind.ORPHAN, late, "one too many", "orders", "eu-north-h1-p1")
    place = Place(TENANT, PARTITION, REGION)
    with pytest.raises(ApplicationError) as refused:
        await ActivityEnvironment().run(reconciler.repairs().repair, place, [drift], frozenset(), seen)
    assert refused.value.type == READ_ONLY
    assert refused.value.non_retryable is False


@pytest.mark.parametrize("point", range(1, 26))
async def test_a_cycle_that_dies_anywhere_is_made_up_for(reconciler: Reconciler, point: int) -> None:
    await reconciler.launch(5)
    lost, broken, leaked = reconciler.servers()[:3]
    reconciler.compute.vanish(lost)
    reconciler.breaks(broken)
    late = reconciler.stray(leaked)
    await reconciler.cycle()
    fuse = Fuse(blows_at=point)
    with suppress(Crashed):
        await reconciler.cycle(fuse=fuse)
    for _ in range(3):
        await reconciler.cycle(after_seconds=TERMS.pace_window_seconds - 10)
    await reconciler.cycles(2)
    assert {broken, late} <= set(reconciler.compute.deleted)
    assert (await reconciler.cycle()).drift == {}
    assert await reconciler.states() == {"active": 3, "lost": 2}
    await counts_are_right(reconciler.estate)
