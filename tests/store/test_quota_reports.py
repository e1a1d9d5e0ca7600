"""Quota reports: the newest levels of each region, and an alarm that is told when it begins."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from domain.quota import Level, QuotaResource
from store import quota_reports
from tests.estates import REGION, START, TENANT, Estate

CORES, INSTANCES = QuotaResource.CORES, QuotaResource.INSTANCES


def level(resource: QuotaResource, limit: int | None, used: int, *, alarm: bool = False) -> Level:
    return Level(resource=resource, limit=limit, used=used, pending=3, alarm=alarm)


async def report(estate: Estate, *levels: Level, region: str = REGION) -> Sequence[QuotaResource]:
    estate.clock.move(60)
    async with estate.engine.begin() as connection:
        return await quota_reports.report(connection, TENANT, region, levels, estate.clock())


async def test_the_newest_levels_stand_and_unlimited_is_null(estate: Estate) -> None:
    await report(estate, level(CORES, 400, 100), level(INSTANCES, None, 7))
    await report(estate, level(CORES, 500, 120), level(INSTANCES, None, 9))
    rows = await estate.rows(
        "SELECT resource, quota_limit, used, pending, alarm, observed_at FROM quota_reports ORDER BY 1"
    )
    at = START + timedelta(seconds=120)
    assert rows == [("cores", 500, 120, 3, False, at), ("instances", None, 9, 3, False, at)]


async def test_an_alarm_is_told_once_for_each_time_it_begins(estate: Estate) -> None:
    low, fine = level(CORES, 400, 390, alarm=True), level(CORES, 400, 100)
    other = level(INSTANCES, 10, 9, alarm=True)
    assert await report(estate, low) == (CORES,)
    assert await report(estate, low) == ()
    assert await report(estate, low, other) == (INSTANCES,)
    assert await report(estate, low, region="eu-west") == (CORES,)
    assert await report(estate, fine, other) == ()
    assert await report(estate, low, other) == (CORES,)
