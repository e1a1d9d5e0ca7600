"""Serving pools and what models ask of them, for tests of placing."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from domain.pool import PoolState, SecurityBoundary
from domain.serving.placement_terms import ModelPlacementTerms
from domain.serving.placing import (
    MICRO,
    Decision,
    PoolNow,
    Question,
    decide,
)
from domain.serving.requirements import LatencyClass, ModelRequirements

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
STALENESS = timedelta(seconds=120)
TERMS = ModelPlacementTerms()


def pool(pool_id: str = "gpu-1", *, price: str = "2", utilization: str = "0", **other: Any) -> PoolNow:
    """A pool that passes every filter of `wanted()`, unless something of it is changed."""
    usual = PoolNow(
        tenant_id="acme",
        pool_id=pool_id,
        region="eu-north",
        boundary="private",
        state="active",
        endpoint_ref=f"https://{pool_id}.example.net",
        standing="eligible",
        degraded=False,
        reported_at=NOW,
        vram_gb=160,
        committed_vram_gb=0,
        price_micro_usd=int(Decimal(price) * MICRO),
        utilization_micro=int(Decimal(utilization) * MICRO),
        queue_depth=0,
        cold_start_seconds=40,
    )
    return usual._replace(**other)


def wanted(**other: Any) -> ModelRequirements:
    usual: dict[str, Any] = {
        "deployment_id": "assistant",
        "model": "llama3.3:70b",
        "vram_gb": 70,
        "boundary": SecurityBoundary.PRIVATE,
    }
    return ModelRequirements(**usual | other)


def decision(
    pools: Iterable[PoolNow],
    asked: ModelRequirements | None = None,
    terms: ModelPlacementTerms = TERMS,
    **other: Any,
) -> Decision:
    question = Question(asked or wanted(), terms, NOW, STALENESS)
    return decide(question._replace(**other), pools)


REGIONS = ("eu-north", "eu-west", "eu-south")
POOLS = st.builds(
    PoolNow,
    tenant_id=st.sampled_from(["acme", "platform"]),
    pool_id=st.integers(0, 9).map(lambda number: f"gpu-{number}"),
    region=st.sampled_from(REGIONS),
    boundary=st.sampled_from([each.value for each in SecurityBoundary]),
    state=st.sampled_from(["active", "active", "active", *(each.value for each in PoolState)]),
    endpoint_ref=st.sampled_from(["https://a.example.net", "https://b.example.net", None]),
    standing=st.sampled_from(["eligible", "eligible", "eligible", "excluded", "probation"]),
    degraded=st.sampled_from([False, False, False, True]),
    reported_at=st.sampled_from([NOW, NOW, NOW - STALENESS, NOW - 2 * STALENESS, None]),
    vram_gb=st.sampled_from([24, 80, 160, 640]),
    committed_vram_gb=st.sampled_from([0, 0, 10, 24]),
    price_micro_usd=st.integers(0, 5 * MICRO),
    utilization_micro=st.integers(0, MICRO),
    queue_depth=st.integers(0, 100),
    cold_start_seconds=st.one_of(st.none(), st.integers(0, 400)),
    resident_vram_gb=st.sampled_from([0, 0, 10, 24]),
    loaded=st.booleans(),
)
ESTATES = st.lists(POOLS, max_size=12, unique_by=lambda one: one.name)
WANTED = st.builds(
    ModelRequirements,
    deployment_id=st.just("assistant"),
    model=st.just("llama3.3:70b"),
    vram_gb=st.integers(1, 200),
    boundary=st.sampled_from(SecurityBoundary),
    regions=st.lists(st.sampled_from(REGIONS), max_size=2).map(tuple),
    latency_class=st.sampled_from(LatencyClass),
    max_price_per_hour_usd=st.one_of(st.none(), st.decimals(0, 5, places=6)),
)
