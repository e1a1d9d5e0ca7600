"""The hand that renews leases: it looks at all of a region, and prolongs ours before they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog
from prometheus_client import Counter, Gauge
from temporalio import activity

from activities.errors import application_error
from activities.leasing_calls import RENEW_LEASES, LeasesWatched, RenewLeasesRequest
from activities.ports import Catalog, Lease, ProviderError, ProviderErrorKind
from domain.leases import OVER, LeaseTerms, LeaseView, Renewal, alarm, to_renew, trouble
from store import audit_log
from store import leases as store_leases
from store.audit_log import Action, Entry
from store.engine import Engine
from store.leases import LeaseRow

LEASE_ENDS = Gauge("sco_lease_ends_timestamp_seconds", "When a lease of ours ends", ["region", "lease"])
LEASE_ALARM = Gauge("sco_lease_alarm", "Leases of ours for a person to act on now", ["region"])
RENEWALS = Counter("sco_lease_renewals_total", "Attempts to renew a lease", ["region", "outcome"])
REFUSALS = frozenset(
    {
        ProviderErrorKind.NO_VALID_HOST,
        ProviderErrorKind.BAD_REQUEST,
        ProviderErrorKind.QUOTA,
        ProviderErrorKind.CONFLICT,
        ProviderErrorKind.NOT_FOUND,
    }
)
log = structlog.get_logger("leasing")


@dataclass(slots=True)
class Look:
    """The leases of a region as listed, and what became of them. Keys are lease ids."""

    region: str
    rows: dict[str, LeaseRow]
    views: dict[str, LeaseView]
    problems: dict[str, str | None]
    renewed: int = 0
    throttled: str | None = None


class LeasingActivities:
    """Watches the leases of a region. What it could not renew, it tries again at the next look."""

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        *,
        identity: str,
        terms: LeaseTerms,
        now: Callable[[], datetime],
    ) -> None:
        self._engine = engine
        self._catalog = catalog
        self._identity = identity
        self._terms = terms
        self._now = now
        self._shown: dict[str, set[str]] = {}

    @activity.defn(name=RENEW_LEASES)
    async def renew_leases(self, request: RenewLeasesRequest) -> LeasesWatched:
        """Record every lease, then prolong ours that end soon. A lease that is refused holds up no other."""
        activity.heartbeat()
        try:
            listed = await asyncio.to_thread(self._catalog.leases, request.region)
        except ProviderError as error:
            raise application_error(error) from error
        look = await self._record(request, listed)
        for renewal in to_renew(look.views.values(), self._now(), self._terms):
            activity.heartbeat()
            await self._renew(request, look, renewal)
        watched = self._watched(look)
        self._publish(look, watched)
        return watched

    async def _record(self, request: RenewLeasesRequest, listed: Sequence[Lease]) -> Look:
        """Write down what is listed, and what is wrong with it, before anything is done about it."""
        of_region = (request.tenant_id, request.region)
        rows = [_row(lease) for lease in listed]
        async with self._engine.begin() as connection:
            pools = await store_leases.committed_pools(connection, *of_region)
            await store_leases.see(connection, *of_region, rows, self._now())
            gone = await store_leases.gone(connection, *of_region)
            views = {lease.lease_id: _view(lease, pools) for lease in listed}
            views |= {row.lease_id: _view_of_gone(row, pools) for row in gone}
            problems = {
                lease_id: trouble(view, views.values(), self._now(), self._terms)
                for lease_id, view in views.items()
            }
            unheard = {row.lease_id for row in gone if problems[row.lease_id] is None}
            await store_leases.forget(connection, *of_region, unheard)
            due = {one.lease_id for one in to_renew(views.values(), self._now(), self._terms)}
            settled = {lease_id: problem for lease_id, problem in problems.items() if lease_id not in due}
            await store_leases.note_problems(connection, *of_region, settled)
        known = {row.lease_id: row for row in (*rows, *gone) if row.lease_id not in unheard}
        return Look(request.region, known, {one: views[one] for one in known}, problems)

    async def _renew(self, request: RenewLeasesRequest, look: Look, renewal: Renewal) -> None:
        """Say in the audit log what is about to be done, then do it."""
        if look.throttled is not None:
            await self._refused(request, look, renewal, ProviderErrorKind.THROTTLED, look.throttled)
            return
        async with self._engine.begin() as connection:
            entry = self._entry(look.rows[renewal.lease_id], renewal, request.region)
            await audit_log.record(connection, request.tenant_id, self._now(), entry)
        try:
            await asyncio.to_thread(
                self._catalog.extend_lease, request.region, renewal.lease_id, renewal.ends_at
            )
        except ProviderError as error:
            look.throttled = str(error) if error.kind is ProviderErrorKind.THROTTLED else None
            await self._refused(request, look, renewal, error.kind, str(error))
            return
        look.renewed += 1
        view = look.views[renewal.lease_id] = look.views[renewal.lease_id]._replace(ends_at=renewal.ends_at)
        problem = trouble(view, look.views.values(), self._now(), self._terms)
        look.problems[renewal.lease_id] = problem
        async with self._engine.begin() as connection:
            await store_leases.renewed(
                connection,
                request.tenant_id,
                request.region,
                renewal.lease_id,
                ends_at=renewal.ends_at,
                at=self._now(),
                problem=problem,
            )
        RENEWALS.labels(request.region, "renewed").inc()
        log.info(
            "lease_renewed",
            region=request.region,
            lease=renewal.lease_id,
            pools=renewal.pools,
            ends_at=renewal.ends_at.isoformat(),
        )

    async def _refused(
        self,
        request: RenewLeasesRequest,
        look: Look,
        renewal: Renewal,
        kind: ProviderErrorKind,
        problem: str,
    ) -> None:
        outcome = "refused" if kind in REFUSALS else "failed"
        look.problems[renewal.lease_id] = problem
        async with self._engine.begin() as connection:
            await store_leases.note_problems(
                connection, request.tenant_id, request.region, {renewal.lease_id: problem}
            )
        RENEWALS.labels(request.region, outcome).inc()
        log.warning(
            "lease_not_renewed",
            region=request.region,
            lease=renewal.lease_id,
            pools=renewal.pools,
            ends_at=renewal.ended_at.isoformat(),
            outcome=outcome,
            problem=problem,
        )

    def _entry(self, row: LeaseRow, renewal: Renewal, region: str) -> Entry:
        return Entry(
            actor=self._identity,
            action=Action.RENEW_LEASE,
            cause=(
                f"lease {row.name} ({row.lease_id}) ends {renewal.ended_at:%Y-%m-%d %H:%M} UTC and holds"
                f" {', '.join(renewal.pools)}: it shall end {renewal.ends_at:%Y-%m-%d %H:%M} UTC"
            ),
            region=region,
            pool_id=renewal.pools[0] if len(renewal.pools) == 1 else None,
            instances=row.instances,
        )

    def _watched(self, look: Look) -> LeasesWatched:
        ours = sorted(
            (view for view in look.views.values() if view.pools), key=lambda one: (one.ends_at, one.lease_id)
        )
        wrong = [(view, problem) for view in ours if (problem := look.problems[view.lease_id]) is not None]
        return LeasesWatched(
            region=look.region,
            leases=len(ours),
            renewed=look.renewed,
            alarms=sum(alarm(view, problem, self._now(), self._terms) for view, problem in wrong),
            problems=tuple(f"{look.rows[view.lease_id].name}: {problem}" for view, problem in wrong),
            next_end_at=next((view.ends_at for view in ours if view.status not in OVER), None),
        )

    def _publish(self, look: Look, watched: LeasesWatched) -> None:
        """Show the end of every lease of ours that runs; one that is over is shown no longer."""
        ends = {
            look.rows[view.lease_id].name: view.ends_at
            for view in look.views.values()
            if view.pools and view.status not in OVER
        }
        for name, ends_at in ends.items():
            LEASE_ENDS.labels(look.region, name).set(ends_at.timestamp())
        for name in self._shown.get(look.region, set()) - set(ends):
            LEASE_ENDS.remove(look.region, name)
        self._shown[look.region] = set(ends)
        LEASE_ALARM.labels(look.region).set(watched.alarms)


def _row(lease: Lease) -> LeaseRow:
    halls = {each.hall for each in lease.reservations}
    flavors = {each.flavor for each in lease.reservations}
    return LeaseRow(
        lease_id=lease.lease_id,
        name=lease.name,
        status=lease.status,
        hall=halls.pop() if len(halls) == 1 else None,
        flavor=flavors.pop() if len(flavors) == 1 else None,
        instances=sum(each.amount for each in lease.reservations),
        ends_at=lease.ends_at,
    )


def _view(lease: Lease, pools: Mapping[tuple[str, str], str]) -> LeaseView:
    held = {
        pools[each.hall, each.flavor]
        for each in lease.reservations
        if each.hall is not None and each.flavor is not None and (each.hall, each.flavor) in pools
    }
    return LeaseView(lease.lease_id, lease.status, lease.ends_at, tuple(sorted(held)))


def _view_of_gone(row: LeaseRow, pools: Mapping[tuple[str, str], str]) -> LeaseView:
    held = pools.get((row.hall or "", row.flavor or ""))
    return LeaseView(row.lease_id, row.status, row.ends_at, (held,) if held is not None else ())
