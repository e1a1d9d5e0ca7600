"""The hand that acquires and gives back: it makes what runs at the provider equal to what was decided."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa
from temporalio import activity

from activities import metrics
from activities.errors import application_error, kind_of_fault
from activities.launching import Launcher, place_of
from activities.pauses import Pauses
from activities.placement_calls import (
    ACQUIRE,
    RELEASE,
    PoolFailure,
    RegionAcquired,
    RegionReleased,
    RegionRequest,
)
from activities.ports import Compute, ProviderError, Server
from activities.provider_acts import Doomed, ProviderActs
from domain.acquisition import (
    AcquisitionTerms,
    ServerStatus,
    ServerView,
    SlotState,
    SlotView,
    Steps,
    next_steps,
)
from store import releases
from store import slots as store_slots
from store.engine import Engine
from store.server_names import name_servers
from store.workloads import lock_workload


class AcquiringActivities:
    """Launches and deletes servers of one workload in one region, in small steps that may all be repeated."""

    def __init__(
        self,
        engine: Engine,
        compute: Compute,
        acts: ProviderActs,
        launcher: Launcher,
        *,
        identity: str,
        terms: AcquisitionTerms,
        now: Callable[[], datetime],
        poll_seconds: float = 1.0,
    ) -> None:
        self._engine = engine
        self._compute = compute
        self._acts = acts
        self._launcher = launcher
        self._identity = identity
        self._terms = terms
        self._now = now
        self._poll_seconds = poll_seconds

    @activity.defn(name=ACQUIRE)
    async def acquire_region(self, request: RegionRequest) -> RegionAcquired:
        """Bring every open slot in the region to ACTIVE, or fail it with its reason."""
        pauses = Pauses(self._poll_seconds)
        while True:
            await self._wait_for_licence(request)
            slots, servers = await self._look(request)
            steps = next_steps(
                [_slot(row) for row in slots], [_server(one) for one in servers], self._now(), self._terms
            )
            await self._record(request, steps, slots, servers)
            left_over = _left_over(request, steps, slots, servers)
            asked = await self._acts.delete(place_of(request), left_over)
            # What has to wait for the pace is no part of this launch: reconcile sees it through.
            if (steps.settled and len(asked) < len(left_over)) or steps.done:
                active = sum(row["state"] == SlotState.ACTIVE for row in slots) + len(steps.active)
                return RegionAcquired(
                    region=request.region, active=active, failures=await self._failures(request)
                )
            await self._launcher.launch(request, slots, steps.request)
            await pauses.pause(moved=steps.moved)

    async def _wait_for_licence(self, request: RegionRequest) -> None:
        """Nothing is launched or deleted before the fleet has been looked at lately."""
        place, pauses = place_of(request), Pauses(self._poll_seconds)
        while not await self._acts.licensed(place):
            activity.heartbeat(f"read-only in {request.region}: waiting for cycles that agree")
            await pauses.pause(moved=False)
        activity.heartbeat()

    async def _look(
        self, request: RegionRequest, leaving: Collection[str] = ()
    ) -> tuple[Sequence[sa.RowMapping], Sequence[Server]]:
        """Slots and servers. Live slots are read first: a server bound meanwhile must not seem to vanish.

        `leaving` are servers whose deletion was accepted: that they are not listed any more is no surprise.
        """
        of_region = (request.tenant_id, request.workload_id, request.region)
        async with self._engine.connect() as connection:
            live = await store_slots.live_slots(connection, *of_region)
        try:
            listed = await asyncio.to_thread(self._compute.list_workload, request.region, request.workload_id)
            servers = [*listed, *await self._unlisted(request, live, listed, leaving)]
        except ProviderError as error:
            raise application_error(error) from error
        batches = sorted({one.batch_key for one in servers if one.batch_key is not None})
        async with self._engine.connect() as connection:
            settle = timedelta(seconds=self._terms.settle_seconds)
            ended = await store_slots.ended_slots(
                connection, *of_region, batch_keys=batches, asked_since=self._now() - settle
            )
        return list({row["slot_key"]: row for row in (*live, *ended)}.values()), servers

    async def _unlisted(
        self,
        request: RegionRequest,
        slots: Sequence[sa.RowMapping],
        listed: Sequence[Server],
        leaving: Collection[str],
    ) -> list[Server]:
        """Servers that exist and are not listed: a list may lie, and one that lost its tags is in none."""
        expected = {
            row["server_id"] for row in slots if row["state"] in (SlotState.BUILDING, SlotState.RELEASING)
        }
        found = []
        for server_id in sorted(expected - {one.server_id for one in listed} - set(leaving)):
            activity.heartbeat()
            found.append(await asyncio.to_thread(self._compute.find, request.region, server_id))
        return [one for one in found if one is not None]

    async def _record(
        self, request: RegionRequest, steps: Steps, slots: Sequence[sa.RowMapping], servers: Sequence[Server]
    ) -> None:
        """Write down what the list showed, in one transaction, before anything is deleted or asked for."""
        if not (steps.bind or steps.active or steps.fail):
            return
        async with self._engine.begin() as connection:
            await lock_workload(connection, request.tenant_id, request.workload_id)
            await store_slots.bind_servers(connection, request.tenant_id, steps.bind, self._identity)
            names = {one.server_id: one.name for one in servers}
            await name_servers(connection, request.tenant_id, names)
            await store_slots.mark_active(connection, request.tenant_id, steps.active, self._now())
            await self._launcher.fail(connection, request, steps.fail)
            failed = {one.slot_key: one.problem for one in steps.fail}
            await self._acts.write_lost(connection, place_of(request), _vanished(slots, servers, failed))
        metrics.ACTIVE.labels(request.region).inc(len(steps.active))

    async def _failures(self, request: RegionRequest) -> tuple[PoolFailure, ...]:
        """What failed since the plan was made, also in an earlier run that ended before it could tell."""
        async with self._engine.connect() as connection:
            rows = await store_slots.failures_since_plan(
                connection, request.tenant_id, request.workload_id, request.region
            )
        return tuple(PoolFailure(kind=kind_of_fault(row["problem"]), **row) for row in rows)

    @activity.defn(name=RELEASE)
    async def release_region(self, request: RegionRequest) -> RegionReleased:
        """Delete the servers of slots that are to be given back, and end the slots when they are gone.

        A deletion that hangs at the provider is left to a later sweep: its slot stays booked until then.
        """
        released, pauses = 0, Pauses(self._poll_seconds)
        patience = timedelta(seconds=self._terms.delete_patience_seconds)
        moved_at = self._now()
        accepted: set[str] = set()
        while True:
            await self._wait_for_licence(request)
            slots, servers = await self._look(request, accepted)
            present = {one.server_id: one for one in servers}
            leaving = [row for row in slots if row["state"] == SlotState.RELEASING]
            gone = [row["slot_key"] for row in leaving if row["server_id"] not in present]
            async with self._engine.begin() as connection:
                await releases.mark_gone(connection, request.tenant_id, request.workload_id, gone)
                why = dict.fromkeys(gone, "its server was gone before it was given back")
                await self._acts.write_lost(connection, place_of(request), _vanished(slots, servers, why))
            released += len(gone)
            metrics.RELEASED.labels(request.region).inc(len(gone))
            moved_at = self._now() if gone else moved_at
            if len(gone) == len(leaving) or self._now() - moved_at > patience:
                stuck = len(leaving) - len(gone)
                return RegionReleased(region=request.region, released=released, stuck=stuck)
            staying = [present[row["server_id"]] for row in leaving if row["server_id"] in present]
            wanted = [
                _doomed(request, one, "given back: it is beyond the plan")
                for one in staying
                if one.status is not ServerStatus.DELETING
            ]
            asked = await self._acts.delete(place_of(request), wanted)
            accepted |= {one.server_id for one in asked}
            await pauses.pause(moved=bool(gone or asked))


def _left_over(
    request: RegionRequest, steps: Steps, slots: Sequence[sa.RowMapping], servers: Sequence[Server]
) -> list[Doomed]:
    """The servers that have no use, each with the reason that the slots give."""
    why = {
        row["server_id"]: f"its slot has {row['state']}: {row['problem'] or 'nobody needs it'}"
        for row in slots
    }
    slot_of = {row["slot_key"]: row["server_id"] for row in slots}
    why |= {one.server_id or slot_of[one.slot_key]: one.problem for one in steps.fail}
    known = {one.server_id: one for one in servers}
    return [
        _doomed(request, known[server_id], why.get(server_id, "one more than its batch has slots for"))
        for server_id in steps.delete
    ]


def _vanished(
    slots: Sequence[sa.RowMapping], servers: Sequence[Server], why: Mapping[str, str]
) -> list[Doomed]:
    """The servers of these slots that do not exist any more."""
    present = {one.server_id for one in servers}
    return [
        Doomed(row["server_id"], why[row["slot_key"]], row["workload_id"], row["pool_id"], row["batch_key"])
        for row in slots
        if row["slot_key"] in why and row["server_id"] is not None and row["server_id"] not in present
    ]


def _doomed(request: RegionRequest, server: Server, cause: str) -> Doomed:
    return Doomed(server.server_id, cause, request.workload_id, server.pool_id, server.batch_key)


def _slot(row: sa.RowMapping) -> SlotView:
    return SlotView(
        row["slot_key"],
        row["batch_key"],
        row["pool_id"],
        SlotState(row["state"]),
        row["server_id"],
        row["requested_at"],
        row["launch_attempts"],
    )


def _server(one: Server) -> ServerView:
    return ServerView(one.server_id, one.batch_key, one.status, one.created_at, one.fault)
