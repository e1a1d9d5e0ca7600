"""What the events of an instance come to: the same for any order and any repetition."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.cause import Cause
from domain.drain_history import Episode, fold, is_announced
from domain.lifecycle import Drain, Event, EventSource, EventType, NoticeKind, Outcome
from tests.domain.drains import AT, NODE, happened, honest, notice
from wire import lifecycle

T = EventType


def one(events: list[Event]) -> Drain:
    (episode,) = fold(NODE, events).episodes
    return episode.drain


def lost(source: EventSource = EventSource.CONTROLLER) -> Event:
    return happened(T.NO_NOTICE, 300, of=None, source=source, cause=Cause.RECLAIM)


def test_the_words_are_those_of_the_letters() -> None:
    assert [kind.value for kind in EventType] == [kind.value for kind in lifecycle.EventType]


@pytest.mark.parametrize(
    ("kind", "seconds", "drains"),
    [
        (NoticeKind.HARD, None, 1),
        (NoticeKind.HARD, 0.0, 1),
        (NoticeKind.ADVISORY, None, 0),
        (NoticeKind.ADVISORY, 0.0, 1),
        (None, None, 0),
        (None, 0.0, 1),
    ],
)
def test_only_an_advisory_notice_may_pass_without_a_drain(
    kind: NoticeKind | None, seconds: float | None, drains: int
) -> None:
    said = happened(T.NOTICE, 0, 1, notice_kind=kind, seconds_since_notice=seconds)
    assert len(fold(NODE, [said]).episodes) == drains


def test_an_honest_drain() -> None:
    drain = one(honest())
    assert drain == Drain(
        drain_id=notice(),
        outcome=Outcome.DRAINED,
        cause=Cause.RECLAIM,
        notice_id=notice(),
        notice_at=AT,
        deadline=AT + timedelta(seconds=120),
        signalled_at=AT + timedelta(seconds=0.12),
        signalled_after_seconds=0.12,
        ended_at=AT + timedelta(seconds=36.9),
        seconds_to_spare=83.1,
        path="slurm",
    )


def test_an_overrun_stays_one_when_the_work_was_ended_by_force() -> None:
    forced = happened(T.DRAINED, 119.5, 9, seconds_to_spare=0.5)
    drain = one([*honest()[:2], happened(T.OVERRUN, 118, 8, seconds_to_spare=2.0), forced])
    assert (drain.outcome, drain.seconds_to_spare) == (Outcome.OVERRUN, 2.0)
    assert drain.ended_at == AT + timedelta(seconds=119.5)


def test_a_notice_that_nothing_followed_is_open() -> None:
    drain = one(honest()[:1])
    assert (drain.outcome, drain.ended_at, drain.signalled_at) == (Outcome.OPEN, None, None)


def test_a_drain_is_known_without_the_event_of_its_notice() -> None:
    drain = one(honest()[3:])
    assert (drain.outcome, drain.notice_at, drain.cause) == (Outcome.DRAINED, AT, Cause.RECLAIM)


def test_a_withdrawn_notice_leaves_nothing_to_spare() -> None:
    drain = one([*honest()[:2], happened(T.WITHDRAWN, 20, 7)])
    assert (drain.outcome, drain.seconds_to_spare) == (Outcome.WITHDRAWN, None)


def test_a_later_notice_shortens_the_deadline_of_the_same_drain() -> None:
    sooner = happened(T.NOTICE, 10, 8, of=2, deadline=AT + timedelta(seconds=60), cause=Cause.DRILL)
    drain = one([*honest(), sooner])
    assert (drain.drain_id, drain.deadline) == (notice(1), AT + timedelta(seconds=60))
    assert drain.cause is Cause.RECLAIM


def test_an_advisory_notice_that_is_let_pass_is_no_drain() -> None:
    """Also when a hard one follows while it stands: that drain has its own beginning and deadline."""
    advisory = happened(T.NOTICE, -30, 1, of=2, deadline=AT + timedelta(seconds=60), detail="advisory")
    assert fold(NODE, [advisory]).episodes == ()
    assert one([advisory, *honest(first=2)]).deadline == AT + timedelta(seconds=120)
    assert one([advisory, lost()]).outcome is Outcome.NO_NOTICE


def test_a_notice_after_a_drain_begins_another() -> None:
    drains = [each.drain for each in fold(NODE, [*honest(2, starts=5000), *honest(1)]).episodes]
    assert [drain.drain_id for drain in drains] == [notice(1), notice(2)]


@pytest.mark.parametrize(("outcome_of", "ended"), [(T.DRAINED, 1), (T.OVERRUN, 1), (T.WITHDRAWN, 2)])
def test_the_end_of_a_node_that_was_told_is_no_end_without_notice(outcome_of: EventType, ended: int) -> None:
    told = [*honest()[:1], happened(outcome_of, 30, 5)]
    found = fold(NODE, [*told, lost()]).episodes
    assert len(found) == ended
    if ended == 2:
        assert (found[1].drain.outcome, found[1].drain.cause) == (Outcome.NO_NOTICE, Cause.RECLAIM)


@pytest.mark.parametrize(("ready_at", "drains"), [(60, 1), (119, 1), (121, 2)])
def test_a_node_that_outlived_its_drain_may_end_without_notice_later(ready_at: float, drains: int) -> None:
    told = [*honest(), happened(T.READY, ready_at, 9, of=None)]
    assert is_announced(NODE, told) is (drains == 1)
    assert is_announced(NODE, [*told, lost()]) is (drains == 1)
    found = fold(NODE, [*told, lost()]).episodes
    assert len(found) == drains
    assert found[0].drain.outcome is Outcome.DRAINED
    assert drains == 1 or found[1].drain.outcome is Outcome.NO_NOTICE
    assert len(fold(NODE, [*told, *honest(2, starts=200, first=20), lost()]).episodes) == 2


def test_a_notice_that_comes_late_takes_the_place_of_the_end_without_one() -> None:
    assert one([lost()]).outcome is Outcome.NO_NOTICE
    assert one([lost(), *honest()]).outcome is Outcome.DRAINED


def test_a_node_does_not_say_why_it_ended_without_notice() -> None:
    said = lost(source=EventSource.NODE)
    assert one([said]).cause is Cause.UNKNOWN
    assert fold(NODE, [said]).causes[said.event_id] is Cause.UNKNOWN


def test_a_refused_notice_begins_no_drain() -> None:
    assert fold(NODE, [happened(T.REFUSED, 0, 1), happened(T.READY, 1, 2)]).episodes == ()


def test_each_event_has_its_cause() -> None:
    crashed = happened(T.WORK_ENDED, -60, 1, of=None, exit_code=1)
    shot = happened(T.WORK_ENDED, -50, 2, of=None, exit_code=-9)
    events = [crashed, shot, *honest(first=3), happened(T.READY, -90, of=None)]
    history = fold(NODE, events)
    assert history.causes[crashed.event_id] is Cause.DEFECT
    assert history.causes[shot.event_id] is Cause.UNKNOWN
    assert {history.causes[each.event_id] for each in events[2:7]} == {Cause.RECLAIM}
    assert history.causes[events[-1].event_id] is Cause.UNKNOWN
    assert history.episodes[0].drain.cause is Cause.RECLAIM


def test_work_that_ends_during_a_drain_belongs_to_it_though_it_names_no_notice() -> None:
    failed = happened(T.WORK_ENDED, 30, 9, of=None, exit_code=1)
    history = fold(NODE, [*honest(), failed])
    assert history.causes[failed.event_id] is Cause.RECLAIM
    assert failed in history.episodes[0].events


times = st.floats(-300, 300).map(lambda seconds: round(seconds, 2))
some_events = st.builds(
    lambda kind, seconds, sequence, of, fields: happened(kind, seconds, sequence, of=of, **fields),
    st.sampled_from(EventType),
    times,
    st.integers(0, 20),
    st.none() | st.integers(1, 3),
    st.fixed_dictionaries(
        {"source": st.sampled_from(EventSource), "cause": st.sampled_from(Cause)},
        optional={
            "deadline": times.map(lambda seconds: AT + timedelta(seconds=seconds)),
            "exit_code": st.integers(-255, 255),
            "seconds_since_notice": st.floats(0, 300),
            "seconds_to_spare": st.floats(-300, 300),
        },
    ),
)
lives = st.lists(some_events, max_size=14, unique_by=lambda event: event.event_id)


@given(lives, st.randoms(use_true_random=False))
def test_order_and_repetition_change_nothing(events: list[Event], rng: random.Random) -> None:
    again = [*events, *events]
    rng.shuffle(again)
    assert fold(NODE, again) == fold(NODE, events)


@given(lives)
def test_what_holds_for_any_life(events: list[Event]) -> None:
    history = fold(NODE, events)
    assert set(history.causes) == {each.event_id for each in events}
    drains = [episode.drain for episode in history.episodes]
    assert len({drain.drain_id for drain in drains}) == len(drains)
    for drain in drains:
        assert (drain.outcome is Outcome.OPEN) == (drain.ended_at is None)
        assert (drain.outcome is Outcome.NO_NOTICE) == (drain.notice_id is None)
        assert (drain.notice_id is None) == (drain.notice_at is None)
    told = [each.event_id for episode in history.episodes for each in owned(episode)]
    assert len(set(told)) == len(told)


def owned(episode: Episode) -> list[Event]:
    """The events that name a notice of the drain."""
    return [each for each in episode.events if each.notice_id is not None]
