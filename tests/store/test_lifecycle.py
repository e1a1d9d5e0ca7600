"""The history keeps each event once, over the borders of months and against whatever comes of others."""

from __future__ import annotations

import asyncio
from datetime import date, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from domain.cause import Cause
from domain.lifecycle import EventType, NoticeKind
from store import lifecycle, node_drains
from store.engine import Engine, of_tenant
from store.node_drains import DrainFilter
from tests.domain.drains import AT, happened, honest, notice
from tests.store.histories import books, keep, lose, own

T = EventType


async def value(engine: Engine, query: str, **named: Any) -> Any:
    async with engine.begin() as connection:
        return (await connection.execute(sa.text(query), named)).scalar()


async def test_a_drain_over_the_border_of_two_months_is_one(service_engine: Engine, engine: Engine) -> None:
    await own(engine, "n1")
    kept = await keep(service_engine, "n1", honest())
    assert len(kept.new) == len(kept.all) == 5
    assert [(one.outcome, one.before) for one in kept.changed] == [("drained", None)]
    months = await value(engine, "SELECT array_agg(DISTINCT month ORDER BY month) FROM lifecycle_events")
    assert months == [date(2030, 1, 1), date(2030, 2, 1)]
    assert await value(engine, "SELECT count(*) FROM node_drains") == 1


async def test_what_comes_again_is_kept_once_also_when_the_month_is_another(
    service_engine: Engine, engine: Engine
) -> None:
    await own(engine, "n1")
    await keep(service_engine, "n1", honest()[:3])
    before = await books(engine)
    again = await keep(service_engine, "n1", [*honest()[:3], *honest()[:3]])
    assert (len(again.new), len(again.all), again.changed) == (0, 3, ())
    assert await books(engine) == before


async def test_whose_it_is_comes_from_our_own_records(service_engine: Engine, engine: Engine) -> None:
    await own(engine, "n1")
    await keep(service_engine, "n1", honest())
    query = "SELECT DISTINCT tenant_id, hall, pool_id, workload_id FROM lifecycle_events"
    async with engine.connect() as connection:
        found = [tuple(row) for row in await connection.execute(sa.text(query))]
    assert found == [("acme", "eu-north-h1", "eu-north-h1-gp-m", "orders")]
    assert (await keep(service_engine, "nobody's", honest())).all == frozenset()


async def test_an_id_that_another_node_took_first_is_free_for_its_own(
    service_engine: Engine, engine: Engine
) -> None:
    """Or whoever guesses the id of an event could have it forgotten."""
    await own(engine, "n1", "n2")
    await keep(service_engine, "n2", honest())
    assert len((await keep(service_engine, "n1", honest())).new) == 5


async def test_four_kinds_are_told_once_each_and_no_other(service_engine: Engine, engine: Engine) -> None:
    await own(engine, "n1", "n2")
    for _ in range(2):
        await keep(service_engine, "n1", honest())
        await lose(service_engine, "n1", "n2")
    told = [(topic, key) for topic, key, _ in (await books(engine)).told]
    assert told == [
        ("lifecycle.nodes.v1.drained", "n1"),
        ("lifecycle.nodes.v1.no-notice", "n2"),
        ("lifecycle.nodes.v1.notice", "n1"),
    ]
    query = "SELECT payload->>'cause' FROM outbox WHERE topic LIKE '%drained'"
    assert await value(engine, query) == "reclaim"


@pytest.mark.parametrize("kind", [NoticeKind.HARD, NoticeKind.ADVISORY, None])
async def test_what_is_told_says_whether_the_notice_is_hard_or_advisory(
    service_engine: Engine, engine: Engine, kind: NoticeKind | None
) -> None:
    await own(engine, "n1")
    await keep(service_engine, "n1", [one._replace(notice_kind=kind) for one in honest()])
    query = "SELECT array_agg(payload->>'noticeKind') FROM outbox WHERE topic LIKE 'lifecycle.%'"
    assert await value(engine, query) == [kind, kind]


async def test_a_loss_after_a_notice_is_no_loss_without_one(service_engine: Engine, engine: Engine) -> None:
    await own(engine, "n1")
    await keep(service_engine, "n1", honest()[:1])
    await lose(service_engine, "n1")
    assert await value(engine, "SELECT array_agg(outcome) FROM node_drains") == ["open"]


async def test_a_notice_that_comes_after_the_loss_puts_it_right(
    service_engine: Engine, engine: Engine
) -> None:
    await own(engine, "n1")
    await lose(service_engine, "n1", cause=Cause.UNKNOWN)
    assert await value(engine, "SELECT array_agg(outcome) FROM node_drains") == ["no_notice"]
    kept = await keep(service_engine, "n1", honest())
    assert [one.outcome for one in kept.changed] == ["drained"]
    assert await value(engine, "SELECT array_agg(outcome) FROM node_drains") == ["drained"]


async def test_a_cause_that_becomes_known_later_is_written_to_what_is_kept(
    service_engine: Engine, engine: Engine
) -> None:
    """The sender said none; the event of the notice that came last says why."""
    await own(engine, "n1")
    silent = [one._replace(cause=Cause.UNKNOWN) for one in honest()[1:]]
    await keep(service_engine, "n1", silent)
    query = "SELECT array_agg(DISTINCT cause) FROM lifecycle_events"
    assert await value(engine, query) == ["unknown"]
    await keep(service_engine, "n1", honest()[:1])
    assert await value(engine, query) == ["reclaim"]
    assert await value(engine, query.replace("cause", "said_cause")) == ["reclaim", "unknown"]


async def test_one_node_cannot_fill_the_history(
    service_engine: Engine, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "MOST_EVENTS", 4)
    await own(engine, "n1")
    kept = await keep(service_engine, "n1", honest())
    assert len(kept.new) == len(kept.all) == 4
    again = await keep(service_engine, "n1", honest())
    assert (len(again.new), len(again.all)) == (0, 4)


async def test_writers_of_one_node_wait_for_each_other(service_engine: Engine, engine: Engine) -> None:
    """Each event by a writer of its own, all at once: the drain is that of all of them."""
    await own(engine, "n1")
    events = [*honest(), *honest(2, starts=4000, first=10)]
    await asyncio.gather(*(keep(service_engine, "n1", [one]) for one in events), lose(service_engine, "n1"))
    query = "SELECT array_agg(outcome ORDER BY at) FROM node_drains WHERE notice_id = ANY(:notices)"
    found = await value(engine, query, notices=[notice(1), notice(2)])
    assert found == ["drained", "drained"]


async def test_months_are_made_ahead_and_take_what_lay_elsewhere(
    service_engine: Engine, engine: Engine
) -> None:
    await own(engine, "n1")
    await keep(service_engine, "n1", honest())
    before = await books(engine)
    other = "SELECT count(*) FROM history.lifecycle_events_other"
    assert await value(engine, other) == 5
    await value(engine, "SELECT sco_lifecycle_months('2030-01-31')")
    assert await value(engine, other) == 0
    assert await value(engine, "SELECT count(*) FROM history.lifecycle_events_203002") > 0
    assert await books(engine) == before
    assert (await keep(service_engine, "n1", honest())).new == frozenset()
    made, dropped = await two(engine, "2030-01-31")
    assert (made, dropped) == (0, 0)
    await two(engine, "2031-06-01")
    assert await value(engine, "SELECT count(*) FROM lifecycle_events") == 0
    assert await value(engine, "SELECT to_regclass('history.lifecycle_events_203002') IS NULL")


async def two(engine: Engine, day: str) -> tuple[int, int]:
    async with engine.begin() as connection:
        query = sa.text("SELECT made, dropped FROM sco_lifecycle_months(CAST(:day AS date))")
        made, dropped = (await connection.execute(query, {"day": day})).one()
    return made, dropped


async def test_400_days_are_kept(service_engine: Engine, engine: Engine) -> None:
    await own(engine, "n1")
    await two(engine, "2030-01-31")
    await keep(service_engine, "n1", honest())
    await two(engine, "2031-03-07")
    assert await value(engine, "SELECT count(*) FROM lifecycle_events WHERE month = '2030-02-01'") > 0
    await two(engine, "2031-04-07")
    assert await value(engine, "SELECT count(*) FROM lifecycle_events") == 0


async def test_the_worker_may_make_months_but_not_choose_the_day(service_engine: Engine) -> None:
    async with service_engine.begin() as connection:
        assert (await node_drains.tend(connection))[1] == 0
    for query in (
        "SELECT sco_lifecycle_months('2040-01-01')",
        "DELETE FROM lifecycle_events",
        "UPDATE lifecycle_events SET detail = ''",
        "SELECT * FROM history.lifecycle_events_other",
    ):
        with pytest.raises(DBAPIError, match="permission denied"):
            await value(service_engine, query)


async def test_a_clock_that_is_centuries_wrong_loses_nothing(service_engine: Engine, engine: Engine) -> None:
    await own(engine, "n1")
    wild = [happened(T.NOTICE, seconds, of=1) for seconds in (-3e10, 3e10, 2e11)]
    assert len((await keep(service_engine, "n1", wild)).new) == 3


async def test_a_tenant_reads_its_own_history_and_changes_none(
    service_engine: Engine, engine: Engine, tenant_engine: Engine
) -> None:
    await own(engine, "n1")
    await keep(service_engine, "n1", honest())
    for tenant, seen in (("acme", 1), ("umbra", 0)):
        async with of_tenant(tenant_engine, tenant).connect() as connection:
            found = await node_drains.drains_before(connection, "acme", DrainFilter(), limit=9)
            assert len(found) == seen
            assert len((await lifecycle.events_of(connection, ["n1"])).get("n1", [])) == 5 * seen
    with pytest.raises(DBAPIError, match="permission denied"):
        await value(of_tenant(tenant_engine, "acme"), "DELETE FROM node_drains")


async def test_old_drains_are_forgotten(service_engine: Engine, engine: Engine) -> None:
    await own(engine, "n1")
    await keep(service_engine, "n1", honest())
    async with service_engine.begin() as connection:
        assert await node_drains.purge(connection, AT, limit=10) == 0
        assert await node_drains.purge(connection, AT + timedelta(seconds=1), limit=10) == 1
