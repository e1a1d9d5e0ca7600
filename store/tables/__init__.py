"""Every table of the control plane. Constraints and triggers carry the invariants.

- `instances` holds one row per slot: a slot is planned once and has at most one server.
- `reservations.instances` is the number of live slots; a trigger keeps it.
- `pool_capacity.reserved_instances` is the sum of reservations; a trigger keeps it and a CHECK bounds it.
- `pool_serving.committed_vram_gb` is the memory of the models there; a trigger keeps it, a CHECK bounds it.

So no transaction, whoever runs it, can book a pool twice or hold a slot that is not reserved.
"""

from store.tables.base import AuditStatus, Phase, Standing, metadata
from store.tables.holdings import instances, pool_backoffs, reservations
from store.tables.intent import claims, contracts, workloads
from store.tables.lifecycle import lifecycle_events, node_drains
from store.tables.nodes import bundles, node_identities, node_nonces, node_tokens
from store.tables.plans import placement_decisions, plan_generations, rankings, shortlists
from store.tables.plumbing import event_streams, idempotency_keys, outbox, provider_budgets
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
    correlation_groups,
    partitions,
    pool_capacity,
    pool_history,
    pools,
)
from store.tables.serving import (
    LoadCause,
    LoadOutcome,
    ModelState,
    PlacementState,
    WarmStatus,
    cached_models,
    endpoint_reports,
    model_loads,
    model_placements,
    pool_serving,
    usage_records,
    warm_profiles,
    warm_requests,
)

__all__ = [
    "AuditStatus",
    "LoadCause",
    "LoadOutcome",
    "ModelState",
    "Phase",
    "PlacementState",
    "Standing",
    "WarmStatus",
    "audit_log",
    "audits",
    "bundles",
    "cached_models",
    "claims",
    "contracts",
    "correlation_groups",
    "drifts",
    "endpoint_reports",
    "event_streams",
    "fleet_gaps",
    "idempotency_keys",
    "instances",
    "leases",
    "lifecycle_events",
    "metadata",
    "model_loads",
    "model_placements",
    "node_drains",
    "node_identities",
    "node_nonces",
    "node_tokens",
    "outbox",
    "partitions",
    "placement_decisions",
    "plan_generations",
    "pool_backoffs",
    "pool_capacity",
    "pool_history",
    "pool_serving",
    "pools",
    "provider_budgets",
    "provider_notifications",
    "quota_reports",
    "rankings",
    "reconciles",
    "reservations",
    "shortlists",
    "usage_records",
    "warm_profiles",
    "warm_requests",
    "workloads",
]
