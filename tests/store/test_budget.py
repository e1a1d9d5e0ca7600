"""The bucket of a region: many threads take from it and never get more than its rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from decimal import Decimal

import psycopg
import pytest

from store.budget import BudgetStore, NoBudget
from tests.estates import TENANT

THREADS = 8
SECONDS = 1.5


@pytest.fixture
def budgets(dsn: str) -> Iterator[BudgetStore]:
    opened = BudgetStore(dsn, tenant_id=TENANT, pool_size=THREADS)
    yield opened
    opened.close()


def takes(budgets: BudgetStore, region: str, seconds: float) -> tuple[int, float]:
    """Tokens that eight threads took, and the time from the first call to the last answer."""
    taken, lock = [0], threading.Lock()
    started = time.monotonic()

    def run() -> None:
        while time.monotonic() - started < seconds:
            found = budgets.try_take(region)
            if found.taken:
                with lock:
                    taken[0] += 1
            else:
                time.sleep(min(found.wait_seconds, 0.01))

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return taken[0], time.monotonic() - started


def test_the_rate_is_never_exceeded(budgets: BudgetStore) -> None:
    budgets.set_budget("eu-north", burst=10, refill_per_second=Decimal(20))
    taken, seconds = takes(budgets, "eu-north", SECONDS)
    assert 10 < taken <= 10 + 20 * seconds + 1


def test_processes_share_a_bucket_and_regions_do_not(budgets: BudgetStore, dsn: str) -> None:
    other = BudgetStore(dsn, tenant_id=TENANT)
    for region in ("eu-north", "eu-west"):
        budgets.set_budget(region, burst=4, refill_per_second=Decimal("0.001"))
    taken = [one.try_take("eu-north").taken for one in (budgets, other) * 4]
    assert taken == [True] * 4 + [False] * 4
    assert other.try_take("eu-west").taken
    other.close()


def test_tenants_do_not_share(budgets: BudgetStore, dsn: str) -> None:
    budgets.set_budget("eu-north", burst=1, refill_per_second=Decimal(1))
    stranger = BudgetStore(dsn, tenant_id="stranger")
    with pytest.raises(NoBudget):
        stranger.try_take("eu-north")
    stranger.close()


def test_an_empty_bucket_says_how_long_to_wait(budgets: BudgetStore) -> None:
    budgets.set_budget("eu-north", burst=1, refill_per_second=Decimal("0.1"))
    assert budgets.try_take("eu-north").wait_seconds == 0
    found = budgets.try_take("eu-north")
    assert not found.taken
    assert 0 < found.wait_seconds <= 10


def test_a_region_without_a_budget_may_not_be_called(budgets: BudgetStore) -> None:
    with pytest.raises(NoBudget, match="no provider budget is set for region 'eu-south': set one"):
        budgets.try_take("eu-south")


def test_setting_a_budget_again_never_gives_tokens(budgets: BudgetStore) -> None:
    """Every worker sets it when it starts."""
    budgets.set_budget("eu-north", burst=3, refill_per_second=Decimal("0.001"))
    for _ in range(3):
        assert budgets.try_take("eu-north").taken
    for _ in range(3):
        budgets.set_budget("eu-north", burst=50, refill_per_second=Decimal("0.001"))
        assert not budgets.try_take("eu-north").taken


def test_a_smaller_budget_holds_at_once(budgets: BudgetStore, dsn: str) -> None:
    budgets.set_budget("eu-north", burst=100, refill_per_second=Decimal("0.001"))
    budgets.set_budget("eu-north", burst=2, refill_per_second=Decimal("0.001"))
    assert [budgets.try_take("eu-north").taken for _ in range(4)] == [True, True, False, False]
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT burst, tokens BETWEEN 0 AND burst FROM provider_budgets").fetchall()
    assert rows == [(2, True)]


def test_a_long_pause_fills_the_bucket_and_no_more(budgets: BudgetStore, dsn: str) -> None:
    budgets.set_budget("eu-north", burst=5, refill_per_second=Decimal("0.01"))
    while budgets.try_take("eu-north").taken:
        pass
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE provider_budgets SET updated_at = updated_at - interval '1 day'")
    assert [budgets.try_take("eu-north").taken for _ in range(7)] == [True] * 5 + [False] * 2


def test_a_clock_that_went_back_gives_nothing_and_breaks_nothing(budgets: BudgetStore, dsn: str) -> None:
    budgets.set_budget("eu-north", burst=5, refill_per_second=Decimal(1))
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE provider_budgets SET tokens = 0, updated_at = now() + interval '1 hour'")
    found = budgets.try_take("eu-north")
    assert not found.taken
    assert found.wait_seconds > 3000
