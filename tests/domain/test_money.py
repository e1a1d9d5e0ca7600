"""Money: exact decimals that keep their currency."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from domain.money import Money, rounded
from tests.domain.strategies import QUICK

amounts = st.decimals(min_value=-(10**9), max_value=10**9, places=6)


def euros(amount: Decimal) -> Money:
    return Money(amount=amount, currency="EUR")


@QUICK
@given(amounts, amounts)
def test_adding_and_taking_away_are_exact(one: Decimal, other: Decimal) -> None:
    assert (euros(one) + euros(other)) - euros(other) == euros(one)
    assert euros(one) + euros(other) == euros(other) + euros(one)


def test_cents_do_not_drift() -> None:
    total = euros(Decimal(0))
    for _ in range(10):
        total += euros(Decimal("0.1"))
    assert total == euros(Decimal(1))


@QUICK
@given(amounts, st.integers(0, 50))
def test_a_multiple_is_repeated_addition(amount: Decimal, times: int) -> None:
    total = euros(Decimal(0))
    for _ in range(times):
        total += euros(amount)
    assert euros(amount).times(times) == total


def test_two_currencies_do_not_mix() -> None:
    dollars = Money(amount=Decimal(1), currency="USD")
    with pytest.raises(ValueError, match="cannot mix EUR and USD"):
        euros(Decimal(1)) + dollars
    with pytest.raises(ValueError, match="cannot mix USD and EUR"):
        dollars - euros(Decimal(1))


@pytest.mark.parametrize(
    ("amount", "shown"),
    [("0.0000005", "0.000000"), ("0.0000015", "0.000002"), ("-0.0000015", "-0.000002"), ("2", "2.000000")],
)
def test_amounts_round_half_to_even_at_six_places(amount: str, shown: str) -> None:
    assert str(rounded(Decimal(amount))) == shown


@pytest.mark.parametrize("currency", ["", "eur", "EURO", "E1R"])
def test_a_currency_is_three_capitals(currency: str) -> None:
    with pytest.raises(ValidationError):
        Money(amount=Decimal(1), currency=currency)
