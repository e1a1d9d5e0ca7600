"""Money: a decimal amount that never travels without its currency."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal
from typing import Annotated

from pydantic import Field

from domain.model import Frozen

Currency = Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
SIX_PLACES = Decimal("0.000001")


def rounded(amount: Decimal) -> Decimal:
    """`amount` to six places, half to even: the precision that is stored and shown."""
    return amount.quantize(SIX_PLACES, rounding=ROUND_HALF_EVEN)


class Money(Frozen):
    """An amount in one currency. Adding two currencies is an error, not a conversion."""

    amount: Decimal
    currency: Currency

    def __add__(self, other: Money) -> Money:
        self._same_currency(other)
        return Money(amount=self.amount + other.amount, currency=self.currency)

    def __sub__(self, other: Money) -> Money:
        self._same_currency(other)
        return Money(amount=self.amount - other.amount, currency=self.currency)

    def times(self, factor: Decimal | int) -> Money:
        return Money(amount=self.amount * factor, currency=self.currency)

    def _same_currency(self, other: Money) -> None:
        if self.currency != other.currency:
            raise ValueError(f"cannot mix {self.currency} and {other.currency}")
