"""The rule of pool hours: every second in service once, whenever and however often it is counted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from domain.serving.usage import HOUR, Meter, PoolHour, UsageTerms, by_hour, counted, hour_of

START = datetime(2030, 1, 1, 12, 20, tzinfo=UTC)
TERMS = UsageTerms(catch_up_hours=72)
PRICE = Decimal("2.50")


class Ledger:
    """The records of one pool as the store keeps them."""

    def __init__(self) -> None:
        self.hours: dict[datetime, PoolHour] = {}

    def count(self, now: datetime, terms: UsageTerms = TERMS, **known: Any) -> None:
        newest = self.hours[max(self.hours)] if self.hours else None
        meter = Meter(serves=True, changed_at=START, price_per_hour_usd=PRICE, newest=newest)
        for one in counted(meter._replace(**known), now, terms):
            self.hours[one.hour] = one

    @property
    def seconds(self) -> int:
        return sum(one.seconds for one in self.hours.values())


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@given(st.lists(st.integers(0, 9_000_000), max_size=30))
def test_every_second_is_counted_once(milliseconds: list[int]) -> None:
    """However irregular the looks are, repeated or going back in time."""
    ledger = Ledger()
    for each in milliseconds:
        ledger.count(after(each / 1000))
        ledger.count(after(each / 1000))
    assert ledger.seconds == max(milliseconds, default=0) // 1000
    assert all(0 <= one.seconds <= 3600 for one in ledger.hours.values())
    assert all(one.hour == hour_of(one.hour) for one in ledger.hours.values())


def test_an_hour_is_full_and_the_next_one_begins() -> None:
    ledger = Ledger()
    ledger.count(after(3 * 3600))
    assert [one.seconds for one in ledger.hours.values()] == [2400, 3600, 3600, 1200]
    assert [one.counted_until for one in ledger.hours.values()][-1] == after(3 * 3600)


def test_a_day_without_a_collector_is_made_up_for() -> None:
    ledger = Ledger()
    ledger.count(after(60))
    ledger.count(after(26 * 3600))
    assert ledger.seconds == 26 * 3600


def test_what_is_older_than_the_bound_stays_uncounted() -> None:
    ledger = Ledger()
    ledger.count(after(60))
    ledger.count(after(1000 * 3600), UsageTerms(catch_up_hours=2))
    assert ledger.seconds == 60 + 2 * 3600 + 20 * 60


def test_a_retired_pool_is_counted_to_its_end() -> None:
    ledger = Ledger()
    ledger.count(after(600))
    ended = after(4000)
    for moment in (4010, 8000, 90_000):
        ledger.count(after(moment), ended_at=ended, changed_at=ended)
    assert ledger.seconds == 4000


def test_a_pool_that_never_served_has_no_hours() -> None:
    ledger = Ledger()
    ledger.count(after(600), serves=False)
    ledger.count(after(700), ended_at=START)
    assert ledger.hours == {}


def test_a_pause_in_service_is_not_counted() -> None:
    """An endpoint that was taken away and given back: the hours between are there, with no seconds."""
    ledger = Ledger()
    ledger.count(after(600))
    ledger.count(after(4000), serves=False)
    ledger.count(after(4060))
    assert ledger.seconds == 600 + 60


def test_an_hour_has_the_price_at_which_it_was_first_counted() -> None:
    ledger = Ledger()
    ledger.count(after(60))
    ledger.count(after(3600), price_per_hour_usd=Decimal(9))
    first, second = ledger.hours.values()
    assert (first.price_per_hour_usd, second.price_per_hour_usd) == (PRICE, Decimal(9))
    assert first.amount_usd == Decimal("1.666667")
    assert second.amount_usd == Decimal("3.000000")


@given(st.integers(0, 3600), st.decimals("0", "1000", places=6))
def test_an_amount_is_exact_to_six_places(seconds: int, price: Decimal) -> None:
    amount = PoolHour(START, seconds, price, START).amount_usd
    assert abs(amount * 3600 - price * seconds) <= Decimal("0.0018")
    assert amount.as_tuple().exponent == -6


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_span_is_cut_without_gap_or_overlap(first: int, length: int) -> None:
    since, until = after(first), after(first + length)
    parts = list(by_hour(since, until))
    assert sum((end - begin for begin, end in parts), timedelta(0)) == until - since
    for begin, end in parts:
        assert hour_of(begin) <= begin < end <= hour_of(begin) + HOUR
    assert all(one[1] == two[0] for one, two in pairwise(parts))


def test_hours_are_those_of_utc() -> None:
    half_past = datetime.fromisoformat("2030-01-01T12:10:00+05:30")
    assert hour_of(half_past) == datetime(2030, 1, 1, 6, tzinfo=UTC)
