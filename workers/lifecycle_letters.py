"""Lifecycle events as they come from the node bus: what is believed of a message, and what is not."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from domain.cause import Cause
from domain.intake.words import clean
from domain.lifecycle import Event, EventType, NoticeKind
from store.lifecycle import Arrival
from wire.lifecycle import MAX_DETAIL, LifecycleEvent, read_event

SUBJECT = "lifecycle"
SUBJECT_PARTS = 3
# What no clock of a node shows, nor the database keeps, is a fault of the message.
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)
MOST_LOST = 2**63 - 1


class RefusedAs(StrEnum):
    """Why a message is thrown away."""

    SUBJECT = "subject"
    BODY = "body"
    FOREIGN = "foreign"
    UNKNOWN_INSTANCE = "unknown_instance"
    TOO_MANY = "too_many"
    STORE = "store"


class Refusal(NamedTuple):
    reason: RefusedAs
    detail: str


class Letter(NamedTuple):
    """A believed message: the hall that it came from, and the event with its instance."""

    hall: str
    arrival: Arrival


def read_letter(subject: str, body: bytes) -> Letter | Refusal:
    """What a node says of itself. Never raises.

    The bus lets a node publish on its own subject only, so an event that names another is refused. Tenant,
    pool and workload are not taken from it.
    """
    parts = subject.split(".")
    if len(parts) != SUBJECT_PARTS or parts[0] != SUBJECT:
        return Refusal(RefusedAs.SUBJECT, f"subject {clean(subject)} is not {SUBJECT}.<hall>.<instance>")
    said = read_event(body)
    if isinstance(said, str):
        return Refusal(RefusedAs.BODY, clean(said, MAX_DETAIL))
    if (said.hall, said.instance_id) != (parts[1], parts[2]):
        return Refusal(
            RefusedAs.FOREIGN, f"{parts[2]} of {parts[1]} spoke of {said.instance_id} of {said.hall}"
        )
    for name, at in (("occurredAt", said.occurred_at), ("deadline", said.deadline)):
        if at is not None and not EARLIEST <= at < LATEST:
            return Refusal(RefusedAs.BODY, f"{name} is {at.isoformat()}: no time from 1970 to 9000")
    return Letter(said.hall, Arrival(said.instance_id, _event(said), said.wasted_vcpu_seconds))


def _event(said: LifecycleEvent) -> Event:
    lost = said.lost_events
    return Event(
        event_id=said.event_id,
        type=EventType(said.type),
        occurred_at=said.occurred_at.astimezone(UTC),
        sequence=said.sequence,
        cause=Cause(said.cause),
        notice_id=said.notice_id,
        notice_kind=None if said.notice_kind is None else NoticeKind(said.notice_kind),
        deadline=None if said.deadline is None else said.deadline.astimezone(UTC),
        path=None if said.path is None else clean(said.path),
        seconds_since_notice=said.seconds_since_notice,
        seconds_to_spare=said.seconds_to_spare,
        exit_code=said.exit_code,
        lost_events=None if lost is None else min(lost, MOST_LOST),
        detail=clean(said.detail, MAX_DETAIL),
    )
