"""The hand that takes reports: of a pool's agent on its utilization, and of a router on an endpoint.

Whoever calls it answers at once, and what it writes is all there is: no promise waits for a report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple, TypeVar
from uuid import uuid4

import structlog
from prometheus_client import Counter

from domain.pool import PoolState
from domain.serving.health import MAX_PROBLEM, HealthTerms
from domain.serving.utilization import (
    ReportRefusal,
    UtilizationReport,
    UtilizationTerms,
    counted_at,
    is_stale,
    newest_of,
    refusal_of_time,
)
from store import cached_models, pool_health, pool_reports
from store.engine import Connection, Engine
from store.pool_reports import ListedRow, PoolReportRow, Written
from store.serving_pools import PoolName

BATCH = 200
# A list may be made before a model left and read after, by clocks that differ.
ON_ITS_WAY = timedelta(seconds=5)
T = TypeVar("T")

REPORTS = Counter(
    "sco_pool_reports_total", "Utilization reports of pools by what became of them", ["outcome"]
)
FOUND = Counter(
    "sco_reported_models_total", "Models that agents list and nobody here had loaded", ["outcome"]
)
ENDPOINT_REPORTS = Counter("sco_endpoint_reports_total", "Endpoints that a router reported down", ["outcome"])
log = structlog.get_logger("reports")


class Refused(NamedTuple):
    """A report that changes nothing and never will: of which pool, why, and a sentence for a person."""

    tenant_id: str
    pool_id: str
    reason: ReportRefusal
    text: str


class Accepted(NamedTuple):
    """What became of reports. Those that were not newer than what is stored are `older`, and no failure.

    `unfit` are models that agents list and that do not fit into the memory left, as tenant, pool, model.
    """

    written: int = 0
    older: int = 0
    refused: tuple[Refused, ...] = ()
    unfit: tuple[tuple[str, str, str], ...] = ()


async def report_utilization(
    engine: Engine,
    tenant_id: str,
    reports: Sequence[UtilizationReport],
    at: datetime,
    *,
    terms: UtilizationTerms = UtilizationTerms(),  # noqa: B008 - frozen
) -> Accepted:
    """Take reports of a tenant on its own pools; each is taken or refused by itself."""
    return await report_for_tenants(engine, [(tenant_id, one) for one in reports], at, terms=terms)


async def report_for_tenants(
    engine: Engine,
    reports: Sequence[tuple[str, UtilizationReport]],
    at: datetime,
    *,
    terms: UtilizationTerms = UtilizationTerms(),  # noqa: B008 - frozen
) -> Accepted:
    """Take reports, each with the tenant that sent it, in transactions of bounded size."""
    total = Accepted()
    for batch in batches(reports, BATCH):
        by_tenant: dict[str, list[UtilizationReport]] = {}
        for tenant_id, one in batch:
            by_tenant.setdefault(tenant_id, []).append(one)
        done = await _take(engine, by_tenant, at, terms)
        repeated = len(batch) - done.written - done.older - len(done.refused)
        done = done._replace(older=done.older + repeated)
        _count(done)
        total = Accepted(
            total.written + done.written,
            total.older + done.older,
            total.refused + done.refused,
            total.unfit + done.unfit,
        )
    return total


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Items in their order, so many at a time."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


async def _take(
    engine: Engine, reports: dict[str, list[UtilizationReport]], at: datetime, terms: UtilizationTerms
) -> Accepted:
    refused: list[Refused] = []
    timely: dict[tuple[str, str], UtilizationReport] = {}
    for tenant_id, told in sorted(reports.items()):
        for one in told:
            problem = refusal_of_time(one.reported_at, at, terms)
            if problem is not None:
                refused.append(Refused(tenant_id, one.pool_id, ReportRefusal.FUTURE, problem))
        in_time = [one for one in told if refusal_of_time(one.reported_at, at, terms) is None]
        timely |= {(tenant_id, one.pool_id): one for one in newest_of(in_time)}
    async with engine.begin() as connection:
        found = await pool_reports.write(
            connection, [_row(tenant_id, one, at) for (tenant_id, _), one in timely.items()]
        )
        news = {name: one for name, one in timely.items() if name in found and found[name].news}
        unfit = await _note_models(connection, news, found, at)
        fresh = [name for name, one in news.items() if not is_stale(one.reported_at, at, terms)]
        await pool_reports.unmark_stale(connection, fresh)
    refused += [refusal for name in timely if (refusal := _refusal(name, found.get(name))) is not None]
    older = len(timely) - len(news) - sum(one.reason is not ReportRefusal.FUTURE for one in refused)
    return Accepted(len(news), older, tuple(refused), tuple(unfit))


async def _note_models(
    connection: Connection,
    news: dict[tuple[str, str], UtilizationReport],
    found: dict[tuple[str, str], Written],
    at: datetime,
) -> list[tuple[str, str, str]]:
    """Note what agents list; returns what does not fit.

    Only the serving port says what is loaded: a model that is not listed is not gone, and one that nobody
    here loaded has memory kept until the port was asked. Not on a pool that drains, where it would be
    unloaded again, nor where it was unloaded while the report was on its way.
    """
    listed = [_listed(name[0], name[1], one, at) for name, one in sorted(news.items())]
    unfit = []
    for row in await pool_reports.touch_models(connection, [each for rows in listed for each in rows]):
        if found[row.tenant_id, row.pool_id].state is not PoolState.ACTIVE:
            continue
        name, seen = PoolName(row.tenant_id, row.pool_id), row.listed_at - ON_ITS_WAY
        if await cached_models.left_since(connection, name, row.model, seen):
            continue
        fits = await pool_reports.record_listed(connection, row)
        FOUND.labels("recorded" if fits else "unfit").inc()
        if not fits:
            unfit.append((row.tenant_id, row.pool_id, row.model))
    return unfit


def _row(tenant_id: str, one: UtilizationReport, at: datetime) -> PoolReportRow:
    return PoolReportRow(
        tenant_id, one.pool_id, one.utilization, one.queue_depth, counted_at(one.reported_at, at)
    )


def _listed(tenant_id: str, pool_id: str, one: UtilizationReport, at: datetime) -> list[ListedRow]:
    """The models of a report; a last use in the future would keep a model from ever being idle."""
    listed_at = counted_at(one.reported_at, at)
    return [
        ListedRow(tenant_id, pool_id, each.model, each.vram_gb, counted_at(each.last_used_at, at), listed_at)
        for each in one.models
    ]


def _refusal(name: tuple[str, str], found: Written | None) -> Refused | None:
    tenant_id, pool_id = name
    if found is None:
        text = f"tenant {tenant_id!r} has no pool {pool_id!r}: register it first, or correct the poolId"
        return Refused(tenant_id, pool_id, ReportRefusal.UNKNOWN_POOL, text)
    if found.state is PoolState.RETIRED:
        text = f"pool {pool_id!r} is retired: stop its agent"
        return Refused(tenant_id, pool_id, ReportRefusal.RETIRED, text)
    return None


def _count(done: Accepted) -> None:
    """Count what was committed, so that what was rolled back is not counted."""
    REPORTS.labels("written").inc(done.written)
    REPORTS.labels("older").inc(done.older)
    for one in done.refused:
        REPORTS.labels(one.reason.value).inc()


async def report_endpoint(  # noqa: PLR0917 - who, which pool in full, what, when
    engine: Engine,
    tenant_id: str,
    pool_tenant_id: str,
    pool_id: str,
    problem: str,
    at: datetime,
    *,
    terms: HealthTerms = HealthTerms(),  # noqa: B008 - frozen
) -> bool:
    """Keep a router's word that an endpoint is down; what it does is said in `domain.serving.health`.

    It has the endpoint probed at once; False where the tenant has reported it just before. `UnknownPool`
    where the tenant may not place on such a pool, `NoEndpoint` where it serves no models.
    """
    async with engine.begin() as connection:
        new = await pool_health.report(
            connection,
            tenant_id=tenant_id,
            report_id=uuid4(),
            pool=(pool_tenant_id, pool_id),
            problem=problem[:MAX_PROBLEM],
            at=at,
            every_seconds=terms.report_every_seconds,
        )
    ENDPOINT_REPORTS.labels("kept" if new else "repeated").inc()
    if new:
        log.info(
            "endpoint_reported",
            tenant=tenant_id,
            pool_tenant=pool_tenant_id,
            pool=pool_id,
            problem=problem[:MAX_PROBLEM],
        )
    return new
