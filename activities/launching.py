"""The hand that launches: asks for what is planned, and gives up what the provider refuses for good."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime

import sqlalchemy as sa
import structlog
from temporalio import activity

from activities import metrics
from activities.boot_copies import BootCopies
from activities.errors import application_error, kind_of_fault
from activities.launch_specs import launch_spec
from activities.placement_calls import RegionRequest
from activities.ports import Catalog, ProviderError, ProviderErrorKind
from activities.provider_acts import Order, ProviderActs
from domain.acquisition import AcquisitionTerms, Failure, Request, SlotState
from domain.backoff import BackoffTerms
from domain.pool import PurchaseModel
from store import backoffs, fleet, quota_holds
from store import slots as store_slots
from store.engine import Connection, Engine
from store.licences import Place

FINAL_KINDS = frozenset(
    {
        ProviderErrorKind.QUOTA,
        ProviderErrorKind.NO_VALID_HOST,
        ProviderErrorKind.BAD_REQUEST,
        ProviderErrorKind.CONFLICT,
        ProviderErrorKind.NOT_FOUND,
    }
)
log = structlog.get_logger("launching")


class Launcher:
    """Launches for one process."""

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        acts: ProviderActs,
        *,
        terms: AcquisitionTerms,
        backoff: BackoffTerms,
        now: Callable[[], datetime],
        boot: BootCopies | None = None,
    ) -> None:
        """Without `boot`, no bundle goes with a launch."""
        self._engine = engine
        self._boot = boot
        self._catalog = catalog
        self._acts = acts
        self._terms = terms
        self._backoff = backoff
        self._now = now

    async def launch(
        self, request: RegionRequest, slots: Sequence[sa.RowMapping], wanted: Sequence[Request]
    ) -> None:
        """Ask for every batch once. What the answers leave open is found by the next list."""
        if not wanted:
            return
        row_of = {row["slot_key"]: row for row in slots}
        async with self._engine.connect() as connection:
            contract = await fleet.contract_of(connection, request.tenant_id, request.workload_id)
        leases = await self._leases(request.region, slots)
        for one in wanted:
            activity.heartbeat()
            row = row_of[one.slot_keys[0]]
            lease = leases.get((row["hall"], row["flavor"]))
            held = await self._held(request)
            if held is not None:
                await self._give_up(request, one.slot_keys, row["pool_id"], held, avoid=False)
            elif row["purchase_model"] == PurchaseModel.COMMITTED and lease is None:
                # Without a lease it would run as guaranteed capacity that nobody approved.
                problem = f"no active lease holds {row['flavor']} in {row['hall']}"
                await self._give_up(request, one.slot_keys, row["pool_id"], problem)
            else:
                boot = None if self._boot is None else await self._boot.of(request, row, contract)
                spec = launch_spec(request, row, contract, lease, boot)
                cause = f"generation {row['generation']} of {request.workload_id}"
                await self._create(
                    request, Order(spec, one.slot_keys, row["created_at"], contract.tier, cause)
                )

    async def fail(
        self,
        connection: Connection,
        request: RegionRequest,
        failures: Sequence[Failure],
        *,
        avoid: bool = True,
    ) -> None:
        """End slots; with `avoid` the workload stays out of their pools for a while."""
        await store_slots.mark_failed(connection, request.tenant_id, request.workload_id, failures)
        for failure in sorted({one.pool_id: one for one in failures}.values()) if avoid else ():
            await backoffs.back_off(
                connection,
                tenant_id=request.tenant_id,
                workload_id=request.workload_id,
                pool_id=failure.pool_id,
                now=self._now(),
                terms=self._backoff,
                problem=failure.problem,
            )
        for failure in failures:
            kind = kind_of_fault(failure.problem)
            metrics.FAILED.labels(request.region, kind).inc()
            log.warning(
                "launch_failed",
                workload=request.workload_id,
                pool=failure.pool_id,
                slot=failure.slot_key,
                kind=kind,
                problem=failure.problem,
            )

    async def _held(self, request: RegionRequest) -> str | None:
        """Why nothing is asked of a region now: its quota was exceeded, which is no fault of any pool."""
        async with self._engine.connect() as connection:
            until = await quota_holds.held_until(connection, request.tenant_id, request.region)
        if until is None or until <= self._now():
            return None
        return f"the quota of {request.region} was exceeded: nothing is asked for until {until:%H:%M:%S} UTC"

    async def _create(self, request: RegionRequest, order: Order) -> None:
        asked = await self._acts.book(place_of(request), order)
        if not asked:
            return
        try:
            await self._acts.create(order.spec, len(asked))
        except ProviderError as error:
            await self._refused(request, order, asked, error)
        else:
            await self._accepted(request)

    async def _refused(
        self, request: RegionRequest, order: Order, asked: Sequence[str], error: ProviderError
    ) -> None:
        """What was certainly not built is given up or asked for again; what is in doubt, a list shows."""
        if error.in_doubt:
            return
        if error.kind in FINAL_KINDS:
            await self._give_up(request, asked, order.spec.metadata["sco_pool"], str(error))
            if error.kind is ProviderErrorKind.QUOTA:
                await self._hold(request, str(error))
            return
        async with self._engine.begin() as connection:
            await store_slots.unask(connection, request.tenant_id, asked)
        if error.retry_after_seconds is not None:
            await asyncio.sleep(min(error.retry_after_seconds, self._terms.settle_seconds))

    async def _hold(self, request: RegionRequest, problem: str) -> None:
        async with self._engine.begin() as connection:
            until = await quota_holds.hold(
                connection, request.tenant_id, request.region, problem, self._now()
            )
        log.warning("quota_held", region=request.region, until=until, problem=problem)

    async def _accepted(self, request: RegionRequest) -> None:
        """A create that the quota admits ends the hold before it."""
        async with self._engine.connect() as connection:
            until = await quota_holds.held_until(connection, request.tenant_id, request.region)
        if until is not None:
            async with self._engine.begin() as connection:
                await quota_holds.clear(connection, request.tenant_id, request.region, until=until)

    async def _give_up(
        self, request: RegionRequest, slots: Sequence[str], pool_id: str, problem: str, *, avoid: bool = True
    ) -> None:
        failures = [Failure(slot, pool_id, problem) for slot in slots]
        async with self._engine.begin() as connection:
            await self.fail(connection, request, failures, avoid=avoid)

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


def place_of(request: RegionRequest) -> Place:
    """Where a request wants to act."""
    return Place(request.tenant_id, request.partition_id, request.region)
