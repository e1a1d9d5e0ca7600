"""What placements of models look like from outside. Labels name tenants: for the operators' port alone."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

BUCKETS_SECONDS = (0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)

PLACEMENTS = Counter(
    "connectsoft_factory_compute_pools_placements_total",
    "Placement requests of models, by outcome",
    ["tenant", "outcome"],
)
COLD_STARTS = Counter(
    "connectsoft_factory_compute_pools_cold_starts_total",
    "Models loaded because of a placement",
    ["tenant", "pool"],
)
PLACE_SECONDS = Histogram(
    "sco_model_place_seconds",
    "Time to decide a model placement and keep its memory, without the commit",
    buckets=BUCKETS_SECONDS,
)
CONTENDED = Counter(
    "sco_model_place_contended_total", "Model placements decided again because others were faster"
)
WITHOUT_SECRETS = Counter(
    "sco_model_place_secrets_unavailable_total", "Model placements refused for want of a credential"
)
# What a process counts that places; the others are counted by workers.
OF_PLACING = (PLACEMENTS, PLACE_SECONDS, CONTENDED, WITHOUT_SECRETS)
FAILED = Counter("sco_model_placements_failed_total", "Model placements whose model did not load", ["kind"])
