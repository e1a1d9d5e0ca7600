"""The auditor on real records and real servers: it finds what is planted, and writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
import pytest_asyncio
import sqlalchemy as sa
from psycopg import sql
from sqlalchemy.exc import DBAPIError

from domain.acquisition import Failure
from domain.audit import ENDED_BY, STARTED_BY, FindingKind, Verdict
from domain.tags import MANAGED_TAG, server_tags, workload_tag
from lab.cloud.faults import FaultKind, FaultRule
from lab.cloud.records import Status
from lab.cloud.server import CloudHandle
from lab.cloud.settings import CloudSettings
from store import slots
from store.audit_facts import snapshot
from store.audit_log import Action, Entry, record
from store.engine import create_engine
from store.tables import audits
from tests.activities.auditing import INSTANCES, BetweenLooks, Fleet, without
from tests.estates import PARTITION, REGION, TENANT, Estate

K = FindingKind
Found = list[tuple[FindingKind, str]]
Plant = Callable[[Fleet], Awaitable[Found]]
READER = "sco_reader"


@pytest.fixture(scope="module")
def cloud() -> Iterator[CloudHandle]:
    with CloudHandle.start_in_thread(CloudSettings(speed=400)) as handle:
        yield handle


@pytest_asyncio.fixture
async def fleet(estate: Estate, cloud: CloudHandle, dsn: str) -> AsyncIterator[Fleet]:
    """Three running instances of one workload, of which everything is in order."""
    own = Fleet(estate, cloud, dsn)
    await own.open()
    await own.settled()
    yield own
    cloud.admin.clear_faults()
    own.close()


def ours(workload_id: str = "orders") -> tuple[str, ...]:
    return server_tags(PARTITION, workload_id, "reclaimable")


def labels(batch_key: str, workload_id: str = "orders") -> dict[str, str]:
    return {"sco_batch": batch_key, "sco_workload": workload_id, "sco_partition": PARTITION}


async def miscounted(fleet: Fleet) -> Found:
    await fleet.change("UPDATE reservations SET instances = instances + 1 WHERE workload_id = 'orders'")
    rows = await fleet.estate.rows("SELECT workload_id, pool_id, shape_key FROM reservations ORDER BY 2")
    return [(K.MISCOUNTED, "/".join(row)) for row in rows]


async def pool_miscounted(fleet: Fleet) -> Found:
    await fleet.change("UPDATE pool_capacity SET reserved_instances = 1 WHERE pool_id = 'eu-north-h4-gp-m'")
    live = await fleet.estate.value("SELECT count(*) FROM instances WHERE pool_id = 'eu-north-h4-gp-m'")
    assert live == 0
    return [(K.MISCOUNTED, "eu-north-h4-gp-m")]


async def made_twice(fleet: Fleet) -> Found:
    _, batch_key, _ = await fleet.slot()
    fleet.launch(ours(), labels(batch_key))
    return [(K.DUPLICATE, batch_key)]


async def taken_away(fleet: Fleet) -> Found:
    slot_key, _, server_id = await fleet.slot()
    fleet.cloud.terminate(server_id)
    return [(K.LOST, slot_key)]


async def leaving_unasked(fleet: Fleet) -> Found:
    slot_key, _, server_id = await fleet.slot()
    fleet.spoil(server_id, task_state="deleting")
    return [(K.LOST, slot_key)]


async def broken(fleet: Fleet) -> Found:
    slot_key, _, server_id = await fleet.slot()
    fleet.spoil(server_id, status=Status.ERROR)
    return [(K.UNSERVING, slot_key)]


async def late(fleet: Fleet) -> Found:
    """A slot failed without a server, which then turned up all the same."""
    slot_key, _, server_id = await fleet.slot()
    await fleet.change(
        "UPDATE instances SET server_id = NULL, state = 'planned' WHERE slot_key = %(slot)s", slot=slot_key
    )
    await fail(fleet, slot_key)
    return [(K.ORPHAN, server_id)]


async def fail(fleet: Fleet, slot_key: str) -> None:
    """End a slot as a failed launch does, with a plan that asks for no more."""
    await fleet.estate.rows(
        "UPDATE instances SET state = 'failed', problem = 'full' WHERE slot_key = :slot", slot=slot_key
    )
    await fleet.estate.rows(
        "UPDATE reservations SET target_instances = instances, units = instances * units_per_instance"
    )
    await fleet.estate.rows(
        "UPDATE workloads SET phase = 'shortfall', shortfall_reason = 'launches_failed',"
        " shortfall_units = (SELECT 6 - sum(units) FROM reservations)"
    )


async def not_deleted(fleet: Fleet) -> Found:
    """The deletion was written down and never arrived."""
    slot_key, _, server_id = await fleet.slot()
    await fail(fleet, slot_key)
    await log(fleet, Action.DELETE, server_id)
    return [(K.ENDED, server_id)]


async def log(fleet: Fleet, action: Action, server_id: str) -> None:
    async with fleet.estate.engine.begin() as connection:
        entry = Entry(actor="tests", action=action, cause="a test", region=REGION, server_id=server_id)
        await record(connection, TENANT, fleet.estate.clock(), entry)


async def records_lost(fleet: Fleet) -> Found:
    (server_id,) = fleet.launch(ours(), labels("b-of-an-older-world"))
    return [(K.UNRECORDED, server_id)]


async def of_nobody(fleet: Fleet) -> Found:
    (server_id,) = fleet.launch(ours("ghost"), labels("b-ghost", "ghost"))
    return [(K.STRANGER, server_id)]


async def exchanged(fleet: Fleet) -> Found:
    slot_key, batch_key, server_id = await fleet.slot()
    fleet.spoil(server_id, metadata=labels(batch_key) | {"sco_pool": "eu-north-h4-gp-xl"})
    return [(K.MISMATCH, slot_key)]


async def untagged(fleet: Fleet) -> Found:
    slot_key, _, server_id = await fleet.slot()
    fleet.hands.compute.set_tags(REGION, server_id, [MANAGED_TAG, workload_tag("another")])
    return [(K.WRONG_TAGS, slot_key)]


async def hidden(fleet: Fleet) -> Found:
    """Without our tag no list of ours shows it, and it is not lost all the same."""
    slot_key, _, server_id = await fleet.slot()
    fleet.hands.compute.set_tags(REGION, server_id, [])
    return [(K.WRONG_TAGS, slot_key)]


async def not_as_planned(fleet: Fleet) -> Found:
    await fleet.estate.rows("UPDATE reservations SET target_instances = target_instances + 1")
    return [(K.PLAN, "orders")]


async def launched_by_nobody(fleet: Fleet) -> Found:
    _, batch_key, _ = await fleet.slot()
    await fleet.change("DELETE FROM audit_log WHERE batch_key = %(batch)s", batch=batch_key)
    return [(K.UNLOGGED, batch_key)]


async def ended_by_nobody(fleet: Fleet) -> Found:
    slot_key, _, server_id = await fleet.slot()
    await fail(fleet, slot_key)
    fleet.cloud.terminate(server_id)
    return [(K.UNLOGGED, slot_key)]


PLANTED: dict[FindingKind, tuple[Plant, ...]] = {
    K.MISCOUNTED: (miscounted, pool_miscounted),
    K.DUPLICATE: (made_twice,),
    K.LOST: (taken_away, leaving_unasked),
    K.UNSERVING: (broken,),
    K.ORPHAN: (late,),
    K.ENDED: (not_deleted,),
    K.UNRECORDED: (records_lost,),
    K.STRANGER: (of_nobody,),
    K.MISMATCH: (exchanged,),
    K.WRONG_TAGS: (untagged, hidden),
    K.PLAN: (not_as_planned,),
    K.UNLOGGED: (launched_by_nobody, ended_by_nobody),
}
# What the database refuses is planted below, with its constraint out of the way.
REFUSED = {K.OVERBOOKED, K.SHARED}
EACH = [(kind, plant) for kind, plants in PLANTED.items() for plant in plants]


def test_every_kind_is_planted() -> None:
    assert set(PLANTED) | REFUSED == set(K)


async def test_a_fleet_in_order_is_clean(fleet: Fleet) -> None:
    report = await fleet.audit(catalog=fleet.hands.catalog)
    assert report.verdict is Verdict.CLEAN, report.findings
    counts = report.counts
    assert (counts.servers, counts.slots, counts.workloads) == (INSTANCES, INSTANCES, 1)
    assert (counts.foreign, counts.servers_in_flight, counts.workloads_in_flight) == (0, 0, 0)


@pytest.mark.parametrize(("kind", "plant"), EACH, ids=[plant.__name__ for _, plant in EACH])
async def test_what_is_planted_is_found_and_nothing_else(
    fleet: Fleet, kind: FindingKind, plant: Plant
) -> None:
    planted = await plant(fleet)
    assert {one for one, _ in planted} == {kind}
    assert await fleet.found() == planted


async def test_an_overbooked_pool_is_found(fleet: Fleet, dsn: str) -> None:
    pool_id = await fleet.estate.value("SELECT pool_id FROM instances LIMIT 1")
    change = "UPDATE pool_capacity SET capacity_instances = %(count)s WHERE pool_id = %(pool)s"
    with without(dsn, "pool_capacity", "pool_capacity_never_double_booked_check"):
        await fleet.change(change, count=0, pool=pool_id)
        found = await fleet.found()
        await fleet.change(change, count=40, pool=pool_id)
    assert found == [(K.OVERBOOKED, pool_id)]


async def test_a_server_in_two_slots_is_found(fleet: Fleet, dsn: str) -> None:
    rows = await fleet.estate.rows(
        "SELECT min(slot_key), max(slot_key) FROM instances GROUP BY batch_key HAVING count(*) > 1"
    )
    assert rows, "the fleet has a batch of several"
    first, second = rows[0]
    server_of = dict(await fleet.estate.rows("SELECT slot_key, server_id FROM instances"))
    change = "UPDATE instances SET server_id = %(server)s WHERE slot_key = %(slot)s"
    with without(dsn, "instances", "instances_server_id_key"):
        await fleet.change(change, server=server_of[first], slot=second)
        found = await fleet.found()
        await fleet.change(change, server=server_of[second], slot=second)
    assert (K.SHARED, server_of[first]) in found
    assert found == [(K.SHARED, server_of[first]), (K.ORPHAN, server_of[second])]


async def test_servers_of_others_are_counted_and_never_judged(fleet: Fleet) -> None:
    fleet.launch(("web",), {"sco_workload": "ghost"}, count=2)
    report = await fleet.audit(catalog=fleet.hands.catalog)
    assert (report.verdict, report.counts.foreign) == (Verdict.CLEAN, 2)
    assert (await fleet.audit()).counts.foreign is None


async def test_a_server_that_will_find_its_slot_is_in_flight(fleet: Fleet) -> None:
    """Launched and not bound yet: the state between two looks of an acquisition."""
    slot_key, _, _ = await fleet.slot()
    await fleet.change(
        "UPDATE instances SET state = 'planned', server_id = NULL, requested_at = %(at)s"
        " WHERE slot_key = %(slot)s",
        slot=slot_key,
        at=fleet.estate.clock() + timedelta(hours=1),
    )
    await fleet.estate.rows("UPDATE workloads SET phase = 'planned'")
    report = await fleet.audit()
    assert report.verdict is Verdict.CLEAN, report.findings
    assert (report.counts.servers_in_flight, report.counts.workloads_in_flight) == (1, 1)


async def test_what_heals_between_two_looks_is_no_finding(fleet: Fleet) -> None:
    _, _, server_id = await fleet.slot()
    fleet.spoil(server_id, task_state="deleting")

    between = BetweenLooks(fleet.hands.compute, lambda: fleet.spoil(server_id, task_state=None))
    report = await fleet.audit(compute=between)
    assert (report.verdict, between.lists) == (Verdict.CLEAN, 2)


async def test_another_fault_in_the_second_look_is_no_finding_yet(fleet: Fleet) -> None:
    first, second = (await fleet.slot(0))[2], (await fleet.slot(1))[2]
    fleet.spoil(first, task_state="deleting")

    def exchange() -> None:
        fleet.spoil(first, task_state=None)
        fleet.spoil(second, task_state="deleting")

    between = BetweenLooks(fleet.hands.compute, exchange)
    report = await fleet.audit(compute=between)
    assert (report.verdict, between.lists) == (Verdict.CLEAN, 2)


async def test_growing_and_shrinking_meanwhile_are_no_findings(fleet: Fleet) -> None:
    """Audits beside placements that come and go."""

    async def busy() -> None:
        for units in (8, 14, 2, 10):
            await fleet.settled("busy", units)

    working = asyncio.create_task(busy())
    verdicts = []
    while not working.done():
        report = await fleet.audit(hours=0, settle_seconds=0.5)
        verdicts.append((report.verdict, report.findings))
    await working
    assert [verdict for verdict, _ in verdicts] == [Verdict.CLEAN] * len(verdicts), verdicts


LISTS = "/servers/detail$"


@pytest.mark.parametrize("kind", [FaultKind.ERROR_BEFORE, FaultKind.DROPPED_BEFORE])
async def test_a_provider_that_does_not_answer_fails_the_audit(fleet: Fleet, kind: FaultKind) -> None:
    fleet.cloud.add_fault(FaultRule(kind=kind, region=REGION, path=LISTS, times=None))
    report = await fleet.audit()
    assert report.verdict is Verdict.FAILED
    assert report.failures[0].reason.startswith(f"{REGION}: could not list the servers")


async def test_one_region_that_fails_does_not_hide_what_another_shows(fleet: Fleet) -> None:
    await taken_away(fleet)
    report = await fleet.audit(regions=[REGION, "nowhere"])
    assert report.verdict is Verdict.FAILED
    assert [one.region for one in report.failures] == ["nowhere"]
    assert [one.kind for one in report.findings] == [K.LOST]


async def test_another_partition_is_not_judged(fleet: Fleet) -> None:
    await taken_away(fleet)
    other = await fleet.audit(partitions=("slurm-eu-west",))
    assert (other.verdict, other.counts.servers, other.counts.slots) == (Verdict.CLEAN, 0, 0)
    assert [kind for kind, _ in await fleet.found(partitions=(PARTITION,))] == [K.LOST]


async def test_another_region_is_not_judged(fleet: Fleet) -> None:
    await taken_away(fleet)
    other = await fleet.audit(regions=["eu-west"])
    assert (other.verdict, other.counts.slots, other.counts.workloads) == (Verdict.CLEAN, 0, 0)


async def test_a_workload_that_lost_a_server_a_moment_ago_is_in_flight(fleet: Fleet) -> None:
    """Lost and written down; the sweep plans it again within a minute."""
    slot_key, _, server_id = await fleet.slot()
    fleet.cloud.terminate(server_id)
    await log(fleet, Action.LOSE, server_id)
    at = fleet.estate.clock() + timedelta(hours=1)
    await lose(fleet, slot_key, at)
    report = await fleet.audit()
    assert report.verdict is Verdict.CLEAN, report.findings
    assert report.counts.workloads_in_flight == 1
    assert await fleet.found() == [(K.PLAN, "orders")]


async def lose(fleet: Fleet, slot_key: str, at: datetime) -> None:
    async with fleet.estate.engine.begin() as connection:
        await slots.mark_lost(connection, TENANT, "orders", [Failure(slot_key, "", "gone")], at)


async def test_gaps_and_read_only_regions_are_notes(fleet: Fleet) -> None:
    await fleet.estate.rows(
        "UPDATE reconciles SET acting_until = NULL, phase = 'read_only', problem = 'HTTP 503'"
    )
    await fleet.estate.rows(
        "INSERT INTO fleet_gaps VALUES (:t, :p, :r, :since, :until, 'the worker was away')",
        t=TENANT,
        p=PARTITION,
        r=REGION,
        since=fleet.estate.clock(),
        until=fleet.estate.clock() + timedelta(minutes=9),
    )
    report = await fleet.audit()
    assert (report.verdict, report.counts.gaps) == (Verdict.CLEAN, 1)
    assert [note.split(": ")[0] for note in report.notes] == [
        f"{PARTITION} in {REGION}",
        f"{PARTITION} in {REGION} is read-only, nothing is repaired there",
    ]


async def test_an_audit_needs_no_right_to_write(fleet: Fleet, dsn: str) -> None:
    """A login that only reads, of the role that sees all tenants, gets the same report."""
    planted = await taken_away(fleet)
    url = sa.make_url(dsn)
    role, password = sql.Identifier(READER), sql.Literal(url.password)
    with psycopg.connect(dsn, autocommit=True) as owner:
        made = "CREATE ROLE {} LOGIN PASSWORD {} IN ROLE sco_service"
        owner.execute(sql.SQL(made).format(role, password))
        owner.execute(sql.SQL("ALTER ROLE {} SET default_transaction_read_only = on").format(role))
    reading = url.set(username=READER).render_as_string(hide_password=False)
    reader = create_engine(reading)
    try:
        report = await fleet.audit(reader)
        with psycopg.connect(reading) as own, pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            own.execute("DELETE FROM audits")
    finally:
        await reader.dispose()
        with psycopg.connect(dsn, autocommit=True) as owner:
            owner.execute(sql.SQL("DROP OWNED BY {}").format(role))
            owner.execute(sql.SQL("DROP ROLE {}").format(role))
    assert [(one.kind, one.subject) for one in report.findings] == planted


async def test_what_reads_the_records_cannot_write_them(fleet: Fleet) -> None:
    async with snapshot(fleet.estate.engine) as connection:
        with pytest.raises(DBAPIError, match="read-only transaction"):
            await connection.execute(sa.delete(audits))
    async with fleet.estate.engine.begin() as connection:
        await connection.execute(sa.delete(audits))


async def test_an_audit_only_asks_the_provider(fleet: Fleet) -> None:
    await taken_away(fleet)
    fleet.cloud.clear_requests()
    await fleet.audit(catalog=fleet.hands.catalog)
    asked: list[dict[str, Any]] = fleet.cloud.requests(recent=1000)["recent"]
    assert len(asked) > 3
    assert {one["method"] for one in asked if not one["path"].endswith("/auth/tokens")} == {"GET"}


def test_the_words_of_the_rule_are_those_of_the_log() -> None:
    assert {action for actions in ENDED_BY.values() for action in actions} | STARTED_BY <= set(Action)
