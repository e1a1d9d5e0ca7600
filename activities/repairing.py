"""The hand that puts right what differs: adopts, labels again, gives up the lost, deletes the left over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import sqlalchemy as sa

from activities.errors import application_error
from activities.losses import note_losses
from activities.ports import Compute, ProviderError, ProviderErrorKind
from activities.provider_acts import Doomed, ProviderActs, read_only
from activities.reconcile_calls import Reconciled
from domain.acquisition import Failure
from domain.backoff import BackoffTerms
from domain.reconcile import (
    LEFT_OVER,
    REPLACED,
    SIGHTINGS,
    Drift,
    DriftKind,
    FleetPhase,
    ReconcileTerms,
    is_paced,
    may_be_repaired,
)
from domain.tags import server_tags
from store import backoffs, drifts, fleet_facts, licences, slots
from store.audit_log import Action, Entry, record
from store.engine import Connection, Engine
from store.licences import Place

Poke = Callable[[Place, str], Awaitable[None]]


class Settled(NamedTuple):
    """What one transaction wrote down, to be carried out after it."""

    lost: dict[str, list[str]]
    doomed: list[Doomed]
    waiting: int


class Repairs:
    """Repairs for one process. `poke` tells the placement of a workload that it has to place anew."""

    def __init__(
        self,
        engine: Engine,
        compute: Compute,
        acts: ProviderActs,
        poke: Poke,
        *,
        identity: str,
        terms: ReconcileTerms,
        backoff: BackoffTerms,
        now: Callable[[], datetime],
    ) -> None:
        self._engine = engine
        self._compute = compute
        self._acts = acts
        self._poke = poke
        self._identity = identity
        self._terms = terms
        self._backoff = backoff
        self._now = now

    async def due(self, place: Place, drift: Sequence[Drift]) -> list[Drift]:
        """What is certain: a loss once the provider confirms it, everything else when seen twice."""
        if not drift:
            return []
        async with self._engine.connect() as connection:
            known = {(row["kind"], row["subject"]): row for row in await drifts.known(connection, place)}
        patient = self._now() - timedelta(seconds=self._terms.stranger_patience_seconds)
        return [one for one in drift if _is_certain(one, known.get((one.kind.value, one.subject)), patient)]

    async def repair(
        self, place: Place, due: Sequence[Drift], unwanted: frozenset[str], done: Reconciled
    ) -> Reconciled:
        """Put right what is certain and fits the pace; the answer tells what was done."""
        if not due:
            return done
        retagged = await self._label(place, due)
        settled = await self._settle(
            place,
            [one for one in due if one.kind is not DriftKind.UNRECORDED or one.subject in unwanted],
        )
        for workload_id in sorted(settled.lost):
            await self._poke(place, workload_id)
        await self._acts.send_deletes(place, settled.doomed)
        return done.model_copy(
            update={
                "retagged": retagged,
                "lost": sum(len(many) for many in settled.lost.values()),
                "deleted": len(settled.doomed),
                "backlog": settled.waiting,
            }
        )

    async def _label(self, place: Place, due: Sequence[Drift]) -> int:
        """Give servers the tags by which everything else finds them."""
        wrong = [one for one in due if one.kind is DriftKind.WRONG_TAGS][: self._terms.finds_per_cycle]
        async with self._engine.begin() as connection:
            rows = await fleet_facts.slots_of(
                connection, place, servers={one.subject for one in wrong}, batches=()
            )
            entries = (self._entry(Action.SET_TAGS, place, one, one.detail) for one in wrong)
            await record(connection, place.tenant_id, self._now(), *entries)
        refused: ProviderError | None = None
        labelled = 0
        for row in rows:
            tags = server_tags(place.partition_id, row["workload_id"], row["purchase_model"])
            try:
                await asyncio.to_thread(self._compute.set_tags, place.region, row["server_id"], tags)
                labelled += 1
            except ProviderError as error:
                # A server that is changing refuses labels until it is done.
                refused = refused or (None if error.kind is ProviderErrorKind.CONFLICT else error)
        if refused is not None:
            raise application_error(refused) from refused
        return labelled

    async def _settle(self, place: Place, due: Sequence[Drift]) -> Settled:
        """Give up what is lost and write down what is to be deleted, as far as the pace allows."""
        chosen = [one for one in due if one.kind in REPLACED | LEFT_OVER]
        if not chosen:
            return Settled({}, [], 0)
        async with self._engine.begin() as connection:
            cycle = await licences.open_cycle(connection, place, lock=True)
            now = self._now()
            if cycle.state.acting_until is None or cycle.state.acting_until <= now:
                raise read_only(place)
            held = await fleet_facts.held(
                connection, place.tenant_id, {one.subject for one in chosen if one.kind in LEFT_OVER}
            )
            allowance = await licences.allowance(connection, place, cycle.fleet, now, self._terms)
            repaired, later = may_be_repaired(
                (one for one in chosen if one.subject not in held), allowance, cycle.state.phase
            )
            lost = await self._lose(
                connection, place, [one for one in repaired if one.kind in REPLACED], cycle.state.phase, now
            )
            ended = {server_id for many in lost.values() for server_id in many}
            await note_losses(connection, place, [one for one in repaired if one.subject in ended], now)
            left_over = [_doomed(one) for one in repaired if one.kind in LEFT_OVER]
            unserving = [_doomed(one) for one in repaired if one.kind is DriftKind.UNSERVING]
            await record(
                connection,
                place.tenant_id,
                now,
                *self._acts.entries(place, left_over, paced=True),
                *self._acts.entries(place, unserving),
            )
        return Settled(lost, [*left_over, *unserving], len(later))

    async def _lose(
        self,
        connection: Connection,
        place: Place,
        losses: Sequence[Drift],
        phase: FleetPhase,
        now: datetime,
    ) -> dict[str, list[str]]:
        """End the slots of lost servers, workload by workload in the order of everyone."""
        of_workload: dict[str, list[Drift]] = {}
        for one in losses:
            of_workload.setdefault(one.workload_id, []).append(one)
        lost: dict[str, list[str]] = {}
        for workload_id, many in sorted(of_workload.items()):
            failures = [Failure(one.slot_key or "", one.pool_id, one.detail) for one in many]
            rows = await slots.mark_lost(connection, place.tenant_id, workload_id, failures, now)
            lost[workload_id] = [row["server_id"] for row in rows]
            drift_of = {one.subject: one for one in many}
            entries = (
                self._entry(
                    Action.LOSE,
                    place,
                    drift_of[row["server_id"]],
                    drift_of[row["server_id"]].detail,
                    paced=is_paced(drift_of[row["server_id"]].kind, phase),
                )
                for row in rows
            )
            await record(connection, place.tenant_id, now, *entries)
            await self._avoid(connection, place, workload_id, rows, now)
        return lost

    async def _avoid(
        self,
        connection: Connection,
        place: Place,
        workload_id: str,
        rows: Sequence[sa.RowMapping],
        now: datetime,
    ) -> None:
        """A pool that lost instances soon after their launch is left alone, longer each time."""
        thrashed = {row["pool_id"] for row in rows if self._backoff.is_thrash(row["active_at"], now)}
        for pool_id in sorted(thrashed):
            await backoffs.back_off(
                connection,
                tenant_id=place.tenant_id,
                workload_id=workload_id,
                pool_id=pool_id,
                now=now,
                terms=self._backoff,
                problem="an instance was lost soon after its launch",
            )

    def _entry(
        self,
        action: Action,
        place: Place,
        drift: Drift,
        cause: str,
        *,
        batch_key: str | None = None,
        paced: bool = False,
    ) -> Entry:
        return Entry(
            actor=self._identity,
            action=action,
            cause=cause,
            region=place.region,
            partition_id=place.partition_id,
            workload_id=drift.workload_id,
            pool_id=drift.pool_id,
            batch_key=batch_key or drift.batch_key,
            server_id=drift.subject,
            paced=paced,
        )


def _is_certain(drift: Drift, known: sa.RowMapping | None, patient: datetime) -> bool:
    if known is None or drift.kind is DriftKind.MISMATCH:
        return False
    if drift.kind is DriftKind.LOST:
        return bool(known["confirmed"])
    if drift.kind is DriftKind.STRANGER and known["first_seen_at"] > patient:
        return False
    return bool(known["cycles"] >= SIGHTINGS)


def _doomed(drift: Drift) -> Doomed:
    return Doomed(drift.subject, drift.detail, drift.workload_id, drift.pool_id, drift.batch_key)
