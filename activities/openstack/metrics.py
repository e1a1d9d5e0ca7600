"""What the calls to the provider look like from outside."""

from __future__ import annotations

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from domain.circuit import CircuitState, Outcome

WAIT_BUCKETS_SECONDS = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60)
_STATE_VALUES = {CircuitState.CLOSED: 0, CircuitState.HALF_OPEN: 1, CircuitState.OPEN: 2}


class ProviderMetrics:
    """Counters by region, and each region as this process saw it at its last call."""

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
        self._circuit = Gauge(
            "sco_provider_circuit_state",
            "The circuit of a region: 0 closed, 1 half open, 2 open.",
            ("region",),
            registry=registry,
        )
        self._trips = Counter(
            "sco_provider_circuit_trips_total",
            "How often this process opened the circuit of a region.",
            ("region",),
            registry=registry,
        )
        self._paused = Gauge(
            "sco_provider_paused_seconds",
            "How long a region was still paused when it was last looked at; 0 where it is not.",
            ("region",),
            registry=registry,
        )

    def called(self, region: str, outcome: Outcome) -> None:
        self._calls.labels(region, str(outcome)).inc()

    def waited(self, region: str, seconds: float) -> None:
        self._waits.labels(region).observe(seconds)

    def circuit_is(self, region: str, state: CircuitState) -> None:
        self._circuit.labels(region).set(_STATE_VALUES[state])

    def tripped(self, region: str) -> None:
        self._trips.labels(region).inc()

    def paused(self, region: str, seconds: float) -> None:
        self._paused.labels(region).set(seconds)
