"""The story of one drain: second by second, with how it ended, whose fault it was, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from domain.cause import Cause, signal_of
from domain.drain_history import Episode, seconds_since
from domain.lifecycle import Drain, Event, EventType, NoticeKind, Outcome

# Later than this after the notice, the work was told too late to be blamed for an overrun.
PROMPT_SECONDS = 5.0
# A wall clock that differs by more than this from the steady one was set. A node reads the provider's time to
# the second, and takes it over as soon as it knows it.
CLOCK_SECONDS = 3.0

PLAIN: Mapping[EventType, str] = {
    EventType.CHECKPOINTED: "A checkpoint was written",
    EventType.CHECKPOINT_FAILED: "A checkpoint could not be written",
    EventType.DRAINED: "Nothing was left on the node",
    EventType.OVERRUN: "Work was still running",
    EventType.WITHDRAWN: "The notice was withdrawn",
    EventType.NO_NOTICE: "The node was gone without a notice",
    EventType.REFUSED: "A notice was refused",
    EventType.READY: "The agent was ready",
}


class Fault(StrEnum):
    """Who has to do better next time."""

    NOBODY = "nobody"
    WORKLOAD = "workload"
    PLATFORM = "platform"
    PROVIDER = "provider"
    UNKNOWN = "unknown"


class Line(NamedTuple):
    """One step. `seconds` counts from the notice; None where no notice is known to count from."""

    seconds: float | None
    at: datetime
    type: EventType
    text: str


class Story(NamedTuple):
    """A drain told. `sentence` says whose fault it was and why; `gaps` name what is not known."""

    drain: Drain
    fault: Fault
    sentence: str
    lines: tuple[Line, ...]
    gaps: tuple[str, ...]


def tell(episode: Episode, sequences: Iterable[int] = ()) -> Story:
    """The story of a drain. `sequences` are those of all events that the node is known to have sent."""
    drain, events = episode
    lines = tuple(sorted((_line(one, drain) for one in events), key=_moment))
    fault, sentence = _fault(drain, is_withdrawn=any(one.type is EventType.WITHDRAWN for one in events))
    return Story(drain, fault, sentence, lines, tuple(_gaps(drain, events, lines, frozenset(sequences))))


def _moment(line: Line) -> tuple[float, datetime]:
    return line.seconds or 0.0, line.at


def _line(event: Event, drain: Drain) -> Line:
    seconds = None if drain.notice_at is None else round(seconds_since(event, drain.notice_at), 3)
    said = f"{_text(event, drain)}: {event.detail}" if event.detail else _text(event, drain)
    return Line(seconds, event.occurred_at, event.type, said)


def _text(event: Event, drain: Drain) -> str:
    match event.type:
        case EventType.NOTICE:
            return _notice(event)
        case EventType.SIGNALLED:
            return f"The work was told to end{_by(event)}"
        case EventType.WORK_ENDED:
            return f"The work ended{_exit(event.exit_code)}"
        case EventType.DRAINED | EventType.OVERRUN:
            return f"{PLAIN[event.type]}{_spare(event, drain)}"
        case EventType.GAP:
            return f"{_events(event.lost_events)} lost on the node"
        case _:
            return PLAIN[event.type]


def _notice(event: Event) -> str:
    why = "" if event.cause is Cause.UNKNOWN else f" ({event.cause})"
    what = "Advisory notice" if event.notice_kind is NoticeKind.ADVISORY else "Notice"
    if event.deadline is None:
        return f"{what}{_by(event)}{why}"
    left = (event.deadline - event.occurred_at).total_seconds()
    return f"{what}{_by(event)}{why}, deadline in {left:.1f} s"


def _by(event: Event) -> str:
    return f" by {event.path}" if event.path else ""


def _exit(code: int | None) -> str:
    if code is None:
        return ""
    signal = signal_of(code)
    return f" with exit code {code}" if signal is None else f" by signal {signal}"


def _spare(event: Event, drain: Drain) -> str:
    spare = event.seconds_to_spare
    if spare is None and drain.deadline is not None:
        spare = (drain.deadline - event.occurred_at).total_seconds()
    return "" if spare is None else f", {_before(spare)}"


def _before(spare: float) -> str:
    return f"{spare:.1f} s before the deadline" if spare >= 0 else f"{-spare:.1f} s after the deadline"


def _events(lost: int | None) -> str:
    if lost is None:
        return "An unknown number of events was"
    return "1 event was" if lost == 1 else f"{lost:,} events were"


def _fault(drain: Drain, *, is_withdrawn: bool) -> tuple[Fault, str]:
    match drain.outcome:
        case Outcome.DRAINED:
            return _fault_of_drained(drain, is_withdrawn=is_withdrawn)
        case Outcome.OVERRUN:
            return _fault_of_overrun(drain)
        case Outcome.WITHDRAWN:
            return Fault.NOBODY, "Nobody's fault: the notice was withdrawn."
        case Outcome.NO_NOTICE:
            return _fault_without_notice(drain)
        case Outcome.OPEN:
            return Fault.UNKNOWN, "Not known: the node has not told how the drain ended."


def _fault_of_drained(drain: Drain, *, is_withdrawn: bool) -> tuple[Fault, str]:
    spare = drain.seconds_to_spare
    if spare is not None and spare < 0:
        return _unseen(drain, f"nothing was left when the node looked, {-spare:.1f} s after the deadline")
    left = "in time" if spare is None else f"with {spare:.1f} s to spare"
    if is_withdrawn:
        return Fault.NOBODY, f"Nobody's fault: the work ended {left}, and the notice was withdrawn."
    return Fault.NOBODY, f"Nobody's fault: {_taken(drain.cause)}, and the work ended {left}."


def _fault_of_overrun(drain: Drain) -> tuple[Fault, str]:
    return _late(drain, "it was still running at the edge of the deadline")


def _unseen(drain: Drain, what: str) -> tuple[Fault, str]:
    """What still runs at the edge of the deadline is told as an overrun: here nobody looked before."""
    after = drain.signalled_after_seconds
    if after is None or after > PROMPT_SECONDS:
        return _late(drain, what)
    return Fault.UNKNOWN, f"Not known: the work was told after {after:.2f} s, and {what}."


def _late(drain: Drain, what: str) -> tuple[Fault, str]:
    """The work is to blame only where it was told in time."""
    after = drain.signalled_after_seconds
    if after is None:
        return Fault.PLATFORM, f"The platform's fault: the work is not known to have been told, and {what}."
    if after > PROMPT_SECONDS:
        return (
            Fault.PLATFORM,
            f"The platform's fault: the work was told only after {after:.1f} s, and {what}.",
        )
    return Fault.WORKLOAD, f"The workload's fault: it was told after {after:.2f} s, and {what}."


def _fault_without_notice(drain: Drain) -> tuple[Fault, str]:
    match drain.cause:
        case Cause.RECLAIM:
            return Fault.PROVIDER, "The provider's fault: it took the node back without a notice."
        case Cause.OPERATOR:
            return Fault.PROVIDER, "The provider's fault: an operator ended the node without a notice."
        case Cause.DRILL:
            return Fault.NOBODY, "Nobody's fault: a drill ended the node without a notice."
        case Cause.DEFECT:
            return Fault.WORKLOAD, "The workload's fault: it ended the node."
        case Cause.UNKNOWN:
            return Fault.UNKNOWN, "Not known: the node was gone without a notice, and nothing tells why."


def _taken(cause: Cause) -> str:
    said = {
        Cause.RECLAIM: "the provider took the node back",
        Cause.DRILL: "a drill took the node back",
        Cause.OPERATOR: "an operator took the node back",
    }
    return said.get(cause, "the node was taken back, it is not known why")


def _gaps(
    drain: Drain, events: Sequence[Event], lines: Sequence[Line], sequences: frozenset[int]
) -> Iterator[str]:
    types = {one.type for one in events}
    for one in events:
        if one.type is EventType.GAP:
            yield f"{_events(one.lost_events)} lost on the node: its spool was full or damaged."
    yield from _missing(events, sequences)
    if drain.outcome is Outcome.NO_NOTICE:
        return
    if EventType.NOTICE not in types:
        yield "The event of the notice itself has not come."
    if drain.outcome in (Outcome.DRAINED, Outcome.OVERRUN) and EventType.SIGNALLED not in types:
        yield "When the work was told to end is not known."
    if drain.outcome is Outcome.OPEN and lines:
        yield f"Nothing was heard after {clock(lines[-1].seconds)}: how the drain ended is not known."
    yield from _clock_gap(drain, events)


def _missing(events: Sequence[Event], sequences: frozenset[int]) -> Iterator[str]:
    """Numbers that the node gave during the drain and whose events have not come, as ranges."""
    numbered = sorted({one.sequence for one in events if one.sequence > 0})
    if not numbered:
        return
    known = sorted(one for one in sequences.union(numbered) if numbered[0] <= one <= numbered[-1])
    for before, after in pairwise(known):
        first, last = before + 1, after - 1
        if first == last:
            yield f"Event {first} of the node has not come."
        elif first < last:
            yield f"Events {first} to {last} of the node have not come."


def _clock_gap(drain: Drain, events: Sequence[Event]) -> Iterator[str]:
    """Wall and steady clock tell the same, unless the wall clock was set during the drain."""
    assert drain.notice_at is not None, "a drain with a notice has its time"
    off = [
        (one.occurred_at - drain.notice_at).total_seconds() - one.seconds_since_notice
        for one in events
        if one.seconds_since_notice is not None
    ]
    worst = max(off, key=abs, default=0.0)
    if abs(worst) > CLOCK_SECONDS:
        yield f"The node's clock was set by about {worst:+.0f} s meanwhile; seconds since the notice hold."


def clock(seconds: float | None) -> str:
    """`T+1.40`."""
    return "the beginning" if seconds is None else f"T{seconds:+.2f}"
