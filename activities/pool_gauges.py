"""What all pools look like from outside. Every process that serves metrics reads it anew.

A gauge that only the process sets which happened to do a piece of work would go on showing an old value
in all the others.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping

from prometheus_client import Gauge

from domain.serving.health import Health
from store import pool_figures
from store.engine import Engine
from store.pool_figures import PoolFigures

POOLS = Gauge(
    "connectsoft_factory_compute_pools_pools", "Pools by state", ["tenant", "kind", "state", "region"]
)
UTILIZATION = Gauge(
    "connectsoft_factory_compute_pools_utilization",
    "Reported utilization of serving pools",
    ["tenant", "pool"],
)
HEALTH = Gauge(
    "sco_pool_health", "1 for the health that a serving pool has, else 0", ["tenant", "pool", "health"]
)
STALE = Gauge("sco_pools_stale", "Serving pools that fell silent", ["tenant"])
NOBODY_KNOWS = float("nan")

Labels = tuple[str, ...]


class PoolGauges:
    """Publishes the figures of one database; what is there no more loses its series."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._shown: dict[str, set[Labels]] = {}

    async def refresh(self) -> None:
        """Read and publish. While the database is away its figures are not a number, and that is raised."""
        try:
            async with self._engine.connect() as connection:
                figures = await pool_figures.read_figures(connection)
        except Exception:
            for name, gauge in GAUGES.items():
                for labels in self._shown.get(name, set()):
                    gauge.labels(*labels).set(NOBODY_KNOWS)
            raise
        for name, values in _values(figures).items():
            self._publish(name, values)

    def _publish(self, name: str, values: Mapping[Labels, float]) -> None:
        for labels, value in values.items():
            GAUGES[name].labels(*labels).set(value)
        for gone in self._shown.get(name, set()) - values.keys():
            GAUGES[name].remove(*gone)
        self._shown[name] = set(values)


GAUGES: Mapping[str, Gauge] = {
    "pools": POOLS,
    "utilization": UTILIZATION,
    "health": HEALTH,
    "stale": STALE,
}


def _values(figures: PoolFigures) -> dict[str, dict[Labels, float]]:
    """By gauge and labels. A tenant with serving pools has a count of silent ones, also when it is zero."""
    serving = figures.serving
    stale = Tally(one.tenant_id for one in serving if one.stale)
    return {
        "pools": {one[:4]: float(one.pools) for one in figures.counts},
        "utilization": {
            (one.tenant_id, one.pool_id): float(one.utilization)
            for one in serving
            if one.utilization is not None
        },
        "health": {
            (one.tenant_id, one.pool_id, health.value): float(one.health == health)
            for one in serving
            for health in Health
        },
        "stale": {(one.tenant_id,): float(stale[one.tenant_id]) for one in serving},
    }
