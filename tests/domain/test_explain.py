"""One decision told for people: every pool once, with one reason; what stands where, and what is wasted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.claim import Requirements, Shape
from domain.placement.caps import Terms
from domain.placement.draft import Holding, Live
from domain.placement.explain import Candidate, Decision, Explanation, PoolWaste, ReasonCount, explain
from domain.placement.filters import Shortlist, shortlist
from domain.placement.portfolio import Plan, Question, plan
from domain.placement.scoring import PoolInputs, Ranking, rank
from domain.policy import ScoringPolicy
from domain.pool import PurchaseModel
from domain.reasons import REASON_TEXT, SHORTFALL_TEXT, Reason, ShortfallReason
from tests.domain.strategies import (
    QUICK,
    SHAPES,
    Sketch,
    World,
    any_terms,
    claims,
    inputs_of,
    sketches,
    world_of,
)
from tests.domain.worlds import UNIT, all_free, estate, facts, ranking, terms, wanted

TWO = (SHAPES[0], SHAPES[2])


def told(scored: Ranking, listed: Shortlist, made: Plan | Decision, shapes: Sequence[Shape]) -> Explanation:
    scores = {score.facts.pool_id: score for score in scored.scores}
    return explain(scores, listed, made, shapes, depth_bands=scored.policy.depth_bands)


def told_of(estate: Sequence[Sketch], made: Plan | Decision, world: World) -> Explanation:
    scored = rank("ranking-1", "k8s-eu-north", inputs_of(estate), ScoringPolicy())
    return told(scored, world.listed, made, world.shapes)


estates = st.lists(sketches(), min_size=1, max_size=14)


@QUICK
@given(estates, any_terms(), claims(2))
def test_every_pool_appears_once_with_one_keep_or_exclude_reason(
    estate: list[Sketch], under: Terms, units: tuple[int, ...]
) -> None:
    world = world_of(estate, TWO)
    made = plan(world.asked(units, under))
    explained = told_of(estate, made, world)
    assert sorted(one.pool_id for one in explained.candidates) == sorted(world.listed.entries)
    placed: Counter[str] = Counter()
    for allocation in made.allocations:
        placed[allocation.pool_id] += allocation.units
    for one in explained.candidates:
        assert one.kept is (placed[one.pool_id] > 0) is (one.reason is None)
        assert one.units == placed[one.pool_id]
        assert one.reason is None or one.text == REASON_TEXT[one.reason]
    kept = sum(one.kept for one in explained.candidates)
    assert sum(count.pools for count in explained.counts_by_reason) + kept == len(estate)


@QUICK
@given(estates, any_terms(), claims(2))
def test_candidates_are_read_from_those_kept_to_those_refused(
    estate: list[Sketch], under: Terms, units: tuple[int, ...]
) -> None:
    world = world_of(estate, TWO)
    candidates = told_of(estate, plan(world.asked(units, under)), world).candidates
    part = [0 if one.kept else 1 if one.place is not None else 2 for one in candidates]
    assert part == sorted(part)
    listed = [entry.pool_id for entry in (*world.listed.floor, *world.listed.fill)]
    for number in (0, 1):
        here = [one.pool_id for one, of in zip(candidates, part, strict=True) if of == number]
        assert here == [pool_id for pool_id in listed if pool_id in here]
    refused = [one.pool_id for one, of in zip(candidates, part, strict=True) if of == 2]
    assert refused == sorted(refused)


@QUICK
@given(estates)
def test_the_score_orders_pools_as_the_shortlist_does(estate: list[Sketch]) -> None:
    world = world_of(estate)
    candidates = told_of(estate, plan(world.asked((1,), terms())), world).candidates
    for model, entries in (
        (PurchaseModel.RECLAIMABLE, world.listed.fill),
        (PurchaseModel.COMMITTED, world.listed.floor),
    ):
        listed = [one for one in candidates if one.purchase_model is model and one.place is not None]
        assert _by_score(listed) == [entry.pool_id for entry in entries]
        assert [one.pool_id for one in sorted(listed, key=lambda one: one.place or 0)] == _by_score(listed)
    for one in candidates:
        assert (one.score is None) is (one.pool_id in world.listed.refused)
        assert one.score is None or one.depth_band <= one.score * 20 < one.depth_band + 1


def _by_score(candidates: Sequence[Candidate]) -> list[str]:
    return [one.pool_id for one in sorted(candidates, key=lambda one: (-(one.score or 0), one.pool_id))]


@QUICK
@given(st.lists(st.integers(0, 10**15), min_size=2, max_size=6, unique=True))
def test_the_smallest_difference_in_price_shows_in_the_score(prices_micro_usd: list[int]) -> None:
    inputs = [
        PoolInputs(
            facts=facts(f"pool-{number}", cores=4, price=f"{price}e-6", guaranteed="2e9"), free_instances=9
        )
        for number, price in enumerate(prices_micro_usd)
    ]
    scored = ranking(inputs)
    listed = shortlist(scored, wanted())
    candidates = told(scored, listed, plan(Question((1,), terms(), listed, {})), (UNIT,)).candidates
    assert len({one.score for one in candidates}) == len(prices_micro_usd)
    assert _by_score(candidates) == [entry.pool_id for entry in listed.fill]


def test_a_free_pool_scores_below_a_deeper_one() -> None:
    inputs = [
        PoolInputs(facts=facts("free", price="0"), free_instances=38, observed_hours=720),
        PoolInputs(facts=facts("deep", price="0.8"), free_instances=40, observed_hours=720),
    ]
    scored = ranking(inputs)
    listed = shortlist(scored, wanted())
    deep, free = told(scored, listed, plan(Question((1,), terms(), listed, {})), (UNIT,)).candidates
    assert (deep.pool_id, free.pool_id) == ("deep", "free")
    assert (deep.score or 0) > (free.score or 0)


@QUICK
@given(estates, any_terms(), claims(2))
def test_the_fleet_adds_up_by_pool_group_and_hall(
    estate: list[Sketch], under: Terms, units: tuple[int, ...]
) -> None:
    world = world_of(estate, TWO)
    made = plan(world.asked(units, under))
    explained = told_of(estate, made, world)
    for parts in (explained.pools, explained.groups, explained.halls):
        assert sum(part.units for part in parts) == made.placed_units
        assert sum(part.instances for part in parts) == sum(one.instances for one in made.allocations)
        assert [part.name for part in parts] == sorted(part.name for part in parts)
        assert all(part.reclaimable_share <= part.share <= 1 for part in parts)
    placed = Decimal(made.placed_units) / sum(units)
    assert abs(sum((part.share for part in explained.halls), Decimal(0)) - placed) < Decimal("0.0004")
    assert explained.caps.units == sum(units)
    group_cap = Decimal(explained.caps.group_units) / sum(units)
    assert all(part.reclaimable_share < group_cap + Decimal("0.0001") for part in explained.groups)


@QUICK
@given(estates, any_terms(), claims(2))
def test_waste_is_what_instances_have_beyond_their_units(
    estate: list[Sketch], under: Terms, units: tuple[int, ...]
) -> None:
    world = world_of(estate, TWO)
    made = plan(world.asked(units, under))
    explained = told_of(estate, made, world)
    vcpu = sum(one.instances * estate[int(one.pool_id[5:])].cores * 1000 for one in made.allocations)
    vcpu -= sum(one.units * TWO[one.shape_index].vcpu_milli for one in made.allocations)
    assert explained.waste_total.vcpu_milli == vcpu == sum(one.vcpu_milli for one in explained.waste)
    assert all(one.vcpu_milli >= 0 and one.ram_mib >= 0 for one in explained.waste)


def test_waste_of_a_half_used_instance() -> None:
    estate = [Sketch(1, 1, 16, 3, 5, 0, False, 0)]
    world = world_of(estate)
    made = plan(world.asked((6,), terms(pool="1", group="1")))
    explained = told_of(estate, made, world)
    assert explained.waste == (PoolWaste(pool_id="pool-00", vcpu_milli=8_000, ram_mib=32 * 1024),)


def test_the_example_of_the_private_task_reads_as_it_should() -> None:
    unit = Shape(vcpu_milli=4000, ram_mib=20 * 1024)
    inputs = [
        PoolInputs(facts=facts("local", cores=4, price="0.10"), free_instances=5),
        PoolInputs(facts=facts("cloud-a", cores=8, price="0.80"), free_instances=5),
        PoolInputs(facts=facts("cloud-b", region="us-east", price="0.20"), free_instances=5),
    ]
    scored = ranking(inputs)
    listed = shortlist(scored, wanted(unit, requirements=Requirements(regions=("eu-north",))))
    explained = told(scored, listed, plan(Question((1,), terms(), listed, all_free(listed))), (unit,))
    assert [(one.pool_id, one.reason, one.place) for one in explained.candidates] == [
        ("cloud-a", None, 1),
        ("cloud-b", Reason.REGION, None),
        ("local", Reason.MEMORY, None),
    ]
    assert explained.candidates[0].text == "holds 1 unit on 1 instance, place 1 of 1 for the fill"
    assert explained.candidates[2].unit_price_per_hour_usd is None
    assert explained.counts_by_reason == (
        ReasonCount(reason=Reason.REGION, text=REASON_TEXT[Reason.REGION], pools=1),
        ReasonCount(reason=Reason.MEMORY, text=REASON_TEXT[Reason.MEMORY], pools=1),
    )
    assert explained.cost_per_hour_usd == Decimal("0.80")


def test_a_full_estate_is_explained_pool_by_pool() -> None:
    scored = ranking(estate())
    listed = shortlist(scored, wanted())
    made = plan(Question((42,), terms(floor="0.30"), listed, all_free(listed)))
    explained = told(scored, listed, made, (UNIT,))
    assert len(explained.candidates) == 540
    counts = {one.reason: one.pools for one in explained.counts_by_reason}
    assert counts[Reason.ARCH] == 3 * 4 * 2 * 5
    assert counts[Reason.GPU] == 3 * 4 * 2 * 5
    assert counts[Reason.OUTSCORED] > 100
    assert explained.candidates[0].purchase_model is PurchaseModel.COMMITTED
    assert "for the floor" in explained.candidates[0].text
    assert explained.depth_premium_per_hour_usd * 1_000_000 == made.depth_premium_micro_usd


def test_an_unused_purchase_model_is_not_called_outscored() -> None:
    estate = [Sketch(hall, 1, 4, 4, 9, 0, committed, 0) for hall in (1, 2, 3) for committed in (True, False)]
    world = world_of(estate)
    no_floor = told_of(estate, plan(world.asked((1,), terms())), world)
    reasons = {one.pool_id: one.reason for one in no_floor.candidates}
    assert [reasons[f"pool-{number:02d}"] for number in (0, 2, 4)] == [Reason.PURCHASE_MODEL] * 3
    assert reasons["pool-05"] is Reason.OUTSCORED
    only_floor = told_of(estate, plan(world.asked((1,), terms(floor="1"))), world)
    reasons = {one.pool_id: one.reason for one in only_floor.candidates}
    assert [reasons[f"pool-{number:02d}"] for number in (1, 3, 5)] == [Reason.PURCHASE_MODEL] * 3


def test_a_kept_pool_that_takes_no_more_says_why() -> None:
    estate = [Sketch(1, 1, 4, 9, 5, 0, False, 0), Sketch(2, 1, 4, 5, 50, 0, False, 0)]
    world = world_of(estate)
    made = plan(world.asked((5,), terms(pool="1", group="1"), [Holding("pool-00", 0, 5, 5, 1)]))
    kept = told_of(estate, made, world).candidates[0]
    assert (kept.pool_id, kept.kept, kept.reason, kept.place, kept.score) == (
        "pool-00",
        True,
        None,
        None,
        None,
    )
    assert kept.text == (
        "holds 5 units on 5 instances from before and takes no more: " + REASON_TEXT[Reason.DISCOUNT]
    )


def test_a_pool_whose_units_moved_away_says_why_they_did() -> None:
    estate = [Sketch(hall, 1, 4, 9 if hall == 1 else 5, 50, 0, False, 0) for hall in (1, 2)]
    world = world_of(estate)
    live = {**world.live, "pool-00": Live(0, Reason.EXCLUDED)}
    under = terms(pool="1", group="1")
    made = plan(World(world.listed, live, (UNIT,)).asked((5,), under, [Holding("pool-00", 0, 5, 5, 1)]))
    candidates = told_of(estate, made, world).candidates
    assert [(one.pool_id, one.reason) for one in candidates] == [
        ("pool-01", None),
        ("pool-00", Reason.EXCLUDED),
    ]


def test_missing_units_are_told_with_their_reason() -> None:
    estate = [Sketch(1, 1, 4, 5, 2, 0, False, 0)]
    world = world_of(estate)
    explained = told_of(estate, plan(world.asked((9,), terms(pool="1", group="1"))), world)
    (missing,) = explained.missing
    assert (missing.units, missing.reason) == (7, ShortfallReason.CAPACITY)
    assert missing.text == SHORTFALL_TEXT[ShortfallReason.CAPACITY]


@QUICK
@given(estates, any_terms(), claims(2))
def test_the_stored_parts_explain_as_well_as_the_plan(
    estate: list[Sketch], under: Terms, units: tuple[int, ...]
) -> None:
    world = world_of(estate, TWO)
    made = plan(world.asked(units, under))
    stored = Decision(
        caps=made.caps,
        allocations=made.allocations,
        shortfalls=made.shortfalls,
        reasons=made.reasons,
        cost_micro_usd=made.cost_micro_usd,
        depth_premium_micro_usd=made.depth_premium_micro_usd,
    )
    explained = told_of(estate, made, world)
    assert told_of(estate, stored, world) == explained
    assert Explanation.model_validate_json(explained.model_dump_json()) == explained


def test_an_explanation_is_a_value() -> None:
    estate = [Sketch(1, 1, 4, 5, 2, 0, False, 0)]
    explained = told_of(estate, plan(world_of(estate).asked((1,), terms())), world_of(estate))
    with pytest.raises(ValueError, match="frozen"):
        explained.missing = ()  # type: ignore[misc]
