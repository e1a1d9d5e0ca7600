"""Many callers and a region in any mood: never two probes at once, and it always finds back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from domain.circuit import WELL, Circuit, CircuitState, CircuitTerms, after_answer, after_failure, let_pass

START = datetime(2030, 1, 1, tzinfo=UTC)
TERMS = CircuitTerms(open_after_failures=3, open_seconds=4, most_open_seconds=16, probe_seconds=6)


class Callers(RuleBasedStateMachine):
    """Calls pass, take their time and end in any order, or never; a model counts what must follow."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.circuit = WELL
        self.calls: list[tuple[Circuit, datetime]] = []
        self.in_a_row = 0

    @rule()
    def a_call_asks(self) -> None:
        passed = let_pass(self.circuit, self.now, TERMS)
        if passed is None:
            assert self.circuit.state is not CircuitState.CLOSED
            return
        if self.circuit.state is CircuitState.OPEN:
            assert self.circuit.until is not None
            assert self.now >= self.circuit.until
        self.circuit = passed
        self.calls.append((passed, self.now))

    @precondition(lambda self: self.calls)
    @rule(which=st.integers(0, 50), answered=st.booleans())
    def a_call_ends(self, which: int, answered: bool) -> None:
        passed, _ = self.calls.pop(which % len(self.calls))
        before = self.circuit
        if answered:
            self.circuit = after_answer(before, passed, self.now)
        else:
            self.circuit = after_failure(before, passed, "no answer", self.now, TERMS)
        if before.state is CircuitState.CLOSED:
            self.in_a_row = 0 if answered else self.in_a_row + 1
            opens = self.in_a_row >= TERMS.open_after_failures
            assert self.circuit.state is (CircuitState.OPEN if opens else CircuitState.CLOSED)
        elif before.state is CircuitState.OPEN:
            assert self.circuit == before
        elif self.circuit != before:
            assert passed.until == before.until
            assert self.circuit.state is (CircuitState.CLOSED if answered else CircuitState.OPEN)
        if self.circuit.state is not CircuitState.CLOSED:
            self.in_a_row = 0

    @precondition(lambda self: self.calls)
    @rule(which=st.integers(0, 50))
    def a_process_dies(self, which: int) -> None:
        self.calls.pop(which % len(self.calls))

    @rule(seconds=st.sampled_from((1, 3, 8, 20)))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @invariant()
    def at_most_one_probe_is_in_time(self) -> None:
        probes = [
            passed
            for passed, _ in self.calls
            if passed.state is CircuitState.HALF_OPEN and passed.until is not None and self.now < passed.until
        ]
        assert len(probes) <= 1

    @invariant()
    def the_words_fit_together(self) -> None:
        circuit = self.circuit
        if circuit.state is CircuitState.CLOSED:
            assert (circuit.trips, circuit.until) == (0, None)
            assert (circuit.problem is None) == (circuit.failures == 0)
        else:
            assert circuit.trips >= 1
            assert circuit.failures >= TERMS.open_after_failures
            assert circuit.since is not None
            assert circuit.until is not None
            longest = max(TERMS.most_open_seconds, TERMS.probe_seconds)
            assert circuit.until <= self.now + timedelta(seconds=longest)

    def teardown(self) -> None:
        """Whatever happened: once the region answers, the first call that may go closes it."""
        for _ in range(2):
            passed = let_pass(self.circuit, self.now, TERMS)
            if passed is not None:
                self.circuit = after_answer(passed, passed, self.now)
            self.now += timedelta(seconds=max(TERMS.most_open_seconds, TERMS.probe_seconds))
        assert self.circuit.is_well


TestCallers = Callers.TestCase
TestCallers.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
