"""Every table of the control plane. Constraints and triggers carry the invariants.

- `instances` holds one row per slot: a slot is planned once and has at most one server.
- `reservations.instances` is the number of live slots; a trigger keeps it.
- `pool_capacity.reserved_instances` is the sum of reservations; a trigger keeps it and a CHECK bounds it.

So no transaction, whoever runs it, can book a pool twice or hold a slot that is not reserved.
"""

from store.tables.base import AuditStatus, Phase, Standing, metadata
from store.tables.holdings import instances, pool_backoffs, reservations
from store.tables.intent import claims, contracts, workloads
from store.tables.plans import placement_decisions, plan_generations, rankings, shortlists
from store.tables.plumbing import idempotency_keys, outbox, provider_budgets
from store.tables.provider import (
    audit_log,
    audits,
    drifts,
    fleet_gaps,
    leases,
    provider_notifications,
    quota_reports,
    reconciles,
)
from store.tables.registry import (
    cached_models,
    correlation_groups,
    partitions,
    pool_capacity,
    pool_history,
    pools,
)

__all__ = [
    "AuditStatus",
    "Phase",
    "Standing",
    "audit_log",
    "audits",
    "cached_models",
    "claims",
    "contracts",
    "correlation_groups",
    "drifts",
    "fleet_gaps",
    "idempotency_keys",
    "instances",
    "leases",
    "metadata",
    "outbox",
    "partitions",
    "placement_decisions",
    "plan_generations",
    "pool_backoffs",
    "pool_capacity",
    "pool_history",
    "pools",
    "provider_budgets",
    "provider_notifications",
    "quota_reports",
    "rankings",
    "reconciles",
    "reservations",
    "shortlists",
    "workloads",
]
