"""The circuit: opens after failures in a row, tries with one call at a time, and closes on its answer."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from domain.circuit import (
    FAILURE_TEXT,
    WELL,
    Circuit,
    CircuitState,
    CircuitTerms,
    Outcome,
    after_answer,
    after_failure,
    let_pass,
    open_seconds,
    pause_seconds,
)

START = datetime(2030, 1, 1, tzinfo=UTC)
TERMS = CircuitTerms()
PROBLEM = FAILURE_TEXT[Outcome.TIMEOUT]

times = st.integers(0, 10_000).map(lambda seconds: START + timedelta(seconds=seconds))
states = st.sampled_from(CircuitState)
circuits = st.builds(
    Circuit,
    state=states,
    failures=st.integers(0, 50),
    trips=st.integers(0, 50),
    problem=st.none() | st.just(PROBLEM),
    since=st.none() | times,
    until=times,
)


def failed(circuit: Circuit, count: int, now: datetime = START) -> Circuit:
    """After so many calls that each passed and failed at once."""
    for _ in range(count):
        passed = let_pass(circuit, now, TERMS)
        assert passed is not None
        circuit = after_failure(passed, passed, PROBLEM, now, TERMS)
    return circuit


def test_it_opens_at_the_fifth_failure_in_a_row_and_says_why() -> None:
    almost = failed(WELL, 4)
    assert (almost.state, almost.failures, almost.problem) == (CircuitState.CLOSED, 4, PROBLEM)
    opened = failed(almost, 1)
    assert opened == Circuit(CircuitState.OPEN, 5, 1, PROBLEM, START, START + timedelta(seconds=15))
    assert let_pass(opened, START + timedelta(seconds=14), TERMS) is None


def test_a_success_in_between_starts_the_count_anew() -> None:
    circuit = after_answer(failed(WELL, 4), WELL, START)
    assert circuit.is_well
    assert failed(circuit, 4).state is CircuitState.CLOSED


def test_each_failed_probe_doubles_the_time_up_to_its_bound_and_since_stays() -> None:
    circuit, opened = failed(WELL, 5), []
    for _ in range(7):
        assert circuit.until is not None
        now = circuit.until
        circuit = failed(circuit, 1, now)
        assert circuit.until is not None
        opened.append((circuit.until - now).total_seconds())
    assert opened == [30, 60, 120, 240, 300, 300, 300]
    assert (circuit.since, circuit.failures, circuit.trips) == (START, 12, 8)


def test_a_successful_probe_closes_it_and_the_next_trip_is_a_first_one() -> None:
    opened = failed(WELL, 5)
    assert opened.until is not None
    probe = let_pass(opened, opened.until, TERMS)
    assert probe is not None
    closed = after_answer(probe, probe, opened.until)
    assert closed == Circuit(since=opened.until)
    assert failed(closed, 5, opened.until).until == opened.until + timedelta(seconds=15)


def test_a_probe_that_never_reports_frees_itself_and_its_late_word_is_not_heard() -> None:
    opened = failed(WELL, 5)
    assert opened.until is not None
    lost = let_pass(opened, opened.until, TERMS)
    assert lost is not None
    assert lost.until == opened.until + timedelta(seconds=TERMS.probe_seconds)
    assert let_pass(lost, lost.until - timedelta(seconds=1), TERMS) is None
    second = let_pass(lost, lost.until, TERMS)
    assert second is not None
    assert after_answer(second, lost, lost.until) == second
    assert after_failure(second, lost, PROBLEM, lost.until, TERMS) == second
    assert after_answer(second, second, lost.until).state is CircuitState.CLOSED


@given(circuits, times)
def test_calls_that_passed_before_it_opened_decide_nothing_any_more(circuit: Circuit, now: datetime) -> None:
    if circuit.state is not CircuitState.CLOSED:
        assert after_answer(circuit, WELL, now) == circuit
        assert after_failure(circuit, WELL, PROBLEM, now, TERMS) == circuit


@given(circuits, times)
def test_of_callers_at_one_time_only_a_closed_circuit_lets_two_pass(circuit: Circuit, now: datetime) -> None:
    first = let_pass(circuit, now, TERMS)
    if first is None:
        assert circuit.state is not CircuitState.CLOSED
        assert circuit.until is not None
        assert now < circuit.until
    elif circuit.state is CircuitState.CLOSED:
        assert let_pass(first, now, TERMS) == first == circuit
    else:
        assert first == replace(
            circuit, state=CircuitState.HALF_OPEN, until=now + timedelta(seconds=TERMS.probe_seconds)
        )
        assert let_pass(first, now, TERMS) is None


@given(circuits, times)
def test_an_answer_never_makes_it_worse_and_a_failure_never_better(circuit: Circuit, now: datetime) -> None:
    passed = let_pass(circuit, now, TERMS)
    if passed is None:
        return
    answered = after_answer(passed, passed, now)
    assert answered.is_well
    assert answered.problem is None
    broken = after_failure(passed, passed, PROBLEM, now, TERMS)
    assert broken.failures == circuit.failures + 1
    assert broken.trips in (circuit.trips, circuit.trips + 1)
    assert (broken.state is CircuitState.OPEN) == (broken.trips == circuit.trips + 1)
    if broken.state is CircuitState.OPEN:
        assert broken.until is not None
        assert 15 <= (broken.until - now).total_seconds() <= 300


@given(st.integers(1, 10_000))
def test_the_time_open_grows_and_is_bounded(trips: int) -> None:
    assert 15 <= open_seconds(trips, TERMS) <= open_seconds(trips + 1, TERMS) <= 300


@pytest.mark.parametrize(
    ("asked", "before", "seconds"),
    [(None, 0, 1), (None, 1, 2), (None, 4, 16), (None, 40, 3600), (0, 2, 4), (7.5, 9, 7.5), (10**9, 0, 3600)],
)
def test_a_pause_is_what_is_asked_or_grows_by_itself(
    asked: float | None, before: int, seconds: float
) -> None:
    assert pause_seconds(asked, before, TERMS) == seconds


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        (
            {"open_seconds": 20, "most_open_seconds": 10},
            "must be at least open_seconds, 20",
        ),
        (
            {"pause_seconds": 9, "most_pause_seconds": 8},
            "must be at least pause_seconds, 9",
        ),
        ({"open_after_failures": 0}, "greater than or equal to 1"),
    ],
)
def test_terms_that_contradict_themselves_are_refused(terms: dict[str, float], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        CircuitTerms.model_validate(terms)
