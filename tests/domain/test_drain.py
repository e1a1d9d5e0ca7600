"""The rule of drains, by examples and by any order of notices that a provider may come up with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from domain.drain import REFUSED, REMEMBERED, Kind, Memory, Said, Verdict, decide, end

T0 = datetime(2030, 1, 1, 12, tzinfo=UTC)
WARNING = timedelta(seconds=120)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def said(number: int, issued: float = 0.0, warning: float = 120.0, kind: Kind = Kind.HARD) -> Said:
    return Said(UUID(int=number), kind, at(issued), at(issued + warning))


def withdraws(number: int, issued: float = 1.0) -> Said:
    return Said(UUID(int=10_000 + number), Kind.WITHDRAWAL, at(issued), None, UUID(int=number))


def hear(*all_said: Said, advisory: bool = False, now: datetime | None = None) -> list[Verdict]:
    memory, verdicts = Memory(), []
    for one in all_said:
        verdict, memory = decide(memory, one, drain_on_advisory=advisory, not_before=now)
        verdicts.append(verdict)
    return verdicts


@pytest.mark.parametrize(
    ("notices", "verdicts"),
    [
        ([said(1)] * 3, ["start", "repeated", "repeated"]),
        ([said(1), said(2, 0.004)], ["start", "join"]),
        ([said(1), said(2, 30)], ["start", "join"]),
        ([said(1), said(2, 30, 20)], ["start", "shorten"]),
        ([said(1), withdraws(1)], ["start", "withdraw"]),
        ([said(1), withdraws(1), withdraws(1)], ["start", "withdraw", "repeated"]),
        ([withdraws(1), said(1)], ["cancelled", "cancelled"]),
        ([said(1), withdraws(2)], ["start", "cancelled"]),
        ([said(1), withdraws(1), said(1)], ["start", "withdraw", "replayed"]),
        ([said(1), said(2, 30), withdraws(1)], ["start", "join", "cancelled"]),
        ([said(1), said(2, 30), withdraws(1), withdraws(2)], ["start", "join", "cancelled", "withdraw"]),
        ([said(1), said(2, 0.004), withdraws(2)], ["start", "join", "withdraw"]),
        ([said(1, kind=Kind.ADVISORY), said(2, 30)], ["note", "start"]),
        ([said(1), said(2, 30, 20, Kind.ADVISORY)], ["start", "note"]),
    ],
)
def test_what_notices_mean(notices: list[Said], verdicts: list[str]) -> None:
    assert hear(*notices) == verdicts


def test_an_advisory_drains_where_the_bundle_says_so_and_a_hard_notice_hardens_it() -> None:
    advisory = said(1, warning=600, kind=Kind.ADVISORY)
    assert hear(advisory, said(2, 30), said(3, 60), advisory=True) == ["start", "harden", "join"]


@pytest.mark.parametrize(("late", "verdict"), [(121, "start"), (123, "stale"), (3600, "stale")])
def test_a_notice_whose_time_is_over_is_stale(late: float, verdict: str) -> None:
    assert hear(said(1), now=at(late)) == [verdict]


def test_nothing_is_stale_while_nobody_knows_the_time() -> None:
    assert hear(said(1, -3600)) == ["start"]


def test_a_notice_of_a_drain_that_is_over_is_a_replay() -> None:
    _, memory = decide(Memory(), said(1), drain_on_advisory=False, not_before=None)
    over = end(memory)
    assert not over.draining
    assert decide(over, said(1), drain_on_advisory=False, not_before=None).verdict == "replayed"
    assert decide(over, said(2, 300), drain_on_advisory=False, not_before=None).verdict == "start"


def test_a_notice_from_after_the_deadline_begins_another_drain() -> None:
    """The node outlived the first, so there is work to tell of the second; no later one only joins then."""
    assert hear(said(1), said(2, 121)) == ["start", "start"]
    assert hear(said(1), said(2, 60), said(3, 121)) == ["start", "join", "start"]
    memory = Memory()
    for one in (said(1), said(2, 60), said(3, 121)):
        memory = decide(memory, one, drain_on_advisory=False, not_before=None).memory
    assert (memory.deadline, memory.latest) == (at(180), at(241))
    assert decide(memory, withdraws(2), drain_on_advisory=False, not_before=None).memory.deadline == at(180)


def test_an_advisory_that_lets_the_work_run_outlives_the_drain_beside_it() -> None:
    memory = Memory()
    for one in (said(1, warning=600, kind=Kind.ADVISORY), said(2, 30)):
        memory = decide(memory, one, drain_on_advisory=False, not_before=None).memory
    assert [one.kind for one in end(memory).standing] == [Kind.ADVISORY]


def test_what_was_forgotten_is_not_believed_again() -> None:
    memory = Memory()
    for number in range(REMEMBERED + 10):
        memory = decide(memory, said(number, number * 10), drain_on_advisory=False, not_before=None).memory
        memory = end(memory)
    assert len(memory.heard) == REMEMBERED
    again = [
        decide(memory, said(number, number * 10), drain_on_advisory=False, not_before=None)
        for number in range(20)
    ]
    assert {one.verdict for one in again} == {Verdict.REPLAYED}


notices = st.builds(
    said,
    st.integers(1, 6),
    st.sampled_from([0.0, 0.004, 0.9, 30.0, 200.0]),
    st.sampled_from([0.0, 5.0, 120.0, 119.998, 600.0]),
    st.sampled_from([Kind.HARD, Kind.ADVISORY]),
)


@given(st.lists(notices | st.builds(withdraws, st.integers(1, 6)), max_size=12), st.booleans())
@settings(max_examples=300, deadline=None)
def test_saying_everything_twice_at_once_changes_nothing(all_said: list[Said], advisory: bool) -> None:
    once = Memory()
    for one in all_said:
        once = decide(once, one, drain_on_advisory=advisory, not_before=None).memory
        verdict, again = decide(once, one, drain_on_advisory=advisory, not_before=None)
        assert again == once
        assert verdict in REFUSED | {Verdict.REPEATED, Verdict.CANCELLED}


class Drains(RuleBasedStateMachine):
    """Any notices in any order: one drain at a time, and a deadline that never moves away."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = Memory()
        self.starts = self.ends = 0
        self.passed = T0 - timedelta(days=1)

    @rule(one=notices | st.builds(withdraws, st.integers(1, 6)), advisory=st.booleans())
    def hear(self, one: Said, advisory: bool) -> None:
        before = self.memory
        verdict, self.memory = decide(before, one, drain_on_advisory=advisory, not_before=self.passed)
        is_outlived = before.deadline is not None and one.issued_at > before.deadline
        self.starts += verdict is Verdict.START
        self.ends += verdict is Verdict.WITHDRAW or (verdict is Verdict.START and before.draining)
        if verdict is Verdict.START:
            assert self.memory.draining
            assert not before.draining or is_outlived
        assert verdict is Verdict.START or before.draining or not self.memory.draining
        assert (verdict is Verdict.WITHDRAW) == (before.draining and not self.memory.draining)
        if verdict in REFUSED | {Verdict.REPEATED}:
            assert self.memory == before
        if verdict is not Verdict.START and before.deadline and self.memory.deadline:
            assert self.memory.deadline <= before.deadline
        if verdict is Verdict.SHORTEN:
            assert self.memory.deadline == one.deadline

    @rule(seconds=st.floats(0, 400))
    def time_passes(self, seconds: float) -> None:
        self.passed = max(self.passed, at(seconds))

    @precondition(lambda self: self.memory.draining)
    @rule()
    def the_node_lives_on(self) -> None:
        self.memory = end(self.memory)
        self.ends += 1

    @invariant()
    def one_drain_at_a_time(self) -> None:
        assert self.starts - self.ends == self.memory.draining

    @invariant()
    def a_drain_is_held_by_a_notice_that_stands(self) -> None:
        holding = [one for one in self.memory.standing if one.holds]
        assert bool(holding) == self.memory.draining
        if self.memory.deadline is not None:
            assert self.memory.deadline <= min(one.deadline for one in holding)

    @invariant()
    def what_is_withdrawn_stands_no_longer(self) -> None:
        standing = {number for one in self.memory.standing for number in one.ids}
        assert standing.isdisjoint(self.memory.withdrawn)


TestDrains = Drains.TestCase
TestDrains.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
