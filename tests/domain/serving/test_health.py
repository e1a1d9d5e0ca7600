"""The rule of health: failures in a row degrade, answers in a row heal, and a report alone does neither."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from domain.serving.health import (
    MAX_PROBLEM,
    EndpointHealth,
    Health,
    HealthSource,
    HealthTerms,
    Probe,
    is_held_off,
    probed,
)

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
TERMS = HealthTerms(degrade_after_failures=3, heal_after_successes=2, report_hold_seconds=60)


def after(*answers: str | None, reported: int | None = None, terms: HealthTerms = TERMS) -> EndpointHealth:
    """What is known after probes ten seconds apart; `reported` is the second of a router's report."""
    known = EndpointHealth()
    at = None if reported is None else NOW + timedelta(seconds=reported)
    for number, problem in enumerate(answers):
        probe = Probe(NOW + timedelta(seconds=10 * number), problem)
        known = probed(
            known, probe, reported_at=at if at is not None and at <= probe.began_at else None, terms=terms
        )
    return known


@pytest.mark.parametrize(
    ("answers", "health"),
    [
        ((), Health.UNKNOWN),
        ((None,), Health.UNKNOWN),
        ((None, None), Health.HEALTHY),
        (("down",), Health.UNKNOWN),
        (("down", "down"), Health.UNKNOWN),
        (("down", "down", "down"), Health.DEGRADED),
        ((None, None, "down", "down"), Health.HEALTHY),
        ((None, None, "down", "down", None, "down", "down"), Health.HEALTHY),
        ((None, None, "down", "down", "down"), Health.DEGRADED),
        (("down", "down", "down", None), Health.DEGRADED),
        (("down", "down", "down", None, "down", None), Health.DEGRADED),
        (("down", "down", "down", None, None), Health.HEALTHY),
    ],
)
def test_so_many_in_a_row_change_it(answers: tuple[str | None, ...], health: Health) -> None:
    assert after(*answers).health is health


def test_a_degraded_pool_says_what_is_wrong_now_and_since_when() -> None:
    known = after(None, None, "refused", "refused", "refused", "HTTP 500")
    assert (known.problem, known.source) == ("HTTP 500", HealthSource.PROBE)
    assert known.changed_at == NOW + timedelta(seconds=40)
    healed = after(None, None, "refused", "refused", "refused", None, None)
    assert (healed.problem, healed.changed_at) == (None, NOW + timedelta(seconds=60))


def test_a_report_lets_the_first_failure_count() -> None:
    known = after(None, None, "refused", reported=15)
    assert (known.health, known.source, known.problem) == (Health.DEGRADED, HealthSource.ROUTER, "refused")


def test_a_report_is_nothing_while_the_endpoint_answers() -> None:
    assert after(None, None, None, None, reported=15).health is Health.HEALTHY


def test_an_answer_after_the_report_takes_its_weight_away() -> None:
    assert after(None, None, None, "blip", reported=15).health is Health.HEALTHY


def test_an_old_report_has_no_weight() -> None:
    assert after("down", "down", reported=-61).health is Health.UNKNOWN


def test_a_report_keeps_its_tenant_away_for_the_hold_and_no_longer() -> None:
    assert is_held_off(NOW, NOW, TERMS)
    assert is_held_off(NOW, NOW + timedelta(seconds=59), TERMS)
    assert not is_held_off(NOW, NOW + timedelta(seconds=60), TERMS)


def test_a_problem_is_cut() -> None:
    problem = after(*["x" * 5_000] * 3).problem
    assert problem is not None
    assert len(problem) == MAX_PROBLEM


@given(st.integers(0, 100), st.booleans(), st.booleans())
def test_a_probe_that_began_before_the_last_one_changes_nothing(
    seconds: int, answered: bool, reported: bool
) -> None:
    known = after(None, None, "down")
    late = Probe(NOW + timedelta(seconds=20) - timedelta(seconds=seconds), None if answered else "down")
    assert probed(known, late, reported_at=NOW if reported else None, terms=TERMS) == known


class Endpoint(RuleBasedStateMachine):
    """An endpoint in any mood under routers that report as they like; a model counts what was probed."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.known = EndpointHealth()
        self.reported_at: datetime | None = None
        self.failed_in_a_row = 0
        self.answered_in_a_row = 0
        self.failed_ever = False

    @initialize(failures=st.integers(1, 4), successes=st.integers(1, 4), hold=st.integers(0, 90))
    def terms_are_set(self, failures: int, successes: int, hold: int) -> None:
        self.terms = HealthTerms(
            degrade_after_failures=failures, heal_after_successes=successes, report_hold_seconds=hold
        )

    @rule(seconds=st.integers(1, 45))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule()
    def a_router_reports_it_down(self) -> None:
        self.reported_at = self.now

    @rule(problem=st.one_of(st.none(), st.sampled_from(["refused", "HTTP 500"])))
    def a_probe_ends(self, problem: str | None) -> None:
        self.now += timedelta(seconds=1)
        before = self.known
        self.known = probed(before, Probe(self.now, problem), reported_at=self.reported_at, terms=self.terms)
        self.failed_in_a_row = 0 if problem is None else self.failed_in_a_row + 1
        self.answered_in_a_row = self.answered_in_a_row + 1 if problem is None else 0
        self.failed_ever |= problem is not None
        if self.known.health is not before.health:
            assert self.known.changed_at == self.now
        if self.known.health is Health.DEGRADED is not before.health:
            assert problem is not None, "an answer degraded it"

    @invariant()
    def nothing_but_a_failed_probe_degrades(self) -> None:
        if not self.failed_ever:
            assert self.known.health is not Health.DEGRADED

    @invariant()
    def enough_in_a_row_decide(self) -> None:
        if not hasattr(self, "terms"):
            return
        if self.failed_in_a_row >= self.terms.degrade_after_failures:
            assert self.known.health is Health.DEGRADED
        if self.answered_in_a_row >= self.terms.heal_after_successes:
            assert self.known.health is Health.HEALTHY

    @invariant()
    def a_problem_is_said_exactly_while_it_is_degraded(self) -> None:
        assert (self.known.problem is not None) is (self.known.health is Health.DEGRADED)
        assert (self.known.failures, self.known.successes) == (self.failed_in_a_row, self.answered_in_a_row)


TestEndpoint = Endpoint.TestCase
TestEndpoint.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
