"""Kubernetes quantities: `500m`, `2Gi`, `1e3`, `1.5`, exactly as the API server reads them.

A quantity is a whole number of billionths here: Kubernetes keeps nothing finer and rounds up to it.
Sums are therefore exact, and rounding to thousandths of a vCPU or to MiB happens once per unit, up.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache

from domain.intake.words import Unclear, shown

NANO = 1_000_000_000
_NANO_PER_MILLI = 1_000_000
_NANO_PER_MIB = NANO << 20
_MAX_LENGTH = 64
_MAX_EXPONENT = 30

_QUANTITY = re.compile(
    r"([+-]?)(?:(\d+)\.?(\d*)|\.(\d+))(?:[eE]([+-]?\d{1,9})|([KMGTPE]i|[numkMGTPE]?))", re.ASCII
)
_DECIMAL_EXPONENT = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_BINARY_SHIFT = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_ALLOWED = "a number of 0 or more with at most one suffix: n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or e3"


def quantity_nano(value: object) -> int:
    """A quantity in billionths of its unit (core, byte or piece), rounded up; raises `Unclear`."""
    if isinstance(value, str):
        return _from_text(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**_MAX_LENGTH:
        return value * NANO
    if isinstance(value, float | Decimal):
        return _from_text(str(value))
    raise Unclear(f"quantity {shown(value)} is not valid; allowed is {_ALLOWED}")


@lru_cache(maxsize=4096)
def _from_text(text: str) -> int:
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise Unclear(f"quantity {shown(text)} is not valid; allowed is {_ALLOWED}")
    sign, whole, fraction, bare_fraction, exponent, suffix = match.groups()
    fraction = bare_fraction or fraction or ""
    digits = int((whole or "") + fraction)
    if sign == "-" and digits:
        raise Unclear(f"quantity {shown(text)} is negative; allowed is {_ALLOWED}")
    if abs(int(exponent or 0)) > _MAX_EXPONENT:
        raise Unclear(f"quantity {shown(text)} has an exponent beyond ±{_MAX_EXPONENT}")
    shift = _BINARY_SHIFT.get(suffix or "", 0)
    power = int(exponent) if exponent else _DECIMAL_EXPONENT.get(suffix or "", 0)
    return _scaled(digits << shift, power + 9 - len(fraction))


def _scaled(digits: int, power: int) -> int:
    """digits times 10^power, rounded up to a whole number."""
    factor: int = 10 ** abs(power)
    return digits * factor if power >= 0 else -(-digits // factor)


def milli(nano: int) -> int:
    """Thousandths, rounded up."""
    return -(-nano // _NANO_PER_MILLI)


def mib(nano: int) -> int:
    """MiB of a quantity of bytes, rounded up."""
    return -(-nano // _NANO_PER_MIB)


def whole(nano: int, where: str) -> int:
    """Whole pieces; extended resources cannot be divided."""
    if nano % NANO:
        raise Unclear(f"{where} is not a whole number; devices are counted in whole pieces")
    return nano // NANO
