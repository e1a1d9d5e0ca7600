"""The hand that looks: a complete list of a region's servers against the records, and what follows."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import NamedTuple

import sqlalchemy as sa
import structlog
from temporalio import activity

from activities import reconcile_metrics as metrics
from activities.adopting import Adoptions
from activities.errors import application_error
from activities.ports import Compute, ProviderError, ProviderErrorKind, Server
from activities.reconcile_calls import RECONCILE_REGION, Reconciled, ReconcileRequest
from activities.repairing import Repairs
from domain.acquisition import ServerStatus, SlotState
from domain.contract import Tier
from domain.reconcile import (
    LEFT_OVER,
    REPLACED,
    Drift,
    DriftKind,
    FleetPhase,
    FleetState,
    HeldSlot,
    ReconcileTerms,
    SeenServer,
    after_cycle,
    agrees,
    compare,
    in_order,
    lapsed,
)
from domain.tags import MANAGED_TAG, server_tags
from store import drifts, fleet_facts, licences, notifications
from store.engine import Engine
from store.licences import Cycle, Place
from store.server_names import name_servers

# How far the clocks of provider and database may be apart, when deletions are asked for by time.
CLOCK_SKEW = timedelta(minutes=10)
FIRST_LOOK_BACK = timedelta(days=1)
REPAIRED = (LEFT_OVER | REPLACED) - {DriftKind.STRANGER}
log = structlog.get_logger("reconciling")


class Sight(NamedTuple):
    """What one list showed."""

    servers: dict[str, Server]
    slots_with_server: int
    drift: tuple[Drift, ...]


class ReconcilingActivities:
    """Looks at one region for one partition. Every cycle may be repeated, and may be the first ever."""

    def __init__(
        self,
        engine: Engine,
        compute: Compute,
        adoptions: Adoptions,
        repairs: Repairs,
        *,
        terms: ReconcileTerms,
        now: Callable[[], datetime],
    ) -> None:
        self._engine = engine
        self._compute = compute
        self._adoptions = adoptions
        self._repairs = repairs
        self._terms = terms
        self._now = now

    @activity.defn(name=RECONCILE_REGION)
    async def reconcile_region(self, request: ReconcileRequest) -> Reconciled:
        """One cycle: look, compare, renew the licence, and put right what may be put right now.

        A list that fails, or a page of it, is no cycle: nothing is concluded from it.
        """
        place = Place(request.tenant_id, request.partition_id, request.region)
        opened = await self._open(place)
        try:
            sight = await self._look(place)
            activity.heartbeat("listed")
            sight, deleted = await self._confirm(place, opened, sight)
        except ProviderError as error:
            await self._failed(place, error)
            raise application_error(error) from error
        state = await self._conclude(place, sight, deleted)
        await self._name(place, sight)
        done = Reconciled(
            region=place.region,
            phase=state.phase,
            agreeing=state.agreeing,
            servers=len(sight.servers),
            drift=dict(sorted(Counter(one.kind.value for one in sight.drift).items())),
        )
        if state.acting_until is not None:
            activity.heartbeat("repairing")
            done = await self._put_right(place, sight, state, done)
        done = done.model_copy(update={"pause_seconds": self._pause_seconds(state, sight)})
        metrics.report(place, done, self._now())
        if done.pause_seconds < self._terms.cycle_seconds or done.deleted:
            log.info("reconciled", partition=place.partition_id, **done.model_dump(exclude_defaults=True))
        return done

    async def _name(self, place: Place, sight: Sight) -> None:
        """Keep what the provider calls our servers, also those that were bound before names were kept."""
        names = {server_id: one.name for server_id, one in sight.servers.items()}
        async with self._engine.begin() as connection:
            await name_servers(connection, place.tenant_id, names)

    async def _put_right(self, place: Place, sight: Sight, state: FleetState, done: Reconciled) -> Reconciled:
        """Records are rebuilt before anybody may act on them; then the licence is granted, then used."""
        due = await self._repairs.due(place, sight.drift)
        adopted, unwanted = await self._adoptions.adopt(place, sight.servers, due)
        await self._grant(place, state)
        return await self._repairs.repair(place, due, unwanted, done.model_copy(update={"adopted": adopted}))

    async def _grant(self, place: Place, state: FleetState) -> None:
        async with self._engine.begin() as connection:
            cycle = await licences.open_cycle(connection, place, lock=True)
            await licences.grant(connection, place, state)
        if state.phase is not cycle.state.phase:
            log.info("fleet_phase", partition=place.partition_id, region=place.region, phase=state.phase)

    def _pause_seconds(self, state: FleetState, sight: Sight) -> float:
        """What is unsettled is looked at again soon; strangers are waited for, not watched."""
        settled = all(one.kind is DriftKind.STRANGER for one in sight.drift)
        if state.phase is FleetPhase.NORMAL and settled:
            return self._terms.cycle_seconds
        return self._terms.recovery_cycle_seconds

    async def _open(self, place: Place) -> Cycle:
        """The last written state; a licence that ran out is taken away, and the gap is marked."""
        now = self._now()
        async with self._engine.begin() as connection:
            cycle = await licences.open_cycle(connection, place, lock=True)
            state = self._lapsed(cycle, now)
            if state != cycle.state:
                await licences.lapse(connection, place, state, now)
                if cycle.state.acting_until is not None:
                    log.warning("licence_lapsed", partition=place.partition_id, region=place.region)
                cycle = cycle._replace(state=state, view=None)
            if state.phase is FleetPhase.READ_ONLY and state.agreeing == 0 and cycle.last_complete_at:
                why = "nobody looked at the fleet: the control plane or the provider was away"
                await licences.mark_gap(connection, place, cycle.last_complete_at, now, why)
        return cycle

    def _lapsed(self, cycle: Cycle, now: datetime) -> FleetState:
        return lapsed(
            cycle.state,
            tried_at=cycle.tried_at,
            seen_at=cycle.last_complete_at,
            now=now,
            terms=self._terms,
        )

    async def _look(self, place: Place) -> Sight:
        """Live slots are read before the list: a server that is bound meanwhile must not seem to be lost."""
        async with self._engine.connect() as connection:
            live = await fleet_facts.live_slots(connection, place)
        listed = await asyncio.to_thread(self._compute.list_managed, place.region)
        servers = {one.server_id: one for one in listed if is_ours(one, place)}
        bound = {row["server_id"] for row in live}
        unbound = [one for server_id, one in servers.items() if server_id not in bound]
        async with self._engine.connect() as connection:
            newer = await fleet_facts.slots_of(
                connection,
                place,
                servers={one.server_id for one in unbound},
                batches={one.batch_key or "" for one in unbound},
            )
            tiers = await fleet_facts.tiers(connection, place)
        rows = {row["slot_key"]: row for row in (*live, *newer)}
        held = [_held(place, row) for row in rows.values()]
        drift = await asyncio.to_thread(compare, held, [_seen(one) for one in servers.values()], tiers)
        return Sight(servers, sum(slot.server_id is not None for slot in held), drift)

    async def _confirm(self, place: Place, opened: Cycle, sight: Sight) -> tuple[Sight, frozenset[str]]:
        """Ask for every server that a list does not show any more; what is not confirmed may be an error.

        One that still exists has lost its tags: it is labelled again instead of being replaced.
        """
        lost = {one.subject: one for one in sight.drift if one.kind is DriftKind.LOST}
        left = (opened.view or frozenset()) - sight.servers.keys()
        async with self._engine.connect() as connection:
            known = {row["subject"] for row in await drifts.known(connection, place) if row["confirmed"]}
            said = await notifications.evidence(connection, place.tenant_id, place.region, lost.keys() | left)
        leaving = {server_id for server_id in lost if server_id in sight.servers}
        told = {server_id for server_id, one in said.items() if one.deleted_at is not None}
        deleted = known | leaving | told
        asked = sorted((lost.keys() | left) - deleted)
        if len(asked) > self._terms.finds_per_cycle:
            since = (opened.last_complete_at or self._now() - FIRST_LOOK_BACK) - CLOCK_SKEW
            deleted |= await asyncio.to_thread(self._compute.deleted_since, place.region, since)
            asked = [server_id for server_id in asked if server_id not in deleted]
        stripped: dict[str, Server] = {}
        for server_id in asked[: self._terms.finds_per_cycle]:
            activity.heartbeat()
            found = await asyncio.to_thread(self._compute.find, place.region, server_id)
            if found is None or found.status is ServerStatus.DELETING:
                deleted.add(server_id)
            elif MANAGED_TAG in found.tags:
                raise _incomplete(place, server_id)
            else:
                stripped[server_id] = found
        drift = in_order(_relabel(one, stripped) for one in sight.drift)
        return sight._replace(drift=drift, servers=sight.servers | stripped), frozenset(deleted)

    async def _failed(self, place: Place, error: ProviderError) -> None:
        metrics.FAILED_CYCLES.labels(place.partition_id, place.region).inc()
        log.warning("cycle_failed", partition=place.partition_id, region=place.region, problem=str(error))
        async with self._engine.begin() as connection:
            await licences.write_problem(connection, place, str(error), self._now())

    async def _conclude(self, place: Place, sight: Sight, deleted: Collection[str]) -> FleetState:
        """Write the cycle down; returns the state that it leads to.

        Without a licence, whether it agrees with the one before decides. One that it leads to is only
        written once the records are rebuilt.
        """
        now, view = self._now(), frozenset(sight.servers)
        fleet = max(len(view), sight.slots_with_server)
        async with self._engine.begin() as connection:
            cycle = await licences.open_cycle(connection, place, lock=True)
            await drifts.note(connection, place, sight.drift, confirmed=deleted, at=now)
            before = self._lapsed(cycle, now)
            backlog = sum(one.kind in REPAIRED for one in sight.drift)
            backlog += await licences.left_undone(connection, place, before.recovered_at)
            agreed = cycle.view is not None and agrees(cycle.view, view, frozenset(deleted))
            state = after_cycle(
                before, agreed=agreed, fleet=fleet, backlog=backlog, now=now, terms=self._terms
            )
            granting = before.phase is FleetPhase.READ_ONLY and state.acting_until is not None
            await licences.write_cycle(
                connection,
                place,
                before._replace(agreeing=state.agreeing) if granting else state,
                view=view if before.phase is FleetPhase.READ_ONLY else None,
                fleet=fleet,
                backlog=backlog,
                at=now,
            )
        return state


def is_ours(server: Server, place: Place) -> bool:
    """Whether a managed server says that this partition launched it, and what for."""
    metadata = server.metadata
    return (
        metadata.get("sco_tenant") == place.tenant_id
        and metadata.get("sco_partition") == place.partition_id
        and None not in (server.batch_key, server.workload_id, server.pool_id)
    )


def _held(place: Place, row: sa.RowMapping) -> HeldSlot:
    return HeldSlot(
        row["slot_key"],
        row["batch_key"],
        row["workload_id"],
        row["pool_id"],
        Tier(row["tier"]),
        SlotState(row["state"]),
        row["server_id"],
        frozenset(server_tags(place.partition_id, row["workload_id"], row["purchase_model"])),
    )


def _seen(server: Server) -> SeenServer:
    return SeenServer(
        server.server_id,
        server.batch_key or "",
        server.workload_id or "",
        server.pool_id or "",
        server.status,
        frozenset(server.tags),
        server.fault,
    )


def _relabel(drift: Drift, stripped: dict[str, Server]) -> Drift:
    """A lost server that still exists has lost the tag by which servers are listed."""
    if drift.kind is not DriftKind.LOST or drift.subject not in stripped:
        return drift
    return drift._replace(kind=DriftKind.WRONG_TAGS, detail="its server exists and has lost its tags")


def _incomplete(place: Place, server_id: str) -> ProviderError:
    """A list that leaves out one server may leave out any."""
    message = (
        f"{place.region}: the list of servers is incomplete: it leaves out {server_id},"
        " which exists and carries our tag; nothing is concluded from it"
    )
    return ProviderError(ProviderErrorKind.UNKNOWN, message)
