"""Waiting for tokens: bounded, jittered, refusing when no call may go; and telling how calls ended."""

from __future__ import annotations

import random
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from threading import Barrier
from typing import Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from activities.openstack.budget import (
    PROBE_RETRY_SECONDS,
    SHORTEST_SLEEP_SECONDS,
    SPREAD_SECONDS,
    StoreTokenBudget,
)
from activities.openstack.metrics import ProviderMetrics
from activities.ports import ProviderErrorKind
from domain.circuit import FAILURE_TEXT, WELL, Circuit, CircuitState, Outcome
from store.budget import BudgetStore, Refusal, Reported, Taken
from tests.activities.openstack.hands import REGION, caught, store_budget


def waits(seconds: float, refusal: Refusal = Refusal.NO_TOKEN, **known: Any) -> Taken:
    return Taken(False, seconds, refusal, **known)


class ScriptedStore(BudgetStore):
    """A bucket that answers from a script, then always lets wait. It keeps what is reported."""

    def __init__(self, answers: Iterable[Taken | Exception]) -> None:
        self._answers = iter(answers)
        self.reports: list[tuple[str, Circuit, object]] = []
        self.broken = False

    def try_take(self, region: str) -> Taken:
        answer = next(self._answers, waits(3.0))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def report_failure(self, region: str, passed: Circuit, problem: str) -> Reported:
        return self._kept("failure", passed, problem)

    def report_answer(self, region: str, passed: Circuit, *, pause_seconds: float = 0) -> Reported:
        return self._kept("answer", passed, pause_seconds)

    def _kept(self, kind: str, passed: Circuit, said: object) -> Reported:
        if self.broken:
            raise OperationalError("update", {}, Exception("the database is away"))
        self.reports.append((kind, passed, said))
        return Reported(passed, passed, pause_began=kind == "answer")


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def waiting(
    answers: Iterable[Taken | Exception] | ScriptedStore, max_wait_seconds: float = 10.0
) -> tuple[StoreTokenBudget, Clock, CollectorRegistry]:
    clock, registry = Clock(), CollectorRegistry()
    budget = StoreTokenBudget(
        answers if isinstance(answers, ScriptedStore) else ScriptedStore(answers),
        ProviderMetrics(registry),
        max_wait_seconds=max_wait_seconds,
        rng=random.Random(1),
        sleep=clock.sleep,
        monotonic=lambda: clock.now,
    )
    return budget, clock, registry


def test_a_token_that_is_there_is_taken_without_sleep() -> None:
    budget, clock, registry = waiting([Taken(True, 0.0)])
    budget.take(REGION)
    assert clock.slept == []
    assert registry.get_sample_value("sco_provider_budget_wait_seconds_count", {"region": REGION}) == 1


def test_it_sleeps_what_the_bucket_says_and_up_to_as_much_again() -> None:
    budget, clock, registry = waiting([waits(2.0), waits(1.0), Taken(True, 0.0)])
    budget.take(REGION)
    first, second = clock.slept
    assert 2.0 <= first < 4.0
    assert 1.0 <= second < 2.0
    assert first != 2 * second
    waited = registry.get_sample_value("sco_provider_budget_wait_seconds_sum", {"region": REGION})
    assert waited == pytest.approx(first + second)


def test_it_never_spins() -> None:
    budget, clock, _ = waiting([waits(0.0), Taken(True, 0.0)])
    budget.take(REGION)
    assert clock.slept == [SHORTEST_SLEEP_SECONDS]


def test_it_gives_up_after_the_most_it_may_wait_with_one_last_try() -> None:
    budget, clock, _ = waiting([], max_wait_seconds=10.0)
    error = caught(budget.take, REGION)
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.THROTTLED, False)
    assert error.retry_after_seconds == 3.0
    assert clock.now == pytest.approx(10.0)
    assert "within 10 s" in str(error)
    late, _, _ = waiting([waits(20.0), Taken(True, 0.0)], max_wait_seconds=10.0)
    late.take(REGION)


def test_a_bucket_that_cannot_be_read_refuses_and_shows_no_address() -> None:
    failure = OperationalError("select", {}, Exception("postgresql://sco:hunter2@db/sco"))
    error = caught(waiting([failure])[0].take, REGION)
    assert error.kind is ProviderErrorKind.UNAVAILABLE
    assert "OperationalError" in str(error)
    assert "hunter2" not in str(error)


def test_a_region_without_a_bucket_is_refused_by_name(budgets: BudgetStore) -> None:
    error = caught(store_budget(budgets).take, "eu-moon")
    assert error.kind is ProviderErrorKind.UNAVAILABLE
    assert "no provider budget is set for region 'eu-moon'" in str(error)


def test_waiters_of_one_real_bucket_all_get_a_token(budgets: BudgetStore) -> None:
    budgets.set_budget(REGION, burst=2, refill_per_second=Decimal(50))
    budget = store_budget(budgets)
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(budget.take, REGION) for _ in range(24)]:
            done.result(60)
    budgets.set_budget(REGION, burst=2, refill_per_second=Decimal("0.001"))
    for _ in range(2):
        budgets.try_take(REGION)
    assert budgets.try_take(REGION).taken is False


SINCE, UNTIL = datetime(2030, 1, 1, 12, 0, tzinfo=UTC), datetime(2030, 1, 1, 12, 4, tzinfo=UTC)
OPEN = Circuit(CircuitState.OPEN, 7, 3, FAILURE_TEXT[Outcome.TIMEOUT], SINCE, UNTIL)
HALF_OPEN = Circuit(CircuitState.HALF_OPEN, 7, 3, FAILURE_TEXT[Outcome.TIMEOUT], SINCE, UNTIL)


def test_an_open_circuit_refuses_at_once_and_says_since_when_why_and_until_when() -> None:
    refused = waits(44.0, Refusal.CIRCUIT_OPEN, until=UNTIL, circuit=OPEN)
    budget, clock, registry = waiting([waits(2.0), refused])
    error = caught(budget.take, REGION)
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.UNAVAILABLE, False)
    assert error.retry_after_seconds == 44.0
    assert str(error) == (
        "eu-north: the circuit is open since 2030-01-01 12:00:00 UTC, after 7 failures in a row (the last:"
        " the region did not answer in time); nothing was sent, and nothing more is until 2030-01-01"
        " 12:04:00 UTC, when one call tries the region"
    )
    assert len(clock.slept) == 1
    assert registry.get_sample_value("sco_provider_circuit_state", {"region": REGION}) == 2


def test_while_a_probe_is_under_way_the_others_look_again_soon() -> None:
    refused = waits(60.0, Refusal.CIRCUIT_OPEN, until=UNTIL, circuit=HALF_OPEN)
    budget, clock, registry = waiting([refused])
    error = caught(budget.take, REGION)
    assert (error.kind, error.retry_after_seconds) == (ProviderErrorKind.UNAVAILABLE, PROBE_RETRY_SECONDS)
    assert "one call is trying the region now" in str(error)
    assert clock.slept == []
    assert registry.get_sample_value("sco_provider_circuit_state", {"region": REGION}) == 1


def test_a_short_pause_is_waited_for_and_callers_come_back_spread() -> None:
    paused = waits(8.0, Refusal.PAUSED, until=UNTIL)
    budget, clock, registry = waiting([paused, Taken(True, 0.0)])
    budget.take(REGION)
    (slept,) = clock.slept
    assert 8.0 <= slept < 8.0 + SPREAD_SECONDS
    assert registry.get_sample_value("sco_provider_paused_seconds", {"region": REGION}) == 0


def test_a_pause_longer_than_the_wait_refuses_at_once() -> None:
    budget, clock, registry = waiting([waits(11.0, Refusal.PAUSED, until=UNTIL)], max_wait_seconds=10.0)
    error = caught(budget.take, REGION)
    assert (error.kind, error.retry_after_seconds) == (ProviderErrorKind.THROTTLED, 11.0)
    assert str(error) == (
        "eu-north: the provider asked every caller to wait until 2030-01-01 12:04:00 UTC; nothing was sent"
    )
    assert clock.slept == []
    assert registry.get_sample_value("sco_provider_paused_seconds", {"region": REGION}) == 11


def test_a_success_costs_a_statement_only_where_it_resets_something() -> None:
    shaky = Circuit(failures=2)
    for circuit, expected in ((WELL, []), (shaky, ["answer"]), (HALF_OPEN, ["answer"])):
        for outcome in (Outcome.OK, Outcome.REFUSED):
            store = ScriptedStore([Taken(True, 0.0, circuit=circuit)])
            budget, _, _ = waiting(store)
            budget.take(REGION)
            budget.report(REGION, outcome, None)
            assert [(kind, passed) for kind, passed, _ in store.reports] == [
                (kind, circuit) for kind in expected
            ]


def test_failures_are_written_with_how_the_call_was_let_pass() -> None:
    for outcome in (Outcome.FAILED, Outcome.TIMEOUT, Outcome.UNREACHABLE):
        store = ScriptedStore([Taken(True, 0.0, circuit=HALF_OPEN)])
        budget, _, _ = waiting(store)
        budget.take(REGION)
        budget.report(REGION, outcome, None)
        assert store.reports == [("failure", HALF_OPEN, FAILURE_TEXT[outcome])]


def test_threads_report_their_own_calls() -> None:
    store = ScriptedStore([Taken(True, 0.0, circuit=HALF_OPEN), Taken(True, 0.0)])
    budget, _, _ = waiting(store)
    budget.take(REGION)
    with ThreadPoolExecutor(1) as other:
        other.submit(budget.take, REGION).result(30)
        other.submit(budget.report, REGION, Outcome.OK, None).result(30)
        assert store.reports == []
    budget.report(REGION, Outcome.OK, None)
    assert [passed for _, passed, _ in store.reports] == [HALF_OPEN]


def test_a_throttled_answer_pauses_as_long_as_is_asked_and_grows_where_nothing_is() -> None:
    store = ScriptedStore([Taken(True, 0.0)] * 9)
    budget, clock, _ = waiting(store)

    def throttled(asked: float | None) -> object:
        clock.now += 100
        budget.take(REGION)
        budget.report(REGION, Outcome.THROTTLED, asked)
        return store.reports[-1][2]

    assert [throttled(asked) for asked in (None, None, 7.0, None, 99_999.0)] == [1, 2, 7, 4, 3600]
    clock.now += 100
    budget.take(REGION)
    budget.report(REGION, Outcome.OK, None)
    assert throttled(None) == 1


def test_calls_throttled_together_let_a_pause_grow_once() -> None:
    store = ScriptedStore([Taken(True, 0.0)] * 9)
    budget, clock, _ = waiting(store)
    with ThreadPoolExecutor(4) as pool, ThreadPoolExecutor(1) as after:
        gate = Barrier(4)

        def together(_: int) -> None:
            budget.take(REGION)
            gate.wait(30)
            clock.now += 1
            budget.report(REGION, Outcome.THROTTLED, None)

        list(pool.map(together, range(4)))
        assert {said for _, _, said in store.reports} == {1}
        clock.now += 100
        after.submit(budget.take, REGION).result(30)
        after.submit(budget.report, REGION, Outcome.THROTTLED, None).result(30)
    assert store.reports[-1][2] == 2


def test_a_report_that_cannot_be_written_raises_nothing() -> None:
    store = ScriptedStore([Taken(True, 0.0)])
    budget, _, _ = waiting(store)
    budget.take(REGION)
    store.broken = True
    with capture_logs() as logs:
        budget.report(REGION, Outcome.TIMEOUT, None)
    assert [(one["event"], one["region"], one["error"]) for one in logs] == [
        ("provider_report_lost", REGION, "OperationalError")
    ]


def test_trips_and_pauses_are_told_once(budgets: BudgetStore, budget_dsn: str) -> None:
    registry = CollectorRegistry()
    budget = StoreTokenBudget(
        budgets, ProviderMetrics(registry), max_wait_seconds=0.1, rng=random.Random(1), sleep=lambda _: None
    )
    with capture_logs() as logs:
        for _ in range(5):
            budget.take(REGION)
            budget.report(REGION, Outcome.FAILED, None)
        caught(budget.take, REGION)
        with psycopg.connect(budget_dsn) as connection:
            connection.execute("UPDATE provider_budgets SET circuit_until = now()")
        budget.take(REGION)
        budget.report(REGION, Outcome.THROTTLED, 30.0)
        budget.report(REGION, Outcome.THROTTLED, 30.0)
    told = [one["event"] for one in logs]
    assert told == ["circuit_opened", "circuit_closed", "provider_paused"]
    assert registry.get_sample_value("sco_provider_circuit_trips_total", {"region": REGION}) == 1
    assert registry.get_sample_value("sco_provider_circuit_state", {"region": REGION}) == 0
    assert registry.get_sample_value("sco_provider_paused_seconds", {"region": REGION}) == 30
    assert caught(budget.take, REGION).kind is ProviderErrorKind.THROTTLED
