"""Which pools one requirement class may use, and the one reason for each that it may not."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.claim import Requirements, Shape
from domain.placement.filters import (
    SystemReserve,
    pool_cap_units_that_matter,
    refused_by,
    shortlist,
    units_per_instance,
)
from domain.placement.scoring import PoolInputs, rank, score_pool
from domain.policy import ScoringPolicy
from domain.pool import Arch, PoolFacts, PurchaseModel, SecurityBoundary
from domain.reasons import Reason
from tests.domain.strategies import QUICK, SHAPES, Sketch, inputs_of, sketches
from tests.domain.worlds import UNIT, estate, facts, ranking, wanted

POLICY = ScoringPolicy()
GPU_UNIT = Shape(vcpu_milli=4000, ram_mib=16 * 1024, gpus=1)


def reason_for(pool: PoolFacts, episodes: int = 0, **requires: Any) -> Reason | None:
    score = score_pool(
        PoolInputs(facts=pool, free_instances=9, episodes=episodes, observed_hours=720), POLICY
    )
    shapes = requires.pop("shapes", (UNIT,))
    tolerated = requires.pop("tolerated", "1")
    return refused_by(score, wanted(*shapes, tolerated=tolerated, requirements=Requirements(**requires)))


@pytest.mark.parametrize(
    ("pool", "requires", "reason"),
    [
        (facts(), {}, None),
        (facts(family="ga"), {}, Reason.ARCH),
        (facts(family="ga"), {"arch": Arch.ARM64}, None),
        (facts(), {"shapes": (GPU_UNIT,)}, Reason.GPU),
        (facts(), {"gpu_type": "a100"}, Reason.GPU),
        (facts(family="g2"), {"gpu_type": "l4"}, Reason.GPU),
        (facts(family="g2"), {"gpu_type": "a100", "shapes": (GPU_UNIT,)}, None),
        (facts(family="g2"), {"shapes": (GPU_UNIT.model_copy(update={"gpus": 2}),)}, Reason.GPU),
        (facts(family="g2"), {}, Reason.GPU),
        (facts(), {"nvme": True}, Reason.NVME),
        (facts(family="st"), {"nvme": True}, None),
        (facts(), {"min_nic_gbps": 25}, Reason.NIC),
        (facts(family="hn"), {"min_nic_gbps": 100}, None),
        (facts(), {"regions": ("eu-west",)}, Reason.REGION),
        (facts(), {"regions": ("eu-north", "eu-west")}, None),
        (facts(), {"boundaries": (SecurityBoundary.PRIVATE,)}, Reason.BOUNDARY),
        (facts(), {"boundaries": (SecurityBoundary.REGIONAL,)}, None),
        (facts(), {"shapes": (Shape(vcpu_milli=8001, ram_mib=1),)}, Reason.CPU),
        (facts(), {"shapes": (Shape(vcpu_milli=8000, ram_mib=1),)}, None),
        (facts(), {"shapes": (Shape(vcpu_milli=1, ram_mib=32 * 1024 + 1),)}, Reason.MEMORY),
        (facts(), {"max_price_per_unit_hour_usd": "0.17"}, Reason.PRICE),
        (facts(), {"max_price_per_unit_hour_usd": "0.175"}, None),
        (facts(price="0.90"), {}, Reason.DISCOUNT),
    ],
)
def test_a_pool_is_refused_for_its_reason(
    pool: PoolFacts, requires: dict[str, Any], reason: Reason | None
) -> None:
    assert reason_for(pool, **requires) is reason


def test_a_pool_is_refused_when_it_is_reclaimed_more_often_than_tolerated() -> None:
    assert reason_for(facts(), episodes=200, tolerated="0.1") is Reason.INTERRUPTION_RATE
    assert reason_for(facts(), episodes=200, tolerated="0.3") is None
    committed = facts(model=PurchaseModel.COMMITTED)
    assert reason_for(committed, episodes=200, tolerated="0.1") is None


def test_an_unknown_history_meets_the_tolerance_as_the_prior_does() -> None:
    unknown = score_pool(PoolInputs(facts=facts(), free_instances=9), POLICY)
    assert refused_by(unknown, wanted(tolerated="0.05")) is None
    assert refused_by(unknown, wanted(tolerated="0.04")) is Reason.INTERRUPTION_RATE


def test_the_first_filter_that_refuses_gives_the_reason() -> None:
    """What can never run there is said before what it costs; policy is said before all."""
    pool = facts(family="ga", price="0.90")
    assert reason_for(pool, regions=("eu-west",), min_nic_gbps=100) is Reason.REGION
    assert reason_for(pool, min_nic_gbps=100) is Reason.ARCH
    assert reason_for(pool, arch=Arch.ARM64, min_nic_gbps=100) is Reason.NIC
    assert reason_for(pool, arch=Arch.ARM64) is Reason.DISCOUNT


def test_the_maximum_price_binds_every_shape() -> None:
    """The small unit fits more often, so the unit with much memory is the dear one here."""
    many, few = Shape(vcpu_milli=2000, ram_mib=1024), Shape(vcpu_milli=1000, ram_mib=32 * 1024)
    assert reason_for(facts(), shapes=(many,), max_price_per_unit_hour_usd="0.10") is None
    assert reason_for(facts(), shapes=(many, few), max_price_per_unit_hour_usd="0.10") is Reason.PRICE


def test_guaranteed_capacity_is_no_candidate_of_a_placement() -> None:
    inputs = [PoolInputs(facts=facts("dear", model=PurchaseModel.GUARANTEED), free_instances=9)]
    listed = shortlist(ranking(inputs), wanted())
    assert listed.refused == {"dear": Reason.PURCHASE_MODEL}
    assert not listed.entries["dear"].reclaimable


@QUICK
@given(st.integers(1, 128), st.integers(1, 512), st.integers(0, 8), st.sampled_from((*SHAPES, GPU_UNIT)))
def test_as_many_units_fit_as_the_scarcest_resource_admits(
    cores: int, ram_gb: int, gpus: int, shape: Shape
) -> None:
    reserve = SystemReserve(vcpu_milli=500, ram_mib=512)
    pool = facts().model_copy(update={"cpu_cores": cores, "ram_gb": ram_gb, "gpu_count": gpus})

    def hold(units: int) -> bool:
        return (
            units * shape.vcpu_milli + reserve.vcpu_milli <= cores * 1000
            and units * shape.ram_mib + reserve.ram_mib <= ram_gb * 1024
            and units * shape.gpus <= gpus
        )

    fits = units_per_instance(pool, shape, reserve)
    assert fits == 0 or hold(fits)
    assert not hold(fits + 1)


@QUICK
@given(st.lists(sketches(), min_size=1, max_size=14))
def test_every_pool_is_listed_once_or_refused_once(estate_sketch: list[Sketch]) -> None:
    listed = shortlist(rank("r", "p", inputs_of(estate_sketch), POLICY), wanted())
    named = [entry.pool_id for entry in (*listed.fill, *listed.floor)] + list(listed.refused)
    assert sorted(named) == sorted(listed.entries)
    for entries in (listed.fill, listed.floor):
        assert [listed.rank_of[entry.pool_id] for entry in entries] == list(range(1, len(entries) + 1))


@QUICK
@given(st.lists(sketches(committed=False), min_size=1, max_size=14))
def test_the_cheapest_order_is_exact(estate_sketch: list[Sketch]) -> None:
    listed = shortlist(rank("r", "p", inputs_of(estate_sketch), POLICY), wanted(*SHAPES))
    for index, order in enumerate(listed.cheapest):
        prices = [Decimal(entry.price_micro_usd) / entry.per_instance[index] for entry in order]
        assert prices == sorted(prices)


def test_a_small_claim_prefers_instances_that_it_can_fill() -> None:
    """Equal prices per vCPU but for a trifle: a cap of one unit makes the largest size the dearest."""
    sizes = [
        PoolInputs(facts=facts(f"pool-{size}", cores=size, price=f"{size}"), free_instances=50)
        for size in (4, 32)
    ]
    sizes = [
        one.model_copy(
            update={"facts": one.facts.model_copy(update={"guaranteed_price_per_hour_usd": Decimal(99)})}
        )
        for one in sizes
    ]
    assert shortlist(ranking(sizes), wanted(cap_units=1)).fill[0].pool_id == "pool-4"
    assert shortlist(ranking(sizes), wanted(cap_units=8)).fill[0].pool_id == "pool-32"


@QUICK
@given(st.integers(1, 2_000), st.sampled_from([SHAPES, SHAPES[::-1], SHAPES[3:4]]))
def test_caps_above_what_an_instance_holds_share_one_shortlist(cap: int, shapes: tuple[Shape, ...]) -> None:
    scored = ranking(estate(("eu-north",))[:20])
    cut = pool_cap_units_that_matter(scored, shapes, cap)
    assert cut <= 32_000 // shapes[0].vcpu_milli
    exact = shortlist(scored, wanted(*shapes, cap_units=cap))
    shared = shortlist(scored, wanted(*shapes, cap_units=cut))
    assert [one.pool_id for one in exact.fill] == [one.pool_id for one in shared.fill]


def test_equal_classes_have_equal_keys() -> None:
    assert wanted().key == wanted().key
    assert wanted().key != wanted(cap_units=3).key
    assert wanted().key != wanted(requirements=Requirements(regions=("eu-west",))).key
