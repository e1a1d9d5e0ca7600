"""The story of a drain: second by second, with whose fault it was and what is missing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given

from domain.cause import Cause
from domain.drain_history import fold
from domain.drain_story import Fault, Story, clock, tell
from domain.lifecycle import Event, EventSource, EventType, NoticeKind
from tests.domain.drains import NODE, happened, honest
from tests.domain.test_drain_history import lives

T = EventType


def story(events: list[Event]) -> Story:
    return tell(fold(NODE, events).episodes[-1], (each.sequence for each in events))


def test_an_honest_drain_is_told_second_by_second() -> None:
    told = story(list(reversed(honest())))
    assert [(clock(line.seconds), line.text) for line in told.lines] == [
        ("T+0.00", "Notice by push (reclaim), deadline in 120.0 s"),
        ("T+0.12", "The work was told to end by slurm"),
        ("T+35.00", "A checkpoint was written: generation 7"),
        ("T+36.80", "The work ended with exit code 0"),
        ("T+36.90", "Nothing was left on the node, 83.1 s before the deadline"),
    ]
    assert told.fault is Fault.NOBODY
    assert told.sentence == (
        "Nobody's fault: the provider took the node back, and the work ended with 83.1 s to spare."
    )
    assert told.gaps == ()


def test_a_node_that_drained_and_was_let_live_is_not_called_taken() -> None:
    withdrawn = happened(T.WITHDRAWN, 60.0, 6, seconds_since_notice=60.0)
    told = story([*honest(), withdrawn])
    assert (told.fault, told.sentence) == (
        Fault.NOBODY,
        "Nobody's fault: the work ended with 83.1 s to spare, and the notice was withdrawn.",
    )


def test_a_checkpoint_that_could_not_be_written_is_not_called_one() -> None:
    failed = happened(T.CHECKPOINT_FAILED, 20.0, 6, detail="no answer", seconds_since_notice=20.0)
    assert "A checkpoint could not be written: no answer" in [
        one.text for one in story([*honest(), failed]).lines
    ]


def test_an_advisory_notice_that_began_a_drain_is_called_one() -> None:
    begun = honest()[0]._replace(notice_kind=NoticeKind.ADVISORY)
    assert story([begun, *honest()[1:]]).lines[0].text.startswith("Advisory notice by push (reclaim)")


@pytest.mark.parametrize(
    ("signalled", "fault", "said"),
    [
        (0.3, Fault.WORKLOAD, "The workload's fault: it was told after 0.30 s"),
        (40.0, Fault.PLATFORM, "The platform's fault: the work was told only after 40.0 s"),
        (None, Fault.PLATFORM, "The platform's fault: the work is not known to have been told"),
    ],
)
def test_an_overrun_is_the_fault_of_who_was_late(signalled: float | None, fault: Fault, said: str) -> None:
    events = [honest()[0], happened(T.OVERRUN, 118, 9, seconds_to_spare=2.0, seconds_since_notice=118.0)]
    if signalled is not None:
        events.append(happened(T.SIGNALLED, signalled, 2, seconds_since_notice=signalled))
    told = story(events)
    assert told.fault is fault
    assert told.sentence.startswith(said)
    assert ("When the work was told to end is not known." in told.gaps) == (signalled is None)


@pytest.mark.parametrize(("signalled", "fault"), [(0.12, Fault.UNKNOWN), (40.0, Fault.PLATFORM)])
def test_work_whose_end_nobody_saw_in_time_is_not_to_blame(signalled: float, fault: Fault) -> None:
    seen = happened(T.DRAINED, 121.5, 3, seconds_to_spare=-1.5)
    told = story([honest()[0], happened(T.SIGNALLED, signalled, 2, seconds_since_notice=signalled), seen])
    assert told.fault is fault
    assert told.sentence.endswith("nothing was left when the node looked, 1.5 s after the deadline.")


@pytest.mark.parametrize(
    ("cause", "fault"),
    [
        (Cause.RECLAIM, Fault.PROVIDER),
        (Cause.OPERATOR, Fault.PROVIDER),
        (Cause.DRILL, Fault.NOBODY),
        (Cause.DEFECT, Fault.WORKLOAD),
        (Cause.UNKNOWN, Fault.UNKNOWN),
    ],
)
def test_an_end_without_notice_is_the_fault_that_its_cause_says(cause: Cause, fault: Fault) -> None:
    told = story([happened(T.NO_NOTICE, 0, of=None, cause=cause, source=EventSource.CONTROLLER)])
    assert told.fault is fault
    assert told.lines[0].seconds is None


def test_what_is_missing_is_named() -> None:
    some = [*honest()[:2], happened(T.GAP, 5, 5, of=None, lost_events=1), *honest(first=4)[4:]]
    assert story(some).gaps == (
        "1 event was lost on the node: its spool was full or damaged.",
        "Events 3 to 4 of the node have not come.",
        "Events 6 to 7 of the node have not come.",
    )
    assert story(honest()[1:]).gaps == ("The event of the notice itself has not come.",)
    assert story(honest()[:2]).gaps == ("Nothing was heard after T+0.12: how the drain ended is not known.",)


def test_a_number_that_the_node_gave_to_something_else_is_not_missing() -> None:
    other = happened(T.READY, 600, 3, of=None)
    events = [each for each in honest() if each.sequence != 3]
    assert story([*events, other]).gaps == ()


def test_a_clock_that_was_set_is_named_and_the_seconds_hold() -> None:
    events = honest()
    events[-1] = happened(T.DRAINED, 3636.9, 5, seconds_since_notice=36.9, seconds_to_spare=83.1)
    told = story(events)
    assert told.lines[-1].seconds == 36.9
    assert told.gaps == (
        "The node's clock was set by about +3600 s meanwhile; seconds since the notice hold.",
    )


@given(lives)
def test_any_life_can_be_told(events: list[Event]) -> None:
    for episode in fold(NODE, events).episodes:
        told = tell(episode, (each.sequence for each in events))
        assert len(told.lines) == len(episode.events)
        seconds = [line.seconds for line in told.lines if line.seconds is not None]
        assert seconds == sorted(seconds)
        assert re.fullmatch(r"(Nobody's|The \w+'s) fault: .+\.|Not known: .+\.", told.sentence)
        assert all(gap.endswith(".") for gap in told.gaps)
