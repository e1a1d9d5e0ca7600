"""How patient everything is in the matrix: the product's terms, with seconds in place of minutes."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from domain.acquisition import AcquisitionTerms
from domain.circuit import CircuitTerms
from domain.policy import PlacementPolicy
from domain.reconcile import ReconcileTerms

# A build takes less than a tenth of a second, a deletion about a hundredth.
CLOUD_SPEED = 250.0
POLL_SECONDS = 0.03
READ_TIMEOUT_SECONDS, SHORT_READ_TIMEOUT_SECONDS = 1.0, 0.35
MAX_BUDGET_WAIT_SECONDS = 2.0
ACQUISITION = AcquisitionTerms(
    settle_seconds=0.6, build_patience_seconds=1.5, delete_patience_seconds=1.5, max_attempts=4
)
RECONCILE = ReconcileTerms(
    cycle_seconds=1,
    recovery_cycle_seconds=0.05,
    lapse_seconds=60,
    pace_window_seconds=0.25,
    finds_per_cycle=3,
)
PLACEMENT = PlacementPolicy(backoff_seconds=1, backoff_most_seconds=1, thrash_seconds=1)
CIRCUIT = CircuitTerms(
    open_after_failures=5, open_seconds=0.2, most_open_seconds=0.4, probe_seconds=1, pause_seconds=0.1
)


@dataclass(frozen=True, slots=True)
class Terms:
    """How patient everything is: the product's terms with seconds in place of minutes."""

    acquisition: AcquisitionTerms = ACQUISITION
    reconcile: ReconcileTerms = RECONCILE
    placement: PlacementPolicy = PLACEMENT
    circuit: CircuitTerms = CIRCUIT
    burst: int = 20
    calls_per_second: Decimal = Decimal(80)
