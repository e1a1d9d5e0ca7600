"""What the workflow that watches endpoints may ask of its hand. No other imports."""

from __future__ import annotations

from domain.model import Frozen

POOL_HEALTH = "PoolHealth"
PROBE_POOLS = "probe_pools"


class ProbeRequest(Frozen):
    """Probe every endpoint in service, or `only` that of one pool, named by its tenant and id."""

    only: tuple[str, str] | None = None


class Probed(Frozen):
    """What a round of probes found. Endpoints that could not be asked say nothing of their pools.

    `degraded` and `healed` are pools whose health changed, each as `<tenant>/<pool>`.
    """

    probed: int = 0
    failing: int = 0
    not_asked: int = 0
    degraded: tuple[str, ...] = ()
    healed: tuple[str, ...] = ()
