"""Drains: what the events of one instance come to, whatever their order and however often they came.

The same set of events always gives the same drains: everything is computed from all of them, so an event
that comes days late only completes the picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from domain.cause import OF_NOTICES, Cause, Ended, Ending, decide
from domain.ids import event_id
from domain.lifecycle import OF_DRAINS, Drain, Event, EventSource, EventType, NoticeKind, Outcome

# Without a deadline and without an end, how long a drain may have lasted.
LONGEST = timedelta(minutes=10)
ENDINGS = (EventType.OVERRUN, EventType.DRAINED, EventType.WITHDRAWN)
OUTCOME_OF: Mapping[EventType, Outcome] = {
    EventType.OVERRUN: Outcome.OVERRUN,
    EventType.DRAINED: Outcome.DRAINED,
    EventType.WITHDRAWN: Outcome.WITHDRAWN,
}


class Episode(NamedTuple):
    """A drain and the events that tell of it, in their order."""

    drain: Drain
    events: tuple[Event, ...]


class History(NamedTuple):
    """What is known of one instance: its drains, oldest first, and the cause of each of its events."""

    episodes: tuple[Episode, ...]
    causes: Mapping[UUID, Cause]


def fold(instance_id: str, events: Iterable[Event]) -> History:
    """The drains of one instance and the causes of its events."""
    unique = {one.event_id: one for one in events}
    ordered = sorted(unique.values(), key=_order)
    spans = _spans(ordered)
    episodes = [_episode(span, ordered) for span in spans]
    lost = [one for one in ordered if one.type is EventType.NO_NOTICE]
    if lost and not _is_announced(episodes, ordered):
        episodes.append(_without_notice(instance_id, lost))
    return History(tuple(episodes), _causes(episodes, ordered))


def is_announced(instance_id: str, events: Iterable[Event]) -> bool:
    """Whether the end of the instance now would be that of a drain that is known."""
    told = [one for one in events if one.type is not EventType.NO_NOTICE]
    return _is_announced(fold(instance_id, told).episodes, told)


def _is_announced(episodes: Iterable[Episode], events: Sequence[Event]) -> bool:
    return any(
        one.drain.outcome is not Outcome.WITHDRAWN and not _is_outlived(one.drain, events) for one in episodes
    )


def _is_outlived(drain: Drain, events: Sequence[Event]) -> bool:
    """Whether the node was ready for work again after the drain: it was not taken back then."""
    over = max(at for at in (drain.notice_at, drain.deadline, drain.ended_at) if at is not None)
    return any(one.type is EventType.READY and one.occurred_at > over for one in events)


def _order(event: Event) -> tuple[datetime, int, UUID]:
    return event.occurred_at, event.sequence, event.event_id


class _Span(NamedTuple):
    """The events that name one notice, or several of which each came while the one before it stood."""

    notice_ids: tuple[UUID, ...]
    starts_at: datetime
    ends_at: datetime
    deadline: datetime | None
    events: tuple[Event, ...]


def _spans(ordered: Sequence[Event]) -> list[_Span]:
    """A notice that came while another stood joins its span, and may bring the deadline nearer."""
    by_notice: dict[UUID, list[Event]] = {}
    for one in ordered:
        if one.notice_id is not None and one.type in OF_DRAINS:
            by_notice.setdefault(one.notice_id, []).append(one)
    found = [_span((notice_id,), many) for notice_id, many in by_notice.items()]
    found.sort(key=lambda span: (span.starts_at, span.notice_ids))
    merged: list[_Span] = []
    for span in found:
        if merged and span.starts_at < merged[-1].ends_at:
            last = merged.pop()
            merged.append(_span(last.notice_ids + span.notice_ids, [*last.events, *span.events]))
        elif any(_is_acted_upon(one) for one in span.events):
            merged.append(span)
    return merged


def _is_acted_upon(event: Event) -> bool:
    """A hard notice always is. Of an advisory one that the contract lets pass, the node only says it came."""
    if event.type is not EventType.NOTICE or event.notice_kind is NoticeKind.HARD:
        return True
    return event.seconds_since_notice is not None


def _span(notice_ids: tuple[UUID, ...], events: Iterable[Event]) -> _Span:
    """A later notice may only shorten the deadline, so the earliest one holds."""
    ordered = tuple(sorted(events, key=_order))
    notices = [one.occurred_at for one in ordered if one.type is EventType.NOTICE]
    starts_at = min(notices or [_notice_at(one) for one in ordered])
    deadlines = [one.deadline for one in ordered if one.deadline is not None]
    deadline = min(deadlines, default=None)
    ends = [one.occurred_at for one in ordered if one.type in ENDINGS]
    ends_at = max(ends) if ends else max(deadline or _after(starts_at, LONGEST), starts_at)
    return _Span(notice_ids, starts_at, ends_at, deadline, ordered)


def _notice_at(event: Event) -> datetime:
    return _after(event.occurred_at, timedelta(seconds=-(event.seconds_since_notice or 0.0)))


def _after(at: datetime, span: timedelta) -> datetime:
    """A moment later; the same one where the calendar ends."""
    try:
        return at + span
    except OverflowError:
        return at


def _episode(span: _Span, ordered: Sequence[Event]) -> Episode:
    """The drain of one span. What the node said meanwhile without naming a notice belongs to it as well."""
    beside = [one for one in ordered if one.notice_id is None and _is_during(one, span)]
    events = tuple(sorted((*span.events, *beside), key=_order))
    ending = next((one for kind in ENDINGS for one in events if one.type is kind), None)
    signalled = next((one for one in events if one.type is EventType.SIGNALLED), None)
    ended_at = None if ending is None else _ended_at(ending, events)
    drain = Drain(
        drain_id=span.notice_ids[0],
        outcome=Outcome.OPEN if ending is None else OUTCOME_OF[ending.type],
        cause=_notice_cause(events),
        notice_id=span.notice_ids[0],
        notice_at=span.starts_at,
        deadline=span.deadline,
        signalled_at=None if signalled is None else signalled.occurred_at,
        signalled_after_seconds=None if signalled is None else seconds_since(signalled, span.starts_at),
        ended_at=ended_at,
        seconds_to_spare=_spare(ending, span.deadline),
        path=next((one.path for one in events if one.path and one.type is not EventType.NOTICE), None),
    )
    return Episode(drain, events)


def _is_during(event: Event, span: _Span) -> bool:
    if event.type in (EventType.READY, EventType.NO_NOTICE) or event.source is EventSource.CONTROLLER:
        return False
    return span.starts_at <= event.occurred_at <= span.ends_at


def _ended_at(ending: Event, events: Sequence[Event]) -> datetime:
    """An overrun ends when nothing is left, if the node came to tell."""
    if ending.type is EventType.OVERRUN:
        after = [one.occurred_at for one in events if one.type is EventType.DRAINED]
        return max([ending.occurred_at, *after])
    return ending.occurred_at


def _spare(ending: Event | None, deadline: datetime | None) -> float | None:
    """What was left until the deadline; a withdrawal leaves none to speak of."""
    if ending is None or ending.type is EventType.WITHDRAWN:
        return None
    if ending.seconds_to_spare is not None:
        return ending.seconds_to_spare
    return None if deadline is None else (deadline - ending.occurred_at).total_seconds()


def _notice_cause(events: Sequence[Event]) -> Cause:
    """Why the notice was given: what its own event says, else what a later one repeats of it."""
    first = sorted(events, key=lambda one: one.type is not EventType.NOTICE)
    return next((one.cause for one in first if one.cause in OF_NOTICES), Cause.UNKNOWN)


def _without_notice(instance_id: str, lost: Sequence[Event]) -> Episode:
    """What the control plane found counts; a node's own word of its end has no cause."""
    known = [one for one in lost if one.source is EventSource.CONTROLLER]
    first = (known or lost)[0]
    drain = Drain(
        drain_id=event_id("no-notice", "", instance_id),
        outcome=Outcome.NO_NOTICE,
        cause=first.cause if known else Cause.UNKNOWN,
        ended_at=first.occurred_at,
    )
    return Episode(drain, tuple(lost))


def _causes(episodes: Sequence[Episode], ordered: Sequence[Event]) -> dict[UUID, Cause]:
    """The cause of each event. An event at which nothing ended has none."""
    causes = {one.event_id: Cause.UNKNOWN for one in ordered}
    for one in ordered:
        if one.type is EventType.NO_NOTICE and one.source is EventSource.CONTROLLER:
            causes[one.event_id] = one.cause
        elif one.type is EventType.WORK_ENDED:
            causes[one.event_id] = decide(Ending(None, Ended.BEFORE_NOTICE, one.exit_code)).cause
    for drain, events in episodes:
        if drain.outcome is Outcome.NO_NOTICE:
            continue
        for one in events:
            if one.type in OF_DRAINS:
                causes[one.event_id] = decide(_ending(drain, one)).cause
    return causes


def _ending(drain: Drain, event: Event) -> Ending:
    if event.type is not EventType.WORK_ENDED:
        return Ending(drain.cause)
    return Ending(drain.cause, ended_when(drain, event), event.exit_code)


def ended_when(drain: Drain, event: Event) -> Ended:
    """Whether the work of a drain ended before its deadline."""
    spare = event.seconds_to_spare
    if spare is None and drain.deadline is not None:
        spare = (drain.deadline - event.occurred_at).total_seconds()
    return Ended.AFTER_DEADLINE if spare is not None and spare < 0 else Ended.IN_TIME


def seconds_since(event: Event, notice_at: datetime) -> float:
    """Seconds from the notice to an event: by the node's steady clock where it told that."""
    if event.seconds_since_notice is not None:
        return event.seconds_since_notice
    return (event.occurred_at - notice_at).total_seconds()
