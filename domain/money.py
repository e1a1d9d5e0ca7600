"""Money: exact decimals, stored and shown to six places, beside their currency."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

SIX_PLACES = Decimal("0.000001")


def rounded(amount: Decimal) -> Decimal:
    """`amount` to six places, half to even: the precision that is stored and shown."""
    return amount.quantize(SIX_PLACES, rounding=ROUND_HALF_EVEN)
