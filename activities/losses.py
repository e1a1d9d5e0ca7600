"""The hand that tells of servers that are gone without a notice, and why as far as the provider says."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from domain.cause import Ending, Evidence, decide
from domain.reconcile import Drift, DriftKind
from store import lifecycle, notifications
from store.audit_log import deleted_by_us
from store.engine import Connection
from store.licences import Place
from store.lifecycle import Loss
from store.notifications import Evidence as Told


async def note_losses(connection: Connection, place: Place, lost: Sequence[Drift], at: datetime) -> None:
    """Record the end of servers that nobody here has ended, in the transaction that gives them up.

    Where a notice of a server is known, its own drain tells of its end. Before anybody writes down that what
    is left of these servers is to be deleted: that would look like our doing.
    """
    if not lost:
        return
    servers = {one.subject for one in lost}
    said = await notifications.evidence(connection, place.tenant_id, place.region, servers)
    ours = await deleted_by_us(connection, place.tenant_id, servers)
    reclaimable = await lifecycle.reclaimable(connection, place.tenant_id, {one.pool_id for one in lost})
    losses = []
    for one in lost:
        told = said.get(one.subject) or Told(server_id=one.subject)
        evidence = Evidence.ASKED if one.subject in ours else _evidence(one, told)
        cause = decide(Ending(None, provider=evidence, is_reclaimable=one.pool_id in reclaimable)).cause
        losses.append(Loss(one.subject, _when(told) or at, cause, one.detail))
    await lifecycle.note_losses(connection, losses, at)


def _evidence(drift: Drift, told: Told) -> Evidence:
    """A server that failed before it was deleted was not taken back: what failed is not known."""
    if told.errored_at is not None:
        return Evidence.ERRORED
    if told.deleted_at is not None or drift.kind is DriftKind.LOST:
        return Evidence.DELETED
    return Evidence.STOPPED if told.stopped_at is not None else Evidence.NOTHING


def _when(told: Told) -> datetime | None:
    """When it ended by the provider's clock: the first that was told of its end."""
    ends = [one for one in (told.errored_at, told.stopped_at, told.deleted_at) if one is not None]
    return min(ends, default=None)
