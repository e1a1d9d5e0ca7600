"""Reconcile: what differs between what was decided and what exists, and what may be done about it.

Whoever acts on a fleet must have looked at it lately. One look is a cycle: a complete list of servers.
When the last one is too old nobody acts (read-only), until two cycles agree on which servers exist;
then what differs is put right in small steps (pacing), and then as usual.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, NamedTuple, Self

from pydantic import Field, model_validator

from domain.acquisition import ENDED_STATES, ServerStatus, SlotState
from domain.contract import CapShare, Tier
from domain.model import Frozen

Seconds = Annotated[float, Field(gt=0)]
AGREEING_CYCLES = 2
# A drift that a single list shows may be an answer that was wrong, or a change that is under way.
SIGHTINGS = 2


class FleetPhase(StrEnum):
    """The right to act in one region: none, in small steps after an outage, or as usual."""

    READ_ONLY = "read_only"
    PACING = "pacing"
    NORMAL = "normal"


class DriftKind(StrEnum):
    """How a server and the records differ.

    lost: a running slot whose server is not there. unserving: it is there and runs no work.
    orphan: a server of a batch that has no slot left for it. ended: the server of a slot that has
    ended. unrecorded: a server of a known workload whose batch nobody remembers. stranger: one of a
    workload nobody knows. wrong_tags: our server, labelled wrongly. mismatch: a slot's server was
    made for another slot.
    """

    LOST = "lost"
    UNSERVING = "unserving"
    ORPHAN = "orphan"
    ENDED = "ended"
    UNRECORDED = "unrecorded"
    STRANGER = "stranger"
    WRONG_TAGS = "wrong_tags"
    MISMATCH = "mismatch"


# Kinds whose repair deletes a server that nobody replaces: never many at once, whatever the phase.
LEFT_OVER = frozenset({DriftKind.ORPHAN, DriftKind.ENDED, DriftKind.UNRECORDED, DriftKind.STRANGER})
# Kinds whose repair leads to another server being launched.
REPLACED = frozenset({DriftKind.LOST, DriftKind.UNSERVING})
TIER_ORDER = (Tier.T1, Tier.BESPOKE, Tier.T2, Tier.T3, Tier.T4, Tier.T5)


class ReconcileTerms(Frozen):
    """How often a fleet is looked at, how long one look is good for, and how fast drift is put right.

    `pace_share` of the fleet, at least one instance, may change within `pace_window_seconds`.
    `stranger_patience_seconds` is how long a server of an unknown workload is left alone: its workload
    may only have been forgotten. `finds_per_cycle` bounds single questions to the provider.
    """

    cycle_seconds: Seconds = 60
    recovery_cycle_seconds: Seconds = 10
    lapse_seconds: Seconds = 300
    pace_share: CapShare = Decimal("0.05")
    pace_window_seconds: Seconds = 300
    stranger_patience_seconds: Seconds = 86_400
    finds_per_cycle: Annotated[int, Field(ge=1, le=1000)] = 50

    @model_validator(mode="after")
    def _outlives_a_cycle(self) -> Self:
        if self.lapse_seconds < 2 * self.cycle_seconds:
            raise ValueError(
                f"lapse_seconds {self.lapse_seconds:g} must be at least twice cycle_seconds"
                f" {self.cycle_seconds:g}, or one slow cycle stops all launches"
            )
        return self


class HeldSlot(NamedTuple):
    """A slot as the records have it. `tags` are those that its server must carry."""

    slot_key: str
    batch_key: str
    workload_id: str
    pool_id: str
    tier: Tier
    state: SlotState
    server_id: str | None
    tags: frozenset[str]


class SeenServer(NamedTuple):
    """A server of ours as the provider lists it."""

    server_id: str
    batch_key: str
    workload_id: str
    pool_id: str
    status: ServerStatus
    tags: frozenset[str]
    fault: str | None = None


class Drift(NamedTuple):
    """One difference. `subject` is the id of the server that it is about."""

    kind: DriftKind
    subject: str
    detail: str
    workload_id: str
    pool_id: str
    tier: Tier = Tier.T5
    slot_key: str | None = None
    batch_key: str | None = None


def compare(
    slots: Sequence[HeldSlot], servers: Iterable[SeenServer], tiers: Mapping[str, Tier]
) -> tuple[Drift, ...]:
    """Every difference, in the order in which it is to be put right.

    `slots` are the live ones of the partition in the region, and those that ended whose servers or
    batches are listed. `tiers` holds every workload that is known.
    """
    bound = {slot.server_id: slot for slot in slots if slot.server_id is not None}
    batches = {slot.batch_key for slot in slots}
    free = Counter(
        slot.batch_key for slot in slots if slot.state is SlotState.PLANNED and slot.server_id is None
    )
    found: list[Drift] = []
    seen: set[str] = set()
    for server in sorted(servers):
        seen.add(server.server_id)
        slot = bound.get(server.server_id)
        if slot is not None:
            found.extend(_of_slot(slot, server))
        elif server.status is not ServerStatus.DELETING:
            if free[server.batch_key] > 0:
                free[server.batch_key] -= 1
            else:
                found.append(_of_nobody(server, batches, tiers))
    found.extend(
        _drift(DriftKind.LOST, slot, "its server is not listed any more")
        for slot in slots
        if slot.state is SlotState.ACTIVE and slot.server_id not in seen
    )
    return in_order(found)


def in_order(drifts: Iterable[Drift]) -> tuple[Drift, ...]:
    """The strictest tier first; within it what waits for a replacement before what is left over."""
    return tuple(
        sorted(
            drifts,
            key=lambda one: (TIER_ORDER.index(one.tier), one.kind not in REPLACED, one.kind, one.subject),
        )
    )


def _of_slot(slot: HeldSlot, server: SeenServer) -> Iterable[Drift]:
    """What is wrong with a server that has a slot."""
    if slot.state in ENDED_STATES:
        if server.status is not ServerStatus.DELETING:
            yield _drift(DriftKind.ENDED, slot, f"its slot is {slot.state}")
        return
    if (server.batch_key, server.pool_id) != (slot.batch_key, slot.pool_id):
        made_for = f"its server was made for batch {server.batch_key} in {server.pool_id}"
        yield _drift(DriftKind.MISMATCH, slot, made_for)
    elif not slot.tags <= server.tags:
        missing = ", ".join(sorted(slot.tags - server.tags))
        yield _drift(DriftKind.WRONG_TAGS, slot, f"its server lacks the tags {missing}")
    if slot.state is not SlotState.ACTIVE:
        return
    if server.status is ServerStatus.DELETING:
        yield _drift(DriftKind.LOST, slot, "its server is being deleted, and nobody here asked for it")
    elif server.status in (ServerStatus.ERROR, ServerStatus.STOPPED):
        why = server.fault or f"its server is {server.status}"
        yield _drift(DriftKind.UNSERVING, slot, why)


def _of_nobody(server: SeenServer, batches: Collection[str], tiers: Mapping[str, Tier]) -> Drift:
    """What a server without a slot is."""
    tier = tiers.get(server.workload_id)
    if server.batch_key in batches:
        kind, detail = DriftKind.ORPHAN, f"every slot of batch {server.batch_key} has another server"
    elif tier is not None:
        kind, detail = DriftKind.UNRECORDED, f"batch {server.batch_key} is not in the records"
    else:
        kind, detail = DriftKind.STRANGER, f"workload {server.workload_id} is not in the records"
    return Drift(
        kind,
        server.server_id,
        detail,
        server.workload_id,
        server.pool_id,
        tier or Tier.T5,
        batch_key=server.batch_key,
    )


def _drift(kind: DriftKind, slot: HeldSlot, detail: str) -> Drift:
    assert slot.server_id is not None, "a slot without a server has no drift"
    return Drift(
        kind, slot.server_id, detail, slot.workload_id, slot.pool_id, slot.tier, slot.slot_key, slot.batch_key
    )


def agrees(before: frozenset[str], now: frozenset[str], deleted: frozenset[str]) -> bool:
    """Whether two lists of servers are of one world: what left has been deleted, and nothing appeared."""
    return now <= before and before - now <= deleted


class FleetState(NamedTuple):
    """How far the right to act in one region has come. `acting_until` is None without a licence.

    `unattended` says that before the last lapse nobody even tried to look: the records may be old.
    """

    phase: FleetPhase
    agreeing: int
    acting_until: datetime | None
    recovered_at: datetime | None
    unattended: bool


NEVER_SEEN = FleetState(FleetPhase.READ_ONLY, 0, None, None, unattended=True)


def lapsed(
    state: FleetState, *, tried_at: datetime, seen_at: datetime | None, now: datetime, terms: ReconcileTerms
) -> FleetState:
    """The state at `now`: a licence that ran out is gone, and cycles that are too old agree with nothing.

    `tried_at` is when somebody last looked or tried to, `seen_at` when a cycle was last complete.
    """
    good_for = timedelta(seconds=terms.lapse_seconds)
    if state.acting_until is not None and state.acting_until > now:
        return state
    unattended = state.unattended or now - tried_at >= good_for
    stale = state.acting_until is not None or seen_at is None or now - seen_at >= good_for
    return FleetState(
        FleetPhase.READ_ONLY, 0 if stale else state.agreeing, None, state.recovered_at, unattended
    )


def after_cycle(
    state: FleetState, *, agreed: bool, fleet: int, backlog: int, now: datetime, terms: ReconcileTerms
) -> FleetState:
    """The state after a complete cycle that saw a `fleet` of so many, `backlog` of it to be put right.

    Without a licence, `agreed` says whether this list agrees with the one before. A fleet that was left
    alone is then put right in small steps; one that only its provider hid for a while, or one that is
    empty, needs none.
    """
    until = now + timedelta(seconds=terms.lapse_seconds)
    if state.phase is FleetPhase.READ_ONLY:
        agreeing = state.agreeing + 1 if agreed and state.agreeing else 1
        if agreeing < AGREEING_CYCLES:
            return state._replace(agreeing=agreeing)
        phase = FleetPhase.PACING if state.unattended and fleet else FleetPhase.NORMAL
        return FleetState(phase, agreeing, until, now, unattended=False)
    phase = FleetPhase.PACING if state.phase is FleetPhase.PACING and backlog else FleetPhase.NORMAL
    return FleetState(phase, state.agreeing, until, state.recovered_at, unattended=False)


def is_paced(kind: DriftKind, phase: FleetPhase) -> bool:
    """Whether putting it right counts against the pace."""
    return kind in LEFT_OVER or (phase is FleetPhase.PACING and kind in REPLACED)


def pace_limit(fleet: int, terms: ReconcileTerms) -> int:
    """How many instances may change within a window: the share rounded down, at least one."""
    return max(1, int(fleet * terms.pace_share))


def may_be_repaired(
    drifts: Iterable[Drift], allowance: int, phase: FleetPhase
) -> tuple[list[Drift], list[Drift]]:
    """Which differences to put right now, and which have to wait for the pace. Keeps the order."""
    now, later = [], []
    for drift in in_order(drifts):
        if not is_paced(drift.kind, phase):
            now.append(drift)
        elif allowance > 0:
            allowance -= 1
            now.append(drift)
        else:
            later.append(drift)
    return now, later
