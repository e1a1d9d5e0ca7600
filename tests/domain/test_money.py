"""Money: exact decimals to six places."""

from __future__ import annotations

from decimal import Decimal

import pytest

from domain.money import rounded


@pytest.mark.parametrize(
    ("amount", "shown"),
    [("0.0000005", "0.000000"), ("0.0000015", "0.000002"), ("-0.0000015", "-0.000002"), ("2", "2.000000")],
)
def test_amounts_round_half_to_even_at_six_places(amount: str, shown: str) -> None:
    assert str(rounded(Decimal(amount))) == shown
