"""The hand that acquires and gives back: it makes what runs at the provider equal to what was decided."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa
from temporalio import activity

from activities.errors import application_error, kind_of_fault
from activities.launch_specs import launch_spec
from activities.placement_calls import (
    ACQUIRE,
    RELEASE,
    PoolFailure,
    RegionAcquired,
    RegionReleased,
    RegionRequest,
)
from activities.ports import BatchSpec, Catalog, Compute, ProviderError, ProviderErrorKind, Server
from domain.acquisition import (
    AcquisitionTerms,
    Failure,
    Request,
    ServerStatus,
    ServerView,
    SlotState,
    SlotView,
    Steps,
    next_steps,
)
from domain.policy import PlacementPolicy
from domain.pool import PurchaseModel
from store import fleet
from store.engine import Engine

FINAL_KINDS = frozenset(
    {
        ProviderErrorKind.QUOTA,
        ProviderErrorKind.NO_VALID_HOST,
        ProviderErrorKind.BAD_REQUEST,
        ProviderErrorKind.CONFLICT,
        ProviderErrorKind.NOT_FOUND,
    }
)


@dataclass(frozen=True, slots=True)
class _Failed:
    """A pool's failed launches in one run of the activity."""

    pool_id: str
    kind: str
    problem: str


class AcquiringActivities:
    """Launches and deletes servers of one workload in one region, in small steps that may all be repeated."""

    def __init__(
        self,
        engine: Engine,
        compute: Compute,
        catalog: Catalog,
        *,
        identity: str,
        policy: PlacementPolicy,
        terms: AcquisitionTerms,
        now: Callable[[], datetime],
        poll_seconds: float = 1.0,
    ) -> None:
        self._engine = engine
        self._compute = compute
        self._catalog = catalog
        self._identity = identity
        self._policy = policy
        self._terms = terms
        self._now = now
        self._poll_seconds = poll_seconds

    @activity.defn(name=ACQUIRE)
    async def acquire_region(self, request: RegionRequest) -> RegionAcquired:
        """Bring every open slot in the region to ACTIVE, or fail it with its reason."""
        failed: list[_Failed] = []
        while True:
            activity.heartbeat(len(failed))
            servers = await self._list(request)
            slots = await self._slots(request, servers)
            steps = next_steps(
                [_slot(row) for row in slots], [_server(one) for one in servers], self._now(), self._terms
            )
            if steps.done:
                active = sum(row["state"] == SlotState.ACTIVE for row in slots) + len(steps.active)
                await self._record(request, steps, failed)
                return RegionAcquired(region=request.region, active=active, failures=_summary(failed))
            await self._record(request, steps, failed)
            await self._delete(request.region, steps.delete)
            await self._launch(request, slots, steps.request, failed)
            await asyncio.sleep(self._poll_seconds)

    async def _list(self, request: RegionRequest) -> Sequence[Server]:
        try:
            return await asyncio.to_thread(self._compute.list_workload, request.region, request.workload_id)
        except ProviderError as error:
            raise application_error(error) from error

    async def _slots(self, request: RegionRequest, servers: Sequence[Server]) -> Sequence[sa.RowMapping]:
        batches = sorted({one.batch_key for one in servers if one.batch_key is not None})
        async with self._engine.connect() as connection:
            return await fleet.slots_in_region(
                connection, request.tenant_id, request.workload_id, request.region, batches
            )

    async def _record(self, request: RegionRequest, steps: Steps, failed: list[_Failed]) -> None:
        """Write down what the list showed, in one transaction, before anything is deleted or asked for."""
        if not (steps.bind or steps.active or steps.fail):
            return
        now = self._now()
        async with self._engine.begin() as connection:
            await fleet.bind_servers(connection, request.tenant_id, steps.bind, self._identity)
            await fleet.mark_active(connection, request.tenant_id, steps.active, now)
        await self._fail(request, steps.fail, None, failed)

    async def _fail(
        self,
        request: RegionRequest,
        failures: Sequence[Failure],
        kind: ProviderErrorKind | None,
        failed: list[_Failed],
    ) -> None:
        """End slots, and keep the workload out of their pools for a while; a fault's text tells its kind."""
        if not failures:
            return
        until = self._now() + timedelta(seconds=self._policy.backoff_seconds)
        async with self._engine.begin() as connection:
            await fleet.mark_failed(connection, request.tenant_id, failures)
            for failure in sorted({one.pool_id: one for one in failures}.values()):
                await fleet.back_off(
                    connection,
                    tenant_id=request.tenant_id,
                    workload_id=request.workload_id,
                    pool_id=failure.pool_id,
                    until=until,
                    problem=failure.problem,
                )
        failed += [_Failed(one.pool_id, kind or kind_of_fault(one.problem), one.problem) for one in failures]

    async def _delete(self, region: str, server_ids: Sequence[str]) -> None:
        for server_id in server_ids:
            try:
                await asyncio.to_thread(self._compute.delete, region, server_id)
            except ProviderError as error:
                raise application_error(error) from error

    async def _launch(
        self,
        request: RegionRequest,
        slots: Sequence[sa.RowMapping],
        wanted: Sequence[Request],
        failed: list[_Failed],
    ) -> None:
        if not wanted:
            return
        row_of = {row["slot_key"]: row for row in slots}
        async with self._engine.connect() as connection:
            contract = await fleet.contract_of(connection, request.tenant_id, request.workload_id)
        leases = await self._leases(request.region, slots)
        for one in wanted:
            row = row_of[one.slot_keys[0]]
            lease = leases.get((row["hall"], row["flavor"]))
            if row["purchase_model"] == PurchaseModel.COMMITTED and lease is None:
                await self._fail(request, _without_lease(one, row), ProviderErrorKind.QUOTA, failed)
                continue
            spec = launch_spec(request, row, contract, lease)
            async with self._engine.begin() as connection:
                await fleet.mark_requested(connection, request.tenant_id, one.slot_keys, self._now())
            activity.heartbeat(one.batch_key)
            await self._create(request, one, spec, failed)

    async def _create(
        self, request: RegionRequest, wanted: Request, spec: BatchSpec, failed: list[_Failed]
    ) -> None:
        """Ask once. What the answer leaves open is found by the next list, not by asking again."""
        try:
            await asyncio.to_thread(self._compute.create_batch, spec, len(wanted.slot_keys))
        except ProviderError as error:
            if error.kind in FINAL_KINDS and not error.in_doubt:
                pool_id = spec.metadata["sco_pool"]
                failures = [Failure(slot, pool_id, str(error)) for slot in wanted.slot_keys]
                await self._fail(request, failures, error.kind, failed)
            elif error.retry_after_seconds is not None:
                await asyncio.sleep(min(error.retry_after_seconds, self._terms.settle_seconds))

    async def _leases(self, region: str, slots: Sequence[sa.RowMapping]) -> dict[tuple[str, str], str]:
        """Reservation ids by hall and flavor, read only where committed capacity is to be launched."""
        committed = any(
            row["purchase_model"] == PurchaseModel.COMMITTED and row["state"] == SlotState.PLANNED
            for row in slots
        )
        if not committed:
            return {}
        try:
            return await asyncio.to_thread(self._catalog.committed_reservations, region)
        except ProviderError as error:
            raise application_error(error) from error

    @activity.defn(name=RELEASE)
    async def release_region(self, request: RegionRequest) -> RegionReleased:
        """Delete the servers of slots that are to be given back, and end the slots when they are gone."""
        released = 0
        while True:
            activity.heartbeat(released)
            servers = await self._list(request)
            present = {one.server_id: one for one in servers}
            slots = await self._slots(request, servers)
            leaving = [row for row in slots if row["state"] == SlotState.RELEASING]
            gone = [row["slot_key"] for row in leaving if row["server_id"] not in present]
            async with self._engine.begin() as connection:
                await fleet.mark_gone(connection, request.tenant_id, gone)
            released += len(gone)
            if len(gone) == len(leaving):
                return RegionReleased(region=request.region, released=released)
            await self._delete(
                request.region,
                [
                    row["server_id"]
                    for row in leaving
                    if row["server_id"] in present
                    and present[row["server_id"]].status is not ServerStatus.DELETING
                ],
            )
            await asyncio.sleep(self._poll_seconds)


def _without_lease(wanted: Request, row: sa.RowMapping) -> list[Failure]:
    """Committed capacity without a lease would run as guaranteed capacity that nobody approved."""
    problem = f"no active lease holds {row['flavor']} in {row['hall']}"
    return [Failure(slot, row["pool_id"], problem) for slot in wanted.slot_keys]


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


def _summary(failed: Sequence[_Failed]) -> tuple[PoolFailure, ...]:
    """Failures by pool, with the last problem of each."""
    counts = Counter(one.pool_id for one in failed)
    last = {one.pool_id: one for one in failed}
    return tuple(
        PoolFailure(
            pool_id=pool_id, kind=last[pool_id].kind, problem=last[pool_id].problem, instances=counts[pool_id]
        )
        for pool_id in sorted(counts)
    )
