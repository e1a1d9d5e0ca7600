"""The circuit of a provider's region: after failures in a row nobody calls it, until one call tries again."""

from __future__ import annotations

from enum import StrEnum


class CircuitState(StrEnum):
    """Closed lets every call pass, open none, half open one at a time to see whether it is well again."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
