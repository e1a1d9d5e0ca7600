"""The hand that keeps which bundle each node holds, as the node says itself when it asks for a newer one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import structlog
from prometheus_client import Counter

from store import nodes
from store.bundles import IssuedBundle
from store.engine import Engine, of_tenant

# A node says it every minute. What has not changed is written this often, so that the time stays telling.
WRITTEN_EVERY = timedelta(minutes=5)
# A node takes a newer bundle when it is answered, and says so within a minute.
LATE = timedelta(minutes=10)
LATE_REPORTS = Counter(
    "sco_bundle_reports_late_total",
    "Times that a node said it holds another bundle than the one issued to it ten minutes ago or earlier",
)
log = structlog.get_logger("bundling")


class BundleReports:
    """Reports for one process. `engine` may be one that sees no rows until a tenant is named."""

    def __init__(self, engine: Engine, *, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._now = now

    async def held(self, tenant_id: str, instance_id: str, version: int, newest: IssuedBundle) -> None:
        """Keep that a node holds a version. One that the newest was issued to long ago is late."""
        now = self._now()
        if version != newest.version and now - newest.issued_at > LATE:
            LATE_REPORTS.inc()
            log.warning("bundle_not_taken", instance=instance_id, held=version, issued=newest.version)
        async with of_tenant(self._engine, tenant_id).begin() as connection:
            await nodes.report_held(connection, tenant_id, instance_id, version, at=now, every=WRITTEN_EVERY)
