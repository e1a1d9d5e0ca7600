"""What to do next so that every open slot gets exactly one server, and no server is left over.

Slots are what was decided, servers are what the provider lists. A create call has no idempotency: its
batch key is in the metadata of every server that it makes, so what a call did is found by listing. A
slot is asked for again only when the last request had time to show, and a server that turns up late
takes a free slot of its batch or is deleted. Servers whose batch is unknown are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import Field

from domain.model import Frozen


class SlotState(StrEnum):
    """The life of a slot: planned, asked of the provider, running, being given back; then gone, failed
    to run, or lost: the provider took its server away."""

    PLANNED = "planned"
    BUILDING = "building"
    ACTIVE = "active"
    RELEASING = "releasing"
    GONE = "gone"
    FAILED = "failed"
    LOST = "lost"


LIVE_STATES = (SlotState.PLANNED, SlotState.BUILDING, SlotState.ACTIVE, SlotState.RELEASING)
ENDED_STATES = (SlotState.GONE, SlotState.FAILED, SlotState.LOST)


class ServerStatus(StrEnum):
    BUILDING = "building"
    ACTIVE = "active"
    STOPPED = "stopped"
    ERROR = "error"
    DELETING = "deleting"


class AcquisitionTerms(Frozen):
    """How patient a launch is. A batch that keeps failing is given up, and planned elsewhere.

    A deletion that the provider does not carry out is waited for so long, and then left to later.
    """

    settle_seconds: Annotated[float, Field(gt=0)] = 10
    build_patience_seconds: Annotated[float, Field(gt=0)] = 900
    delete_patience_seconds: Annotated[float, Field(gt=0)] = 300
    max_attempts: Annotated[int, Field(ge=1, le=20)] = 4


class SlotView(NamedTuple):
    slot_key: str
    batch_key: str
    pool_id: str
    state: SlotState
    server_id: str | None = None
    requested_at: datetime | None = None
    attempts: int = 0


class ServerView(NamedTuple):
    server_id: str
    batch_key: str | None
    status: ServerStatus
    created_at: datetime
    fault: str | None = None


class Binding(NamedTuple):
    slot_key: str
    server_id: str


class Failure(NamedTuple):
    """A slot that will not run. `server_id` is set where a server is bound to it for the record."""

    slot_key: str
    pool_id: str
    problem: str
    server_id: str | None = None


class Request(NamedTuple):
    """Slots of one batch to ask for in one call."""

    batch_key: str
    slot_keys: tuple[str, ...]


@dataclass(slots=True)
class Steps:
    """What to record, what to delete and what to ask for, in this order."""

    bind: list[Binding] = field(default_factory=list)
    active: list[str] = field(default_factory=list)
    fail: list[Failure] = field(default_factory=list)
    delete: list[str] = field(default_factory=list)
    request: list[Request] = field(default_factory=list)
    waiting: int = 0

    @property
    def moved(self) -> bool:
        """Whether the list showed anything that is not waited for any more."""
        return bool(self.bind or self.active or self.fail or self.delete or self.request)

    @property
    def settled(self) -> bool:
        """Every slot runs or has failed; servers may be left over."""
        return not (self.bind or self.fail or self.request or self.waiting)

    @property
    def done(self) -> bool:
        """Nothing is left to do or to wait for."""
        return self.settled and not self.delete


def next_steps(
    slots: Sequence[SlotView], servers: Iterable[ServerView], now: datetime, terms: AcquisitionTerms
) -> Steps:
    """Compare what was decided with what exists; the answer moves every open slot one step on."""
    steps = Steps()
    bound = {slot.server_id: slot for slot in slots if slot.server_id is not None}
    free = _free_slots(slots)
    seen: set[str] = set()
    for server in sorted(servers, key=lambda one: (one.created_at, one.server_id)):
        seen.add(server.server_id)
        slot = bound.get(server.server_id)
        if slot is not None:
            _follow(slot, server, now, terms, steps)
        elif server.batch_key in free:
            _adopt(free[server.batch_key], server, steps)
    for slot in slots:
        if slot.state is SlotState.BUILDING and slot.server_id not in seen:
            steps.fail.append(Failure(slot.slot_key, slot.pool_id, "its server vanished while it was built"))
        if slot.state is not SlotState.PLANNED and slot.attempts > 1 and _is_settling(slot, now, terms):
            steps.waiting += 1
    for batch_key, left in free.items():
        _ask(batch_key, left, now, terms, steps)
    return steps


def _is_settling(slot: SlotView, now: datetime, terms: AcquisitionTerms) -> bool:
    """Whether the last request may still bring a server; after a second request, one too many."""
    settle = timedelta(seconds=terms.settle_seconds)
    return slot.requested_at is not None and now - slot.requested_at < settle


def _free_slots(slots: Sequence[SlotView]) -> dict[str, list[SlotView]]:
    """Slots without a server by batch; a known batch without free slots has an empty list."""
    free: dict[str, list[SlotView]] = {}
    for slot in sorted(slots):
        left = free.setdefault(slot.batch_key, [])
        if slot.state is SlotState.PLANNED and slot.server_id is None:
            left.append(slot)
    return free


def _follow(slot: SlotView, server: ServerView, now: datetime, terms: AcquisitionTerms, steps: Steps) -> None:
    """A server that has a slot: see it run, or end both."""
    if slot.state in ENDED_STATES:
        if server.status is not ServerStatus.DELETING:
            steps.delete.append(server.server_id)
    elif slot.state is SlotState.BUILDING:
        problem = _problem(slot, server, now, terms)
        if problem is not None:
            steps.fail.append(Failure(slot.slot_key, slot.pool_id, problem))
            if server.status is not ServerStatus.DELETING:
                steps.delete.append(server.server_id)
        elif server.status is ServerStatus.ACTIVE:
            steps.active.append(server.server_id)
        else:
            steps.waiting += 1


def _problem(slot: SlotView, server: ServerView, now: datetime, terms: AcquisitionTerms) -> str | None:
    """Why a server will not serve. Patience runs on our clock, the provider's may be far ahead or behind."""
    if server.status is ServerStatus.ERROR:
        return server.fault or "its server went to ERROR without saying why"
    if server.status is ServerStatus.DELETING:
        return "its server was deleted while it was built"
    if server.status is ServerStatus.STOPPED:
        return "its server was stopped before it was used"
    patience = timedelta(seconds=terms.build_patience_seconds)
    asked_at = slot.requested_at or server.created_at
    if server.status is ServerStatus.BUILDING and now - asked_at > patience:
        return f"its server was still building after {terms.build_patience_seconds:g} s"
    return None


def _adopt(free: list[SlotView], server: ServerView, steps: Steps) -> None:
    """A server of a known batch without a slot: it takes a free one, or it is one too many."""
    if server.status is ServerStatus.DELETING:
        return
    if not free:
        steps.delete.append(server.server_id)
        return
    slot = free.pop(0)
    if server.status is ServerStatus.ERROR:
        problem = server.fault or "its server went to ERROR without saying why"
        steps.fail.append(Failure(slot.slot_key, slot.pool_id, problem, server.server_id))
        steps.delete.append(server.server_id)
        return
    steps.bind.append(Binding(slot.slot_key, server.server_id))
    if server.status is ServerStatus.ACTIVE:
        steps.active.append(server.server_id)


def _ask(batch_key: str, left: list[SlotView], now: datetime, terms: AcquisitionTerms, steps: Steps) -> None:
    """Free slots of one batch: ask for them once the last request had time to show."""
    due = []
    for slot in left:
        if _is_settling(slot, now, terms):
            steps.waiting += 1
        elif slot.attempts >= terms.max_attempts:
            problem = f"no server appeared after {slot.attempts} requests"
            steps.fail.append(Failure(slot.slot_key, slot.pool_id, problem))
        else:
            due.append(slot.slot_key)
    if due:
        steps.request.append(Request(batch_key, tuple(due)))
