"""Which pool may run a model: filters in their order, the score, and the outcome when none may."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError

from domain.pool import SecurityBoundary
from domain.reasons import MODEL_REASON_TEXT, Reason
from domain.serving.placement_terms import ModelPlacementTerms
from domain.serving.placing import (
    FILTERS,
    MICRO,
    Decision,
    Parts,
    PlacementOutcome,
    verdicts,
)
from domain.serving.requirements import LatencyClass, ModelRequirements
from tests.domain.serving.pools import NOW, STALENESS, TERMS, decision, pool, wanted

# What makes a pool fail one filter and pass all the others, in the order of the filters.
FAILING: list[tuple[Reason, dict[str, Any]]] = [
    (Reason.BOUNDARY, {"boundary": "regional"}),
    (Reason.REGION, {"region": "eu-west"}),
    (Reason.MEMORY, {"vram_gb": 69}),
    (Reason.PRICE, {"price_micro_usd": 3 * MICRO + 1}),
    (Reason.LATENCY, {"queue_depth": 261}),
    (Reason.STATE, {"state": "draining"}),
    (Reason.STALE, {"reported_at": NOW - STALENESS - timedelta(microseconds=1)}),
    (Reason.DEGRADED, {"degraded": True}),
    (Reason.EXCLUDED, {"standing": "excluded"}),
    (Reason.PROBATION, {"standing": "probation"}),
    (Reason.BACKED_OFF, {"backed_off": True}),
    (Reason.CAPACITY, {"committed_vram_gb": 91}),
]
STRICT = wanted(regions=("eu-north",), max_price_per_hour_usd=Decimal(3))


def reasons(found: Decision) -> dict[str, Reason | None]:
    return {one.pool_id: reason for one, reason in verdicts(found)}


def test_a_70_gb_private_task_goes_to_cloud_a_and_both_exclusions_are_recorded() -> None:
    """70 GB private task; local GPU too small, cloud A fits, cloud B cheaper in a forbidden region -> A."""
    local = pool("local-gpu", vram_gb=24, price="0", loaded=True)
    cloud_a = pool("cloud-a", vram_gb=80, price="3.50")
    cloud_b = pool("cloud-b", vram_gb=80, price="1.20", region="us-east")
    task = wanted(vram_gb=70, boundary=SecurityBoundary.PRIVATE, regions=("eu-north", "eu-west"))
    found = decision([local, cloud_a, cloud_b], task)
    assert found.outcome is PlacementOutcome.PLACED
    assert found.chosen is not None
    assert found.chosen.pool == cloud_a
    assert reasons(found) == {"cloud-a": None, "cloud-b": Reason.REGION, "local-gpu": Reason.MEMORY}


def test_the_filters_are_those_that_are_tested_here() -> None:
    assert [reason for reason, _ in FILTERS] == [reason for reason, _ in FAILING]
    assert set(MODEL_REASON_TEXT) == {reason for reason, _ in FILTERS} | {Reason.OUTSCORED}


@pytest.mark.parametrize(("reason", "failing"), FAILING, ids=[reason for reason, _ in FAILING])
def test_each_filter_refuses_what_it_must_and_nothing_else(reason: Reason, failing: dict[str, Any]) -> None:
    assert reasons(decision([pool()], STRICT)) == {"gpu-1": None}
    assert reasons(decision([pool(**failing)], STRICT)) == {"gpu-1": reason}


def test_the_first_filter_that_refuses_gives_the_reason() -> None:
    for place, (reason, _) in enumerate(FAILING):
        spoilt: dict[str, Any] = {}
        for _, failing in FAILING[place:]:
            spoilt = failing | spoilt
        assert reasons(decision([pool(**spoilt)], STRICT)) == {"gpu-1": reason}


@pytest.mark.parametrize(
    ("boundary", "admitted"),
    [
        (SecurityBoundary.PRIVATE, {"private"}),
        (SecurityBoundary.REGIONAL, {"private", "regional"}),
        (SecurityBoundary.SHARED, {"private", "regional", "shared"}),
    ],
)
def test_a_stricter_boundary_is_acceptable_too(boundary: SecurityBoundary, admitted: set[str]) -> None:
    pools = [pool(each.value, boundary=each.value) for each in SecurityBoundary]
    found = decision(pools, wanted(boundary=boundary))
    assert {one.pool.pool_id for one in found.kept} == admitted


def test_a_pool_at_the_edge_of_every_limit_is_kept() -> None:
    edge = pool(
        vram_gb=70,
        price="3",
        queue_depth=260,
        reported_at=NOW - STALENESS,
        committed_vram_gb=0,
    )
    assert reasons(decision([edge], STRICT)) == {"gpu-1": None}


def test_a_pool_without_endpoint_or_report_takes_nothing() -> None:
    assert reasons(decision([pool(endpoint_ref=None)])) == {"gpu-1": Reason.STATE}
    assert reasons(decision([pool(reported_at=None)])) == {"gpu-1": Reason.STALE}


@pytest.mark.parametrize(
    ("resident", "committed", "reason"),
    [(0, 90, None), (0, 91, Reason.CAPACITY), (70, 160, None), (60, 150, None), (60, 151, Reason.CAPACITY)],
)
def test_placements_of_one_model_share_its_memory(
    resident: int, committed: int, reason: Reason | None
) -> None:
    found = decision([pool(resident_vram_gb=resident, committed_vram_gb=committed)])
    assert reasons(found) == {"gpu-1": reason}


def test_a_model_that_is_loaded_after_all_may_be_used_where_it_did_not_load_before() -> None:
    pools = [pool("loaded", backed_off=True, loaded=True), pool("loading", backed_off=True, loading=True)]
    assert reasons(decision(pools)) == {"loaded": None, "loading": Reason.BACKED_OFF}


def test_a_pool_that_proved_to_be_full_is_left_out() -> None:
    found = decision([pool("a"), pool("b", price="9")], full=frozenset({("acme", "a")}))
    assert reasons(found) == {"a": Reason.CAPACITY, "b": None}


@pytest.mark.parametrize(
    ("latency_class", "limit"),
    [(LatencyClass.INTERACTIVE, 60), (LatencyClass.STANDARD, 300), (LatencyClass.BATCH, 3600)],
)
def test_a_latency_class_bounds_load_and_queue_together(latency_class: LatencyClass, limit: int) -> None:
    asked = wanted(latency_class=latency_class)
    just = pool("just", cold_start_seconds=limit - 10, queue_depth=10)
    late = pool("late", cold_start_seconds=limit - 10, queue_depth=11)
    assert reasons(decision([just, late], asked)) == {"just": None, "late": Reason.LATENCY}


def test_a_loaded_model_needs_no_cold_start() -> None:
    found = decision([pool(loaded=True, cold_start_seconds=4000, queue_depth=7)])
    assert found.chosen is not None
    assert (found.chosen.cold_start_seconds, found.chosen.start_seconds) == (0, 7)


def test_an_unknown_cold_start_is_never_taken_for_a_fast_one() -> None:
    found = decision([pool(cold_start_seconds=None)])
    assert found.chosen is not None
    assert found.chosen.cold_start_seconds == TERMS.unknown_cold_start_seconds


def test_the_score_is_the_weighted_sum_of_four_parts() -> None:
    cheap = pool("cheap", price="1", utilization="0.75", cold_start_seconds=240)
    warm = pool("warm", price="4", utilization="0.5", loaded=True)
    found = decision([cheap, warm])
    assert [(one.pool.pool_id, one.parts, one.score) for one in found.kept] == [
        ("warm", Parts(MICRO, 250_000, 500_000, MICRO), Decimal("0.675")),
        ("cheap", Parts(0, MICRO, 250_000, 200_000), Decimal("0.37")),
    ]


def test_other_weights_choose_another_pool() -> None:
    pools = [pool("cheap", price="1"), pool("warm", price="4", loaded=True)]
    thrifty = ModelPlacementTerms(
        warm_weight=Decimal("0.05"), price_weight=Decimal("0.85"), utilization_weight=Decimal(0)
    )
    chosen = [decision(pools, terms=terms).kept[0].pool.pool_id for terms in (TERMS, thrifty)]
    assert chosen == ["warm", "cheap"]


def test_equal_pools_stand_in_the_order_of_tenant_and_id() -> None:
    pools = [pool("b"), pool("a", tenant_id="platform"), pool("c"), pool("a")]
    found = decision(pools)
    assert [one.pool.name for one in found.kept] == [
        ("acme", "a"),
        ("acme", "b"),
        ("acme", "c"),
        ("platform", "a"),
    ]


def test_a_free_pool_is_the_cheapest_and_does_not_divide_by_zero() -> None:
    found = decision([pool("free", price="0"), pool("also-free", price="0"), pool("dear", price="9")])
    assert {one.pool.pool_id: one.parts.price for one in found.kept} == {
        "free": MICRO,
        "also-free": MICRO,
        "dear": 0,
    }


def test_policy_is_denied_only_where_boundary_and_region_leave_nothing() -> None:
    abroad, open_pool = pool("abroad", region="us-east"), pool("open", boundary="shared")
    only = wanted(regions=("eu-north",))
    assert decision([abroad, open_pool], only).outcome is PlacementOutcome.POLICY_DENIED
    assert decision([], only).outcome is PlacementOutcome.POLICY_DENIED
    for reason, failing in FAILING[2:]:
        found = decision([abroad, open_pool, pool(**failing)], STRICT)
        assert (found.outcome, found.chosen) == (PlacementOutcome.NO_CAPACITY, None), reason


def test_equal_requirements_are_equal_however_they_are_written() -> None:
    one = wanted(regions=("eu-west", "eu-north"), max_price_per_hour_usd=Decimal("1.50"))
    other = wanted(regions=("eu-north", "eu-west", "eu-west"), max_price_per_hour_usd=Decimal("1.5"))
    assert one == other
    assert one.model_dump_json() == other.model_dump_json()
    assert ModelRequirements.model_validate(one.model_dump(mode="json")) == one


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"warm_weight": "0.5"}, "the weights add up to 1.1, not to 1"),
        ({"warm_weight": "-0.1", "price_weight": "0.8"}, "greater than or equal to 0"),
        ({"warm_weight": "0.40001", "price_weight": "0.29999"}, "4 decimal places"),
        ({"interactive_start_seconds": 301}, "must not fall from interactive to standard to batch"),
        ({"hold_seconds": 0}, "greater than or equal to 10"),
    ],
)
def test_terms_that_make_no_sense_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ModelPlacementTerms.model_validate(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"vram_gb": 0},
        {"model": ""},
        {"model": "../etc/passwd\n"},
        {"deployment_id": "a/b"},
        {"boundary": "open"},
        {"max_price_per_hour_usd": "-1"},
        {"max_price_per_hour_usd": "NaN"},
        {"regions": ("EU",)},
        {"pool_id": "gpu-1"},
    ],
)
def test_requirements_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        wanted(**wrong)
