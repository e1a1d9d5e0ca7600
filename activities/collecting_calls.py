"""What the workflow that collects may ask of its hand. No other imports."""

from __future__ import annotations

from domain.model import Frozen

COLLECTOR = "Collector"
COLLECT = "collect"


class CollectRequest(Frozen):
    """Collect from the pools of all tenants."""


class Collected(Frozen):
    """What one run of the collector did.

    `stale` and `fresh` are pools that fell silent or were heard again, each as `<tenant>/<pool>`; `learned`
    counts pools with a new cold start, `expired` placements that ended, `hours` usage records written.
    """

    stale: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()
    learned: int = 0
    expired: int = 0
    hours: int = 0
