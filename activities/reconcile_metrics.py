"""What reconcile looks like from outside."""

from __future__ import annotations

from datetime import datetime

from prometheus_client import Counter, Gauge

from activities.reconcile_calls import Reconciled
from domain.reconcile import DriftKind, FleetPhase
from store.licences import Place

PHASE = Gauge("sco_fleet_phase", "0 read-only, 1 pacing, 2 normal", ["partition", "region"])
CYCLE_AT = Gauge("sco_reconcile_timestamp_seconds", "When a cycle was last complete", ["partition", "region"])
FAILED_CYCLES = Counter(
    "sco_reconcile_failed_cycles_total", "Cycles that did not complete", ["partition", "region"]
)
SERVERS = Gauge("sco_fleet_servers", "Servers of ours that the last cycle listed", ["partition", "region"])
DRIFT = Gauge("sco_fleet_drift", "What differed in the last cycle", ["partition", "region", "kind"])
BACKLOG = Gauge("sco_fleet_backlog", "Differences that wait for the pace", ["partition", "region"])
REPAIRED = Counter(
    "sco_fleet_repairs_total", "Differences that were put right", ["partition", "region", "repair"]
)


def report(place: Place, done: Reconciled, at: datetime) -> None:
    """Publish one complete cycle."""
    labels = (place.partition_id, place.region)
    PHASE.labels(*labels).set([*FleetPhase].index(done.phase))
    CYCLE_AT.labels(*labels).set(at.timestamp())
    SERVERS.labels(*labels).set(done.servers)
    BACKLOG.labels(*labels).set(done.backlog)
    for kind in DriftKind:
        DRIFT.labels(*labels, kind.value).set(done.drift.get(kind.value, 0))
    for repair in ("adopted", "lost", "deleted", "retagged"):
        REPAIRED.labels(*labels, repair).inc(getattr(done, repair))
