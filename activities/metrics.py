"""What the store-backed hands look like from outside: decisions, launches, shortfalls and freshness."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

DECISION_BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10)

DECISIONS = Counter("sco_placement_decisions_total", "Plan generations that were committed", ["outcome"])
DECISION_SECONDS = Histogram(
    "sco_placement_decision_seconds",
    "Time of a placement decision, from its start to its commit",
    buckets=DECISION_BUCKETS_SECONDS,
)
CONTENDED = Counter(
    "sco_placement_decisions_contended_total", "Decisions made again because capacity went elsewhere"
)
FINISHED = Counter("sco_placements_finished_total", "Runs of a placement that recorded an outcome", ["phase"])
ACTIVE = Counter("sco_instances_active_total", "Instances that became ACTIVE", ["region"])
FAILED = Counter("sco_launch_failures_total", "Planned instances that will not run", ["region", "kind"])
RELEASED = Counter("sco_instances_released_total", "Instances that were given back", ["region"])
SHORTFALL = Gauge("sco_shortfall_units", "Claimed units that are not placed", ["partition", "reason"])
RANKED_AT = Gauge("sco_ranking_timestamp_seconds", "When the newest ranking was stored", ["partition"])
OPEN_POOLS = Gauge("sco_ranking_open_pools", "Pools of the newest ranking that claims may use", ["partition"])
OBSERVED_AT = Gauge("sco_observation_timestamp_seconds", "When a region was last observed", ["region"])
