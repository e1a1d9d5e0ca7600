"""How long a workload stays out of a pool that failed it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.backoff import BackoffTerms

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TERMS = BackoffTerms()


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 300), (2, 600), (3, 1200), (5, 4800), (6, 7200), (99, 7200)]
)
def test_each_failure_doubles_the_wait_up_to_its_limit(failures: int, seconds: int) -> None:
    assert TERMS.backoff_seconds_after(failures) == seconds


@given(st.integers(1, 10_000))
def test_a_wait_never_shrinks_and_never_grows_for_good(failures: int) -> None:
    wait = TERMS.backoff_seconds_after(failures)
    assert wait <= TERMS.backoff_seconds_after(failures + 1) <= TERMS.backoff_most_seconds


@pytest.mark.parametrize(("hours", "left"), [(0, 4), (24, 4), (25, 0)])
def test_a_clean_day_forgives(hours: int, left: int) -> None:
    assert TERMS.failures_so_far(4, NOW, NOW + timedelta(hours=hours)) == left


@pytest.mark.parametrize(("minutes", "thrash"), [(0, True), (15, True), (16, False)])
def test_a_loss_soon_after_the_launch_is_thrash(minutes: int, thrash: bool) -> None:
    assert TERMS.is_thrash(NOW, NOW + timedelta(minutes=minutes)) is thrash


def test_a_loss_before_it_ran_is_thrash() -> None:
    assert TERMS.is_thrash(None, NOW)
