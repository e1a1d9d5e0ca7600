"""One plan: whatever the estate and the claim, the rules of placement hold."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.placement.caps import Caps, Terms, caps_for
from domain.placement.draft import Holding, Live
from domain.placement.filters import Entry, shortlist
from domain.placement.portfolio import plan
from domain.placement.scoring import rank
from domain.policy import ScoringPolicy
from domain.reasons import Reason
from tests.domain.invariants import check
from tests.domain.strategies import (
    QUICK,
    SHAPES,
    Lived,
    Sketch,
    World,
    any_terms,
    as_holdings,
    claims,
    histories,
    inputs_of,
    live_through,
    sketches,
    world_of,
    worlds,
)
from tests.domain.worlds import UNIT, terms, wanted

TWO = (SHAPES[0], SHAPES[2])


@QUICK
@given(worlds(), any_terms(), st.integers(1, 120))
def test_a_first_plan_keeps_every_rule(world: World, under: Terms, units: int) -> None:
    question = world.asked((units,), under)
    check(question, plan(question))


@QUICK
@given(worlds(shapes=SHAPES), any_terms(), claims(6, most=12))
def test_six_shapes_keep_every_rule(world: World, under: Terms, units: tuple[int, ...]) -> None:
    question = world.asked(units, under)
    check(question, plan(question))


@QUICK
@given(histories(TWO), worlds(shapes=TWO), claims(2))
def test_a_later_plan_keeps_every_rule_whatever_happened_since(
    lived: Lived, changed: World, units: tuple[int, ...]
) -> None:
    live = {**lived.world.live, **dict(list(changed.live.items())[::2])}
    question = replace(lived.world, live=live).asked(units, lived.under, lived.holdings)
    check(question, plan(question))


@QUICK
@given(
    st.lists(sketches(standings=2), min_size=2, max_size=10),
    any_terms(),
    st.integers(1, 60),
    st.integers(0, 1000),
)
def test_the_order_of_inputs_does_not_matter(
    estate: list[Sketch], under: Terms, units: int, seed: int
) -> None:
    lived = live_through(world_of(estate), under, [(units,), (max(1, units // 2),)])
    shuffled = random.Random(seed)
    inputs = inputs_of(estate)
    shuffled.shuffle(inputs)
    listed = shortlist(rank("ranking-1", "k8s-eu-north", inputs, ScoringPolicy()), wanted())
    live = list(lived.world.live.items())
    shuffled.shuffle(live)
    holdings = list(lived.holdings)
    shuffled.shuffle(holdings)
    assert listed == lived.world.listed
    straight = plan(lived.world.asked((units,), under, lived.holdings))
    assert plan(World(listed, dict(live), (UNIT,)).asked((units,), under, holdings)) == straight


@QUICK
@given(histories(SHAPES[:3]))
def test_the_same_question_again_changes_nothing(lived: Lived) -> None:
    again = plan(lived.world.asked(lived.units, lived.under, lived.holdings))
    assert again.allocations == lived.made.allocations
    assert sum(one.units for one in again.shortfalls) == sum(one.units for one in lived.made.shortfalls)


@QUICK
@given(histories(TWO), st.tuples(st.integers(0, 30), st.integers(0, 30)))
def test_growing_moves_nothing(lived: Lived, more: tuple[int, int]) -> None:
    units = tuple(now + extra for now, extra in zip(lived.units, more, strict=True))
    question = lived.world.asked(units, lived.under, lived.holdings)
    answer = check(question, plan(question))
    for key, held in answer.held.items():
        assert answer.allocated[key].units >= held.units


@QUICK
@given(histories(), st.integers(0, 99))
def test_shrinking_adds_nothing_unless_a_cap_forces_a_move(lived: Lived, percent: int) -> None:
    units = max(1, lived.units[0] * percent // 100)
    question = lived.world.asked((units,), lived.under, lived.holdings)
    answer = check(question, plan(question))
    if not _caps_are_broken(answer.question.holdings, lived.world, caps_for(units, lived.under)):
        assert not list(answer.added())


def _caps_are_broken(holdings: Sequence[Holding], world: World, caps: Caps) -> bool:
    by_group: dict[str, int] = defaultdict(int)
    broken = False
    for held in holdings:
        entry = world.listed.entries[held.pool_id]
        if not entry.committed:
            by_group[entry.group_id] += held.units
            cap = caps.probation_units if world.live[held.pool_id].probation else caps.pool_units
            broken |= held.units > cap
    return broken or any(units > caps.group_units for units in by_group.values())


@QUICK
@given(worlds(standings=1, committed=False), st.permutations(range(14)), st.integers(1, 60))
def test_shrinking_releases_the_newest_then_the_least_valuable(
    world: World, generations: list[int], units: int
) -> None:
    ranks, loose = world.listed.rank_of, terms(pool="1", group="1")
    holdings = [
        Holding(entry.pool_id, 0, 4 * entry.per_instance[0], 4, generations[place] // 2)
        for place, entry in enumerate(world.listed.fill)
    ]
    made = plan(world.asked((units,), loose, holdings))
    kept = {one.pool_id: one.units for one in made.allocations}
    left = units
    for held in sorted(holdings, key=lambda one: (one.generation, ranks[one.pool_id])):
        expected = min(held.units, left)
        left -= expected
        if expected < held.units:
            assert kept.get(held.pool_id, 0) == expected


@QUICK
@given(st.integers(3, 60), st.integers(3, 60))
def test_a_shrinking_floor_keeps_its_three_halls(before: int, after: int) -> None:
    estate = [Sketch(hall, 1, 16, 5, 60, 0, True, 0) for hall in (1, 2, 3)]
    all_floor = replace(terms(), floor_share=Decimal(1))
    lived = live_through(world_of(estate), all_floor, [(max(before, after),), (min(before, after),)])
    assert lived.made.floor_spread_met
    assert {lived.world.listed.entries[held.pool_id].hall for held in lived.holdings} == {"h1", "h2", "h3"}


@QUICK
@given(worlds(), any_terms(), st.integers(1, 120))
def test_a_single_shape_is_filled_as_far_as_caps_and_capacity_admit(
    world: World, under: Terms, units: int
) -> None:
    answer = check(world.asked((units,), under), plan(world.asked((units,), under)))
    assert answer.reclaimable == min(_most(world, under, units), units - answer.made.caps.floor_units)


def _most(world: World, under: Terms, units: int) -> int:
    """The sum over groups of min(group cap, sum over pools of min(pool cap, free * fit))."""
    by_group: dict[str, int] = defaultdict(int)
    for entry in world.listed.fill:
        state = world.live[entry.pool_id]
        if state.blocked is None:
            share = under.probation_cap_share if state.probation else under.pool_cap_share
            cap = max(1, int(share * units))
            by_group[entry.group_id] += min(cap, state.free * entry.per_instance[0])
    return sum(min(max(1, int(under.group_cap_share * units)), most) for most in by_group.values())


@QUICK
@given(worlds(), any_terms(), st.integers(1, 120), st.integers(0, 13), st.integers(1, 5))
def test_more_free_capacity_never_places_less(
    world: World, under: Terms, units: int, place: int, more: int
) -> None:
    pool_id = sorted(world.live)[place % len(world.live)]
    state = world.live[pool_id]
    richer = replace(world, live={**world.live, pool_id: state._replace(free=state.free + more)})
    assert plan(richer.asked((units,), under)).placed_units >= plan(world.asked((units,), under)).placed_units


@QUICK
@given(worlds(standings=1, committed=False), any_terms(), st.integers(1, 40))
def test_the_depth_premium_is_never_told_too_high(world: World, under: Terms, units: int) -> None:
    made = plan(world.asked((units,), replace(under, floor_share=Decimal(0))))
    cheapest = _cheapest(world, made.placed_units)
    assert 0 <= made.depth_premium_micro_usd <= made.cost_micro_usd - cheapest


def _cheapest(world: World, units: int) -> int:
    """The least cost of instances that hold `units`: every combination counts, by dynamic programming."""
    least: list[float] = [0.0] + [float("inf")] * units
    for entry in world.listed.fill:
        for _ in range(world.live[entry.pool_id].free):
            for size in range(units, 0, -1):
                fits = entry.per_instance[0]
                least[size] = min(least[size], least[max(0, size - fits)] + entry.price_micro_usd)
    return int(least[units])


@pytest.mark.parametrize("reason", [Reason.EXCLUDED, Reason.STATE])
def test_units_move_away_from_a_pool_that_must_not_hold_any(reason: Reason) -> None:
    world = _one_pool_per_group(8)
    lived = live_through(world, terms(), [(8,)])
    gone = lived.holdings[0].pool_id
    live = {**lived.world.live, gone: Live(9, reason)}
    made = plan(replace(lived.world, live=live).asked((8,), terms(), lived.holdings))
    stayed = {one.pool_id for one in made.allocations}
    assert gone not in stayed
    assert made.reasons[gone] is reason
    assert {held.pool_id for held in lived.holdings[1:]} <= stayed


@pytest.mark.parametrize("reason", [Reason.BACKED_OFF, Reason.STALE, Reason.DEGRADED])
def test_units_stay_in_a_pool_that_only_takes_no_new_ones(reason: Reason) -> None:
    world = _one_pool_per_group(12)
    lived = live_through(world, terms(), [(8,)])
    kept = lived.holdings[0].pool_id
    live = {**lived.world.live, kept: Live(9, reason)}
    made = plan(replace(lived.world, live=live).asked((12,), terms(), lived.holdings))
    assert {one.pool_id: one.units for one in made.allocations}[kept] == lived.holdings[0].units


def test_a_pool_on_probation_holds_a_twentieth_at_most() -> None:
    world = _one_pool_per_group(8)
    live = {**world.live, "pool-00": Live(20, None, probation=True)}
    lived = live_through(replace(world, live=live), terms(), [(40,)])
    assert {held.pool_id: held.units for held in lived.holdings}["pool-00"] == 2


def test_a_pool_that_enters_probation_gives_up_what_is_above_its_share() -> None:
    world = _one_pool_per_group(10)
    lived = live_through(world, terms(), [(40,)])
    assert {held.pool_id: held.units for held in lived.holdings}["pool-00"] == 6
    live = {**lived.world.live, "pool-00": Live(20, None, probation=True)}
    made = plan(replace(lived.world, live=live).asked((40,), terms(), lived.holdings))
    assert {one.pool_id: one.units for one in made.allocations}["pool-00"] == 2
    assert made.placed_units == 40


def test_units_of_an_instance_that_is_gone_are_placed_anew() -> None:
    world = _one_pool_per_group(10, cores=16)
    held = Holding("pool-00", 0, 6, 1, 1)
    question = world.asked((40,), terms(), [held])
    answer = check(question, plan(question))
    assert answer.made.placed_units == 40


def test_idle_room_of_an_instance_that_stays_is_used_before_a_new_one() -> None:
    world = _one_pool_per_group(1, cores=16)
    loose = terms(pool="1", group="1")
    lived = live_through(world, loose, [(1,), (4,)])
    assert lived.holdings == (Holding("pool-00", 0, 4, 1, 2),)


def test_two_holdings_of_one_pool_count_together() -> None:
    world = _one_pool_per_group(1, cores=16)
    loose = terms(pool="1", group="1")
    holdings = [Holding("pool-00", 0, 4, 1, 1), Holding("pool-00", 0, 3, 1, 2)]
    made = plan(world.asked((7,), loose, holdings))
    assert [tuple(one) for one in made.allocations] == [("pool-00", 0, 7, 2)]
    assert made.depth_premium_micro_usd == 0


def test_a_growing_claim_takes_its_floor_from_new_units_only() -> None:
    """Larger units join the claim: the floor that is held keeps its smaller ones."""
    estate = [
        Sketch(hall, 1, 16, 5, 9, 0, committed, 0) for hall in (1, 2, 3, 4) for committed in (True, False)
    ]
    world = world_of(estate, TWO)
    loose = terms(floor="0.30", pool="1", group="1")
    first = plan(world.asked((0, 10), loose))
    holdings = as_holdings(first, 1)
    made = plan(world.after(first, ()).asked((10, 10), loose, holdings))
    for held in holdings:
        now = [one.units for one in made.allocations if one[:2] == held[:2]]
        assert now >= [held.units]


def test_four_units_of_floor_stand_in_three_halls() -> None:
    estate = [Sketch(hall, 1, 16, 5, 9, 0, True, 0) for hall in (1, 2, 3, 4)]
    made = plan(world_of(estate).asked((4,), replace(terms(), floor_share=Decimal(1))))
    assert made.floor_spread_met
    assert len(made.allocations) >= 3


def test_a_growing_floor_reaches_new_halls_first() -> None:
    """Six units stand in one hall, the only one that had room. The next units open two more."""
    estate = [Sketch(hall, 1, 16, 5, 9 if hall == 1 else 0, 0, True, 0) for hall in (1, 2, 3)]
    all_floor = replace(terms(), floor_share=Decimal(1))
    lived = live_through(world_of(estate), all_floor, [(6,)])
    live = {pool_id: Live(9) for pool_id in lived.world.live}
    world = replace(lived.world, live=live)
    by_units = {
        units: [one.units for one in plan(world.asked((units,), all_floor, lived.holdings)).allocations]
        for units in (7, 8, 9)
    }
    assert by_units == {7: [6, 1], 8: [6, 1, 1], 9: [6, 2, 1]}


@pytest.mark.parametrize("floor", [1, 2, 3, 4, 5, 7, 11, 13])
@pytest.mark.parametrize("halls", [2, 3, 4])
def test_a_floor_reaches_three_halls_and_no_hall_has_more_than_a_third(floor: int, halls: int) -> None:
    estate = [Sketch(1 + number, 1, 16, 5, 9, 0, True, 0) for number in range(halls)]
    question = world_of(estate).asked((floor,), replace(terms(), floor_share=Decimal(1)))
    answer = check(question, plan(question))
    assert len(answer.committed_by_hall) >= min(3, floor, halls)
    if halls >= 3:
        assert max(answer.committed_by_hall.values()) <= -(-floor // 3)


def test_halls_are_filled_evenly_while_they_can_be() -> None:
    """Two deep groups share hall 1; hall 2 is shallower. A third of 20 units each, not two thirds in one."""
    estate = [Sketch(1, aggregate, 4, 3, 9, 0, False, 0) for aggregate in (1, 2) for _ in range(3)]
    estate += [Sketch(hall, 1, 4, 5, 9, 0, False, 0) for hall in (2, 3, 4) for _ in range(3)]
    world = world_of(estate)
    answer = check(world.asked((20,), terms()), plan(world.asked((20,), terms())))
    assert answer.made.hall_spread_met
    assert answer.by_group["h1-a1"] + answer.by_group["h1-a2"] == 6


def test_whole_instances_come_before_partly_used_ones() -> None:
    """Six units are the cap and four fill an instance: ten full instances hold 40, no half-used pair."""
    made = plan(_one_pool_per_group(12, cores=16).asked((40,), terms()))
    assert [(one.units, one.instances) for one in made.allocations] == [(4, 1)] * 10


def test_a_claim_that_shrinks_gives_whole_instances_back() -> None:
    lived = live_through(_one_pool_per_group(1, cores=16), terms(pool="1", group="1"), [(8,), (3,)])
    assert lived.holdings == (Holding("pool-00", 0, 3, 1, 1),)


def test_fallback_on_guaranteed_capacity_stays_and_is_not_capped() -> None:
    world = _one_pool_per_group(8)
    fallback = Entry("guaranteed", "eu-north", "h1", "h1-a1", False, 1_000_000, (4,), 0, 250_000, True)
    listed = replace(
        world.listed,
        entries={**world.listed.entries, "guaranteed": fallback},
        refused={"guaranteed": Reason.PURCHASE_MODEL},
    )
    live = {**world.live, "guaranteed": Live(0)}
    question = World(listed, live, (UNIT,)).asked((20,), terms(), [Holding("guaranteed", 0, 12, 3, 1)])
    made = plan(question)
    assert {one.pool_id: one.units for one in made.allocations}["guaranteed"] == 12
    assert made.placed_units == 20


def _one_pool_per_group(groups: int, cores: int = 4) -> World:
    estate = [Sketch(1 + number % 4, 1 + number // 4, cores, 3, 20, 0, False, 0) for number in range(groups)]
    return world_of(estate)
