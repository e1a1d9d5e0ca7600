"""What a plan says of units it could not place, and of the pools it did not use."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given

from domain.claim import Requirements, Shape
from domain.placement.caps import Terms
from domain.placement.draft import Holding, Live
from domain.placement.filters import shortlist
from domain.placement.portfolio import Plan, Question, Shortfall, plan
from domain.placement.scoring import PoolInputs
from domain.pool import PoolFacts, PoolKind, PurchaseModel, SecurityBoundary
from domain.reasons import Reason, ShortfallReason
from tests.domain.invariants import check
from tests.domain.strategies import QUICK, SHAPES, Lived, Sketch, World, histories, world_of
from tests.domain.worlds import UNIT, all_free, estate, facts, ranking, terms, wanted

LOOSE = terms(pool="1", group="1")
GPU_UNIT = Shape(vcpu_milli=8000, ram_mib=70 * 1024, gpus=1)


def pools(groups: int, *, free: int = 50, committed: int = 0, cores: int = 4) -> World:
    """One reclaimable pool in each of `groups` groups, and one committed pool in each of some halls."""
    estate = [
        Sketch(1 + number % 4, 1 + number // 4, cores, 3, free, 0, False, 0) for number in range(groups)
    ]
    estate += [Sketch(1 + number, 1, cores, 5, free, 0, True, 0) for number in range(committed)]
    return world_of(estate)


def with_live(world: World, state: Live, *pool_ids: str) -> World:
    return replace(world, live={**world.live, **{pool_id: state for pool_id in pool_ids or world.live}})


def asked(world: World, units: int, under: Terms) -> Plan:
    question = world.asked((units,), under)
    made = plan(question)
    check(question, made)
    return made


def test_too_few_groups_cannot_keep_the_caps() -> None:
    """Two groups of three pools admit 2 * 30 % of the claim, four pools 4 * 15 %."""
    for world in (pools(4), world_of([Sketch(1, 1 + n % 2, 4, 3, 50, 0, False, 0) for n in range(6)])):
        made = asked(world, 100, terms())
        assert made.shortfalls == (Shortfall(40, ShortfallReason.CAPS_UNSATISFIABLE),)


@pytest.mark.parametrize(
    ("groups", "floor", "short"), [(5, "0.30", 0), (4, "0.30", 10), (7, "0", 0), (6, "0", 10)]
)
def test_the_caps_can_be_kept_with_as_many_pools_as_contracts_are_told(
    groups: int, floor: str, short: int
) -> None:
    made = asked(pools(groups, committed=4), 100, terms(floor=floor))
    assert sum(one.units for one in made.shortfalls) == short


def test_full_pools_are_a_lack_of_capacity() -> None:
    made = asked(pools(8, free=2), 40, terms())
    assert made.shortfalls == (Shortfall(24, ShortfallReason.CAPACITY),)
    assert made.placed_units == 16


def test_without_committed_capacity_the_floor_is_short_and_nothing_takes_its_place() -> None:
    made = asked(pools(8), 40, terms(floor="0.30"))
    assert made.shortfalls == (Shortfall(12, ShortfallReason.FLOOR_CAPACITY),)
    assert made.placed_units == 28


def test_a_floor_is_met_as_far_as_committed_capacity_goes() -> None:
    made = asked(pools(8, committed=2, free=4), 40, terms(floor="0.30"))
    assert made.shortfalls == (Shortfall(4, ShortfallReason.FLOOR_CAPACITY),)
    assert not made.floor_spread_met


def test_committed_capacity_alone_leaves_the_rest_without_a_pool() -> None:
    made = asked(pools(0, committed=4), 40, terms(floor="0.30"))
    assert made.shortfalls == (Shortfall(28, ShortfallReason.NO_ELIGIBLE_POOL),)


def test_launches_that_failed_are_named_where_they_are_what_is_missing() -> None:
    world = with_live(pools(8), Live(50, Reason.BACKED_OFF), "pool-00", "pool-01", "pool-02")
    made = asked(world, 40, terms())
    assert made.shortfalls == (Shortfall(10, ShortfallReason.LAUNCHES_FAILED),)
    assert made.reasons["pool-00"] is Reason.BACKED_OFF


def test_caps_are_named_before_failed_launches_when_no_launch_could_help() -> None:
    world = with_live(pools(4), Live(50, Reason.BACKED_OFF), "pool-00")
    assert asked(world, 100, terms()).shortfalls == (Shortfall(55, ShortfallReason.CAPS_UNSATISFIABLE),)


def test_capacity_is_named_when_the_pool_that_failed_is_full_of_our_own_units() -> None:
    world = with_live(pools(8, free=1), Live(9, Reason.BACKED_OFF), "pool-00")
    made = plan(world.asked((40,), terms(), [Holding("pool-00", 0, 6, 6, 1)]))
    assert made.shortfalls == (Shortfall(27, ShortfallReason.CAPACITY),)


def test_a_pool_that_takes_nothing_new_counts_for_what_it_holds() -> None:
    """Seven pools are needed; the seventh is stale and full, so capacity is missing and not pools."""
    world = with_live(pools(7, free=5), Live(9, Reason.STALE), "pool-00")
    made = plan(world.asked((40,), terms(), [Holding("pool-00", 0, 6, 6, 1)]))
    assert made.shortfalls == (Shortfall(4, ShortfallReason.CAPACITY),)


@pytest.mark.parametrize("reason", [Reason.EXCLUDED, Reason.STATE, Reason.STALE, Reason.DEGRADED])
def test_pools_that_are_out_for_now_leave_too_few_to_keep_the_caps(reason: Reason) -> None:
    made = asked(with_live(pools(8), Live(50, reason), "pool-00", "pool-01"), 100, terms())
    assert made.shortfalls == (Shortfall(10, ShortfallReason.CAPS_UNSATISFIABLE),)


@pytest.mark.parametrize(
    ("requires", "why"),
    [
        (Requirements(regions=("eu-west",)), ShortfallReason.POLICY_DENIED),
        (Requirements(boundaries=(SecurityBoundary.PRIVATE,)), ShortfallReason.POLICY_DENIED),
        (Requirements(min_nic_gbps=100), ShortfallReason.NO_ELIGIBLE_POOL),
        (Requirements(gpu_type="a100"), ShortfallReason.NO_ELIGIBLE_POOL),
    ],
)
@pytest.mark.parametrize("committed", [False, True])
def test_no_pool_at_all_is_denied_by_policy_only_for_region_and_boundary(
    requires: Requirements, why: ShortfallReason, committed: bool
) -> None:
    inputs = [PoolInputs(facts=facts(), free_instances=9)]
    if committed:
        inputs.append(
            PoolInputs(facts=facts("lease", model=PurchaseModel.COMMITTED, price="1"), free_instances=9)
        )
    listed = shortlist(ranking(inputs), wanted(requirements=requires))
    made = plan(Question((10,), terms(floor="0.30"), listed, all_free(listed)))
    assert made.shortfalls == (Shortfall(3, why), Shortfall(7, why))
    assert made.placed_units == 0


def test_an_empty_ranking_has_no_eligible_pool() -> None:
    listed = shortlist(ranking([]), wanted())
    made = plan(Question((3,), terms(), listed, {}))
    assert made.shortfalls == (Shortfall(3, ShortfallReason.NO_ELIGIBLE_POOL),)


def test_a_unit_that_is_larger_than_every_instance_has_no_pool() -> None:
    for shape, reason in (
        (Shape(vcpu_milli=64_000, ram_mib=1024), Reason.CPU),
        (Shape(vcpu_milli=1000, ram_mib=2**20), Reason.MEMORY),
    ):
        listed = shortlist(ranking(estate(("eu-north",))), wanted(shape))
        assert reason in set(listed.refused.values())
        made = plan(Question((1,), terms(), listed, all_free(listed)))
        assert made.shortfalls == (Shortfall(1, ShortfallReason.NO_ELIGIBLE_POOL),)


def gpu_pool(
    pool_id: str, *, region: str, ram_gb: int, price: str, kind: PoolKind, boundary: SecurityBoundary
) -> PoolInputs:
    base = facts(pool_id, region=region, hall=f"{region}-h1", group=pool_id, family="g2", price=price)
    changed = {"kind": kind, "ram_gb": ram_gb, "security_boundary": boundary}
    document = base.model_dump() | changed | {"guaranteed_price_per_hour_usd": Decimal(10)}
    return PoolInputs(facts=PoolFacts.model_validate(document), free_instances=1)


def test_a_private_task_of_70_gb_goes_to_the_allowed_cloud_not_to_the_cheaper_one() -> None:
    private = SecurityBoundary.PRIVATE
    inputs = [
        gpu_pool(
            "local-gpu",
            region="eu-north",
            ram_gb=24,
            price="0.10",
            kind=PoolKind.LOCAL_GPU_SERVER,
            boundary=private,
        ),
        gpu_pool(
            "cloud-a", region="eu-north", ram_gb=80, price="3", kind=PoolKind.CLOUD_GPU, boundary=private
        ),
        gpu_pool(
            "cloud-b", region="us-east", ram_gb=80, price="1", kind=PoolKind.CLOUD_GPU, boundary=private
        ),
    ]
    requires = Requirements(regions=("eu-north",), boundaries=(private,), gpu_type="a100")
    listed = shortlist(ranking(inputs), wanted(GPU_UNIT, requirements=requires))
    made = plan(Question((1,), terms(), listed, all_free(listed, 1)))
    assert [(one.pool_id, one.units) for one in made.allocations] == [("cloud-a", 1)]
    assert listed.refused == {"local-gpu": Reason.MEMORY, "cloud-b": Reason.REGION}
    assert made.shortfalls == ()


def test_six_shapes_with_and_without_gpus_are_spread_over_the_gpu_pools() -> None:
    shapes = tuple(
        Shape(vcpu_milli=vcpu, ram_mib=vcpu * 4, gpus=gpus)
        for gpus, vcpu in ((2, 8000), (1, 8000), (1, 4000), (1, 2000), (0, 2000), (0, 500))
    )
    listed = shortlist(ranking(estate()), wanted(*shapes))
    assert {entry.pool_id.split("-")[3] for entry in listed.fill} == {"g1", "g2"}
    question = Question((4, 8, 8, 8, 20, 40), terms(floor="0.30"), listed, all_free(listed))
    made = plan(question)
    answer = check(question, made)
    assert made.shortfalls == ()
    assert len(answer.by_group) >= 3


def test_reasons_tell_full_pools_from_full_caps() -> None:
    world = pools(8)
    world = with_live(world, Live(0), "pool-00")
    world = with_live(world, Live(50, Reason.DEGRADED), "pool-01")
    made = asked(world, 20, terms(pool="0.5", group="0.5"))
    assert made.reasons == {"pool-00": Reason.CAPACITY, "pool-01": Reason.DEGRADED}


def test_a_pool_whose_group_is_full_is_left_out_for_the_cap() -> None:
    world = world_of([Sketch(1, 1, 4, 3, 50, 0, False, 0) for _ in range(3)])
    made = asked(world, 20, terms(pool="0.30", group="0.30"))
    assert made.reasons == {"pool-01": Reason.CAP, "pool-02": Reason.CAP}


def test_a_pool_on_probation_in_a_full_group_is_left_out_for_the_cap() -> None:
    world = with_live(
        world_of([Sketch(1, 1, 4, 3, 50, 0, False, 0)] * 2), Live(50, None, probation=True), "pool-01"
    )
    assert asked(world, 20, terms(pool="0.30", group="0.30")).reasons == {"pool-01": Reason.CAP}


def test_the_share_of_a_pool_on_probation_counts_over_all_shapes() -> None:
    held = [Holding("pool-01", 0, 1, 1, 1), Holding("pool-01", 1, 1, 1, 2)]
    world = world_of([Sketch(1, 1, 4, 3, 50, 0, False, 0)] * 2, SHAPES[:2])
    world = with_live(world, Live(50, None, probation=True), "pool-01")
    made = plan(world.asked((10, 10), terms(pool="0.05"), held))
    assert [tuple(one) for one in made.allocations if one.pool_id == "pool-01"] == [("pool-01", 0, 1, 1)]


def test_a_hall_with_its_even_share_is_named_while_other_halls_have_room() -> None:
    estate = [Sketch(1, aggregate, 4, 3, 50, 0, False, 0) for aggregate in (1, 1, 2, 2)]
    estate += [Sketch(hall, 1, 4, 4, 50, 0, False, 0) for hall in (2, 2, 3, 3, 4, 4)]
    made = asked(world_of(estate), 20, terms())
    assert made.reasons["pool-02"] is Reason.HALL_SPREAD
    assert made.hall_spread_met


def test_a_hall_with_room_for_less_than_an_instance_is_no_lack_of_caps() -> None:
    estate = [Sketch(1, aggregate, 16, 3, 50, 0, False, 0) for aggregate in (1, 2)]
    estate += [Sketch(hall, 1, 4, 4, 50, 0, False, 0) for hall in (2, 3, 4)]
    made = asked(world_of(estate), 20, terms(pool="0.30"))
    assert made.reasons == {"pool-01": Reason.HALL_SPREAD}


def test_an_uneven_spread_over_halls_is_said() -> None:
    made = asked(world_of([Sketch(1, 1 + n // 2, 4, 3, 50, 0, False, 0) for n in range(8)]), 20, terms())
    assert made.placed_units == 20
    assert not made.hall_spread_met


@QUICK
@given(histories(SHAPES[:2], standings=6))
def test_a_plan_can_be_made_again_from_what_it_looked_at(lived: Lived) -> None:
    """A stored decision keeps the states of consulted pools only."""
    question = lived.world.asked(lived.units, lived.under, lived.holdings)
    made = plan(question)
    assert plan(replace(question, live=made.consulted)) == made


def test_a_claim_needs_few_looks_at_a_large_estate() -> None:
    listed = shortlist(ranking(estate()), wanted())
    made = plan(Question((42,), terms(floor="0.30"), listed, all_free(listed)))
    assert made.shortfalls == ()
    assert len(made.consulted) < 30


@pytest.mark.parametrize("units", [1, 2, 8])
def test_a_plan_that_is_the_cheapest_has_no_premium(units: int) -> None:
    """Also where an instance is not full: the cheapest fill pays for whole instances, too."""
    world = pools(2, cores=16)
    made = asked(world, units, LOOSE)
    assert made.depth_premium_micro_usd == 0


def test_the_premium_is_what_caps_cost_over_the_cheapest_pool() -> None:
    estate = [Sketch(1 + n % 4, 1 + n // 4, 4, 3 if n == 0 else 5, 50, 0, False, 0) for n in range(7)]
    made = asked(world_of(estate), 20, terms())
    assert made.placed_units == 20
    assert made.cost_micro_usd == 3 * 120_000 + 17 * 200_000
    assert made.depth_premium_micro_usd == 17 * 80_000


def test_the_premium_is_what_depth_costs_over_the_cheapest_pool() -> None:
    estate = [Sketch(1, 1, 4, 3, 50, 100, False, 0), Sketch(2, 1, 4, 5, 50, 0, False, 0)]
    made = asked(world_of(estate), 10, LOOSE)
    assert [one.pool_id for one in made.allocations] == ["pool-01"]
    assert made.depth_premium_micro_usd == 10 * 80_000


def test_two_shapes_do_not_share_one_cheap_instance_in_the_premium() -> None:
    """One cheap instance is free. What it cannot hold twice is no saving that was missed."""
    estate = [Sketch(1, 1, 4, 3, 1, 0, False, 0), Sketch(2, 1, 4, 5, 50, 0, False, 0)]
    made = plan(world_of(estate, SHAPES[:2]).asked((1, 1), LOOSE))
    assert made.cost_micro_usd == 120_000 + 200_000
    assert made.depth_premium_micro_usd == 0


def test_idle_instances_that_are_held_count_as_the_cheapest_capacity() -> None:
    """Two held instances have room for all eight units; depth launches two more elsewhere."""
    estate = [Sketch(1, 1, 16, 3, 0, 100, False, 0), Sketch(2, 1, 16, 5, 50, 0, False, 0)]
    held = [Holding("pool-00", 0, 1, 1, 1), Holding("pool-00", 0, 1, 1, 2)]
    made = plan(world_of(estate).asked((8,), LOOSE, held))
    assert {one.pool_id: one.instances for one in made.allocations} == {"pool-00": 2, "pool-01": 2}
    assert made.depth_premium_micro_usd == 2 * 800_000


def test_units_that_stay_in_a_refused_pool_are_no_premium() -> None:
    estate = [Sketch(1, 1, 4, 9, 5, 0, False, 0), Sketch(2, 1, 4, 5, 50, 0, False, 0)]
    made = plan(world_of(estate).asked((5,), LOOSE, [Holding("pool-00", 0, 5, 5, 1)]))
    assert [one.pool_id for one in made.allocations] == ["pool-00"]
    assert made.depth_premium_micro_usd == 0


def test_units_move_out_of_a_pool_that_no_longer_fits_the_requirements() -> None:
    inputs = [PoolInputs(facts=facts(f"pool-{n}", group=f"g{n}"), free_instances=9) for n in (1, 2)]
    inputs.append(PoolInputs(facts=facts("far", region="eu-west", group="g3"), free_instances=9))
    listed = shortlist(ranking(inputs), wanted(UNIT, requirements=Requirements(regions=("eu-north",))))
    held = [Holding("far", 0, 2, 1, 1)]
    made = plan(Question((2,), LOOSE, listed, all_free(listed), held))
    assert {one.pool_id for one in made.allocations} == {"pool-1"}


def test_units_in_a_pool_that_left_the_estate_are_placed_elsewhere() -> None:
    made = plan(pools(2).asked((2,), LOOSE, [Holding("vanished", 0, 2, 2, 1)]))
    assert made.placed_units == 2
    assert "vanished" not in {one.pool_id for one in made.allocations}
