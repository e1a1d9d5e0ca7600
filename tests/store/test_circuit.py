"""Circuit and pause in the row of the budget: one statement decides, whatever process asks."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from itertools import product
from multiprocessing.connection import Connection

import psycopg
import pytest

from domain.circuit import WELL, Circuit, CircuitState, CircuitTerms, let_pass
from store.budget import BudgetStore, NoBudget, Refusal, Taken
from tests.estates import TENANT

REGION = "eu-north"
THREADS = 8
TERMS = CircuitTerms(open_seconds=60, most_open_seconds=600)
PROBLEM = "no answer"


@pytest.fixture
def budgets(dsn: str) -> Iterator[BudgetStore]:
    """A bucket of a thousand tokens that practically does not refill."""
    opened = BudgetStore(dsn, tenant_id=TENANT, pool_size=THREADS, terms=TERMS)
    opened.set_budget(REGION, burst=1000, refill_per_second=Decimal("0.001"))
    yield opened
    opened.close()


@pytest.fixture
def change(dsn: str) -> Callable[[str], None]:
    """Changes the row of the region, as time or another process would."""

    def run(what: str) -> None:
        with psycopg.connect(dsn) as connection:
            connection.execute(f"UPDATE provider_budgets SET {what}")

    return run


def tokens(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT floor(tokens) FROM provider_budgets").fetchone()
    assert row is not None
    return int(row[0])


def passed(budgets: BudgetStore) -> Circuit:
    found = budgets.try_take(REGION)
    assert found.taken
    return found.circuit


def opened(budgets: BudgetStore) -> Taken:
    """The refusal of a circuit that five failures opened."""
    for _ in range(TERMS.open_after_failures):
        budgets.report_failure(REGION, passed(budgets), PROBLEM)
    refused = budgets.try_take(REGION)
    assert refused.refusal is Refusal.CIRCUIT_OPEN
    return refused


def test_failures_in_a_row_open_it_for_everyone(budgets: BudgetStore, dsn: str) -> None:
    other = BudgetStore(dsn, tenant_id=TENANT, terms=TERMS)
    refused = opened(budgets)
    assert 55 < refused.wait_seconds <= 60
    assert (refused.circuit.failures, refused.circuit.trips, refused.circuit.problem) == (5, 1, PROBLEM)
    assert refused.until is not None
    assert refused.circuit.since is not None
    assert refused.until - refused.circuit.since == timedelta(seconds=60)
    assert other.try_take(REGION).refusal is Refusal.CIRCUIT_OPEN
    assert tokens(dsn) == 995
    other.close()


def test_regions_and_tenants_have_circuits_of_their_own(budgets: BudgetStore, dsn: str) -> None:
    stranger = BudgetStore(dsn, tenant_id="stranger", terms=TERMS)
    stranger.set_budget(REGION, burst=5, refill_per_second=Decimal(1))
    budgets.set_budget("eu-west", burst=5, refill_per_second=Decimal(1))
    opened(budgets)
    assert stranger.try_take(REGION).taken
    assert budgets.try_take("eu-west").taken
    stranger.close()


def test_a_success_in_between_is_what_keeps_it_closed(budgets: BudgetStore) -> None:
    for _ in range(4):
        budgets.report_failure(REGION, passed(budgets), PROBLEM)
    before = passed(budgets)
    assert (before.failures, before.is_well) == (4, False)
    assert budgets.report_answer(REGION, before).after.is_well
    assert passed(budgets).is_well


def test_exactly_one_of_many_at_once_becomes_the_probe(
    budgets: BudgetStore, change: Callable[[str], None]
) -> None:
    opened(budgets)
    for _ in range(5):
        change("circuit_until = now() - interval '1 second', circuit = 'open'")
        with ThreadPoolExecutor(THREADS) as pool:
            found = list(pool.map(lambda _: budgets.try_take(REGION), range(THREADS * 3)))
        probes = [one for one in found if one.taken]
        assert len(probes) == 1
        assert probes[0].circuit.state is CircuitState.HALF_OPEN
        assert {one.refusal for one in found if not one.taken} == {Refusal.CIRCUIT_OPEN}


def test_the_probe_closes_it_or_opens_it_for_longer(
    budgets: BudgetStore, change: Callable[[str], None]
) -> None:
    opened(budgets)
    change("circuit_until = now()")
    again = budgets.report_failure(REGION, passed(budgets), "still none")
    assert (again.after.state, again.after.trips, again.after.problem) == (CircuitState.OPEN, 2, "still none")
    refused = budgets.try_take(REGION)
    assert 60 < refused.wait_seconds <= 120
    assert refused.circuit.since == again.before.since
    change("circuit_until = now()")
    closed = budgets.report_answer(REGION, passed(budgets)).after
    assert closed.is_well
    assert closed.trips == 0
    assert passed(budgets) == closed


def test_a_probe_that_died_frees_itself_and_is_not_heard_later(
    budgets: BudgetStore, change: Callable[[str], None]
) -> None:
    opened(budgets)
    change("circuit_until = now()")
    dead = passed(budgets)
    assert budgets.try_take(REGION).refusal is Refusal.CIRCUIT_OPEN
    change("circuit_until = now()")
    second = passed(budgets)
    for late in (budgets.report_failure(REGION, dead, PROBLEM), budgets.report_answer(REGION, dead)):
        assert late.after == late.before == second
    assert budgets.report_answer(REGION, second).after.is_well


def test_late_failures_of_calls_from_before_do_not_open_it_for_longer(budgets: BudgetStore) -> None:
    before = passed(budgets)
    until = opened(budgets).until
    for _ in range(20):
        assert budgets.report_failure(REGION, before, PROBLEM).after.trips == 1
    assert budgets.try_take(REGION).until == until


def test_failures_reported_at_once_are_all_counted_and_trip_once(budgets: BudgetStore) -> None:
    before = passed(budgets)
    gate = threading.Barrier(THREADS)

    def fail(_: int) -> bool:
        gate.wait(30)
        reported = budgets.report_failure(REGION, before, PROBLEM)
        return reported.after.trips > reported.before.trips

    with ThreadPoolExecutor(THREADS) as pool:
        assert sum(pool.map(fail, range(THREADS))) == 1
    assert budgets.try_take(REGION).circuit.failures == TERMS.open_after_failures


def test_a_pause_holds_for_everyone_and_is_never_shortened(
    budgets: BudgetStore, dsn: str, change: Callable[[str], None]
) -> None:
    other = BudgetStore(dsn, tenant_id=TENANT, terms=TERMS)
    first = budgets.report_answer(REGION, passed(budgets), pause_seconds=100)
    assert (first.pause_began, first.after.is_well) == (True, True)
    shorter = other.report_answer(REGION, WELL, pause_seconds=1)
    assert (shorter.pause_began, shorter.paused_until) == (False, first.paused_until)
    found = other.try_take(REGION)
    assert (found.taken, found.refusal, found.until) == (False, Refusal.PAUSED, first.paused_until)
    assert 90 < found.wait_seconds <= 100
    longer = budgets.report_answer(REGION, WELL, pause_seconds=200)
    assert longer.paused_until is not None
    assert first.paused_until is not None
    assert longer.paused_until > first.paused_until
    change("paused_until = now()")
    assert other.try_take(REGION).taken
    assert budgets.report_answer(REGION, WELL, pause_seconds=1).pause_began
    other.close()


def test_a_throttled_probe_closes_the_circuit_and_pauses(
    budgets: BudgetStore, change: Callable[[str], None]
) -> None:
    opened(budgets)
    change("circuit_until = now()")
    reported = budgets.report_answer(REGION, passed(budgets), pause_seconds=100)
    assert reported.after.is_well
    assert budgets.try_take(REGION).refusal is Refusal.PAUSED


def test_an_open_circuit_is_named_before_a_pause_and_a_pause_before_tokens(
    budgets: BudgetStore, change: Callable[[str], None]
) -> None:
    change("tokens = 0, updated_at = now()")
    assert budgets.try_take(REGION).refusal is Refusal.NO_TOKEN
    change("paused_until = now() + interval '1 minute'")
    assert budgets.try_take(REGION).refusal is Refusal.PAUSED
    change("circuit = 'open', circuit_until = now() + interval '1 minute'")
    assert budgets.try_take(REGION).refusal is Refusal.CIRCUIT_OPEN


def test_a_circuit_whose_time_has_come_waits_for_a_token_without_becoming_half_open(
    budgets: BudgetStore, change: Callable[[str], None]
) -> None:
    change("circuit = 'open', circuit_until = now() - interval '1 minute', tokens = 0, updated_at = now()")
    found = budgets.try_take(REGION)
    assert (found.refusal, found.circuit.state) == (Refusal.NO_TOKEN, CircuitState.OPEN)


@pytest.mark.parametrize(
    ("state", "until"), list(product(CircuitState, ("- interval '1 hour'", "+ interval '1 hour'", None)))
)
def test_the_statement_decides_as_the_rule_does(
    budgets: BudgetStore, dsn: str, state: CircuitState, until: str | None
) -> None:
    value = "NULL" if until is None else f"now() {until}"
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "UPDATE provider_budgets SET circuit = %s, failures = 7, trips = 2, circuit_problem = 'p',"
            f" circuit_until = {value} RETURNING circuit_until, now()",
            (state.value,),
        ).fetchone()
    assert row is not None
    by_rule = let_pass(Circuit(state, 7, 2, "p", None, row[0]), row[1], TERMS)
    found = budgets.try_take(REGION)
    assert found.taken == (by_rule is not None)
    if by_rule is not None and by_rule.state is CircuitState.HALF_OPEN:
        assert by_rule.until is not None
        assert found.circuit.until is not None
        assert timedelta(0) <= found.circuit.until - by_rule.until < timedelta(seconds=TERMS.probe_seconds)
        assert (found.circuit.state, found.circuit.failures, found.circuit.trips) == (by_rule.state, 7, 2)
    elif by_rule is not None:
        assert found.circuit == by_rule


def _call(dsn: str, calls: int, told: Connection) -> None:
    """In a process of its own: so many calls, of which each ends in another way."""
    store = BudgetStore(dsn, tenant_id=TENANT, terms=CircuitTerms(open_after_failures=1000))
    taken = 0
    for number in range(calls):
        found = store.try_take(REGION)
        taken += found.taken
        if found.taken and number % 3 == 1:
            store.report_failure(REGION, found.circuit, PROBLEM)
        elif found.taken and number % 3 == 2:
            store.report_answer(REGION, found.circuit)
    store.close()
    told.send(taken)


def test_processes_spend_one_budget_whatever_their_calls_end_in(budgets: BudgetStore, dsn: str) -> None:
    spawned = multiprocessing.get_context("spawn")
    budgets.set_budget(REGION, burst=50, refill_per_second=Decimal("0.001"))
    ends = [spawned.Pipe(duplex=False) for _ in range(2)]
    callers = [spawned.Process(target=_call, args=(dsn, 40, told)) for _, told in ends]
    for one in callers:
        one.start()
    taken = [heard.recv() if heard.poll(60) else None for heard, _ in ends]
    for one in callers:
        one.join(60)
    assert [one.exitcode for one in callers] == [0, 0]
    assert sum(count or 0 for count in taken) == 50
    assert budgets.try_take(REGION).refusal is Refusal.NO_TOKEN
    assert tokens(dsn) == 0


def test_a_region_without_a_budget_has_nothing_to_report_to(budgets: BudgetStore) -> None:
    with pytest.raises(NoBudget, match="'eu-moon': nothing can be reported"):
        budgets.report_failure("eu-moon", WELL, PROBLEM)
    with pytest.raises(NoBudget, match="'eu-moon': nothing can be reported"):
        budgets.report_answer("eu-moon", WELL, pause_seconds=1)
