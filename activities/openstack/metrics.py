"""What the calls to the provider look like from outside."""

from __future__ import annotations

from enum import StrEnum

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

WAIT_BUCKETS_SECONDS = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60)


class Outcome(StrEnum):
    """How one call on the wire ended."""

    OK = "ok"
    REFUSED = "refused"
    THROTTLED = "throttled"
    FAILED = "failed"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    NO_BUDGET = "no_budget"


class ProviderMetrics:
    """Counters by region. `no_budget` counts calls that were never sent."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._calls = Counter(
            "sco_provider_calls_total",
            "Calls to the provider by outcome, discovery and authentication included.",
            ("region", "outcome"),
            registry=registry,
        )
        self._waits = Histogram(
            "sco_provider_budget_wait_seconds",
            "Time that a call waited for a token of its region's budget.",
            ("region",),
            buckets=WAIT_BUCKETS_SECONDS,
            registry=registry,
        )

    def called(self, region: str, outcome: Outcome) -> None:
        self._calls.labels(region, str(outcome)).inc()

    def waited(self, region: str, seconds: float) -> None:
        self._waits.labels(region).observe(seconds)
