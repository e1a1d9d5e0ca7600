"""The two acts that change what exists at the provider, each licensed and written down before it is done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.errors import application_error
from activities.ports import SEND_UNTIL, BatchSpec, Compute, ProviderError
from domain.reconcile import ReconcileTerms
from store import licences, slots
from store.audit_log import Action, Entry, deleted_by_us, record
from store.engine import Connection, Engine
from store.licences import Place

READ_ONLY = "read_only"
# Of the time in which a request may show: so long it may wait to be sent.
SEND_SHARE = 0.5


class Doomed(NamedTuple):
    """A server to delete, and why."""

    server_id: str
    cause: str
    workload_id: str | None = None
    pool_id: str | None = None
    batch_key: str | None = None


class Order(NamedTuple):
    """Servers to create: one batch of one workload, for slots that were planned at one time."""

    spec: BatchSpec
    slot_keys: Sequence[str]
    planned_at: datetime
    tier: str
    cause: str


class ProviderActs:
    """Creates and deletes servers for one process."""

    def __init__(
        self,
        engine: Engine,
        compute: Compute,
        *,
        identity: str,
        terms: ReconcileTerms,
        settle_seconds: float,
        now: Callable[[], datetime],
    ) -> None:
        self._engine = engine
        self._compute = compute
        self._identity = identity
        self._terms = terms
        self._settle = timedelta(seconds=settle_seconds)
        self._now = now

    async def licensed(self, place: Place) -> bool:
        """Whether anything may be done in this place now."""
        async with self._engine.connect() as connection:
            return await licences.may_act(connection, place, self._now())

    async def book(self, place: Place, order: Order) -> Sequence[str]:
        """Write down that servers are about to be asked for; returns the slots that they are for.

        Slots that somebody asked for lately, and those that have to wait for the pace, are left out.
        """
        async with self._engine.begin() as connection:
            granted, paced, now = await licences.launch_grant(
                connection,
                place,
                wanted=len(order.slot_keys),
                planned_at=order.planned_at,
                tier=order.tier,
                clock=self._now,
                terms=self._terms,
            )
            asked = await slots.mark_requested(
                connection, place.tenant_id, order.slot_keys[:granted], at=now, settle=self._settle
            )
            if asked:
                metadata = order.spec.metadata
                entry = Entry(
                    actor=self._identity,
                    action=Action.LAUNCH,
                    cause=order.cause,
                    region=place.region,
                    partition_id=place.partition_id,
                    workload_id=metadata["sco_workload"],
                    pool_id=metadata["sco_pool"],
                    batch_key=order.spec.batch_key,
                    instances=len(asked),
                    paced=paced,
                )
                await record(connection, place.tenant_id, now, entry)
        return asked

    async def create(self, spec: BatchSpec, count: int) -> None:
        """Ask once for what is booked. ProviderError as the provider's.

        What waits for a token until the slots are soon asked for again is not sent: both would be built.
        """
        SEND_UNTIL.set(time.monotonic() + SEND_SHARE * self._settle.total_seconds())
        try:
            await asyncio.to_thread(self._compute.create_batch, spec, count)
        finally:
            SEND_UNTIL.set(None)

    async def delete(self, place: Place, doomed: Sequence[Doomed]) -> Sequence[Doomed]:
        """Write deletions down and ask for them, after an outage as many as the pace allows.

        Returns those that were asked for.
        """
        if not doomed:
            return ()
        async with self._engine.begin() as connection:
            grant = await licences.delete_grant(
                connection, place, wanted=len(doomed), clock=self._now, terms=self._terms
            )
            if grant is None:
                raise read_only(place)
            granted, paced, now = grant
            asked = doomed[:granted]
            await record(connection, place.tenant_id, now, *self.entries(place, asked, paced=paced))
        await self.send_deletes(place, asked)
        return asked

    async def write_lost(self, connection: Connection, place: Place, gone: Sequence[Doomed]) -> None:
        """Write down what ended at the provider without us, in the caller's transaction."""
        if not gone:
            return
        deleted = await deleted_by_us(connection, place.tenant_id, [one.server_id for one in gone])
        ours = [one for one in gone if one.server_id not in deleted]
        entries = (replace(one, action=Action.LOSE) for one in self.entries(place, ours))
        await record(connection, place.tenant_id, self._now(), *entries)

    def entries(self, place: Place, doomed: Sequence[Doomed], *, paced: bool = False) -> list[Entry]:
        """What the audit log says of these deletions."""
        return [
            Entry(
                actor=self._identity,
                action=Action.DELETE,
                region=place.region,
                partition_id=place.partition_id,
                paced=paced,
                **one._asdict(),
            )
            for one in doomed
        ]

    async def send_deletes(self, place: Place, doomed: Sequence[Doomed]) -> None:
        """Ask for what is written down, then tell of the first refusal: one server holds up no other."""
        refused: ProviderError | None = None
        for one in doomed:
            activity.heartbeat()
            try:
                await asyncio.to_thread(self._compute.delete, place.region, one.server_id)
            except ProviderError as error:
                refused = refused or error
        if refused is not None:
            raise application_error(refused) from refused


def read_only(place: Place) -> ApplicationError:
    """What stops an act without a licence. It is tried again: the next cycles may grant one."""
    return ApplicationError(
        f"{place.partition_id} is read-only in {place.region}: two complete cycles must agree first",
        type=READ_ONLY,
    )
