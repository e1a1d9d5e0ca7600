"""What holds for every plan, whatever the question. Each check states one rule of placement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal

from domain.placement.draft import Holding, Live
from domain.placement.filters import FACT_REASONS, Entry
from domain.placement.portfolio import GONE, MOVE_AWAY, Allocation, Plan, Question
from domain.reasons import Reason

Key = tuple[str, int]


class Answer:
    """A question with its plan, and the sums that the rules speak of."""

    def __init__(self, question: Question, made: Plan) -> None:
        self.question, self.made = question, made
        self.entries = question.shortlist.entries
        self.held: dict[Key, Holding] = {(one.pool_id, one.shape_index): one for one in question.holdings}
        self.allocated: dict[Key, Allocation] = {
            (one.pool_id, one.shape_index): one for one in made.allocations
        }
        self.by_pool: Counter[str] = Counter()
        self.by_group: Counter[str] = Counter()
        self.new_instances: Counter[str] = Counter()
        self.committed_by_hall: Counter[str] = Counter()
        for one in made.allocations:
            entry = self.entries[one.pool_id]
            if entry.committed:
                self.committed_by_hall[entry.hall] += one.units
            else:
                self.by_pool[one.pool_id] += one.units
                self.by_group[entry.group_id] += one.units
            self.new_instances[one.pool_id] += max(0, one.instances - self.held_instances(one))

    def held_units(self, one: Allocation) -> int:
        held = self.held.get((one.pool_id, one.shape_index))
        return 0 if held is None else held.units

    def held_instances(self, one: Allocation) -> int:
        held = self.held.get((one.pool_id, one.shape_index))
        return 0 if held is None else held.instances

    def live(self, pool_id: str) -> Live:
        return self.question.live.get(pool_id, GONE)

    @property
    def committed(self) -> int:
        return self.committed_by_hall.total()

    @property
    def reclaimable(self) -> int:
        return self.by_pool.total()

    def shortfall(self) -> int:
        return sum(one.units for one in self.made.shortfalls)

    def has_free(self, entry: Entry) -> bool:
        state = self.live(entry.pool_id)
        return state.blocked is None and state.free > self.new_instances[entry.pool_id]

    def floor_stayed(self) -> Iterator[Holding]:
        return (
            held
            for key, held in self.held.items()
            if key in self.allocated and self.entries[held.pool_id].committed
        )

    def added(self) -> Iterator[Allocation]:
        return (one for one in self.made.allocations if one.units > self.held_units(one))


def check(question: Question, made: Plan) -> Answer:
    answer = Answer(question, made)
    nothing_is_lost(answer)
    caps_hold(answer)
    floor_is_exact_or_exhausted(answer)
    floor_stands_in_three_halls(answer)
    instances_hold_units(answer)
    capacity_is_real(answer)
    nobody_refused_is_used(answer)
    shortfall_means_no_room(answer)
    reasons_are_for_the_unchosen(answer)
    money_adds_up(answer)
    return answer


def nothing_is_lost(answer: Answer) -> None:
    units = answer.question.units
    assert answer.made.placed_units + answer.shortfall() == sum(units)
    for index, wanted in enumerate(units):
        assert sum(one.units for one in answer.made.allocations if one.shape_index == index) <= wanted
    assert all(one.units > 0 and one.instances > 0 for one in answer.made.allocations)
    assert all(one.units > 0 for one in answer.made.shortfalls)


def caps_hold(answer: Answer) -> None:
    total, under = sum(answer.question.units), answer.question.terms
    for pool_id, units in answer.by_pool.items():
        probation = answer.live(pool_id).probation
        share = under.probation_cap_share if probation else under.pool_cap_share
        assert units <= max(Decimal(1), share * total), f"{pool_id} holds {units} of {total}"
    for group_id, units in answer.by_group.items():
        assert units <= max(Decimal(1), under.group_cap_share * total), f"{group_id} holds {units} of {total}"


def floor_is_exact_or_exhausted(answer: Answer) -> None:
    total, share = sum(answer.question.units), answer.question.terms.floor_share
    assert answer.committed < share * total + 1, "more committed capacity than the floor asks"
    assert answer.reclaimable <= (1 - share) * total, "floor units on capacity that can be reclaimed"
    if answer.committed < share * total:
        assert answer.made.shortfalls
        assert not any(answer.has_free(entry) for entry in answer.question.shortlist.floor)


def floor_stands_in_three_halls(answer: Answer) -> None:
    halls = set(answer.committed_by_hall)
    met = len(halls) >= min(3, answer.committed)
    assert answer.made.floor_spread_met is met
    elsewhere = [entry for entry in answer.question.shortlist.floor if entry.hall not in halls]
    if not met and any(answer.has_free(entry) for entry in elsewhere):
        before = {answer.entries[held.pool_id].hall for held in answer.floor_stayed()}
        for one in answer.added():
            entry = answer.entries[one.pool_id]
            if entry.committed:
                assert entry.hall not in before, f"{one} grows a hall while another is empty"
                assert answer.committed_by_hall[entry.hall] == 1


def instances_hold_units(answer: Answer) -> None:
    for one in answer.made.allocations:
        fits = answer.entries[one.pool_id].per_instance[one.shape_index]
        assert one.units <= one.instances * fits
        if one.instances > answer.held_instances(one) or one.units < answer.held_units(one):
            assert (one.instances - 1) * fits < one.units, f"{one} has an instance without need"


def capacity_is_real(answer: Answer) -> None:
    for pool_id, instances in answer.new_instances.items():
        assert instances <= answer.live(pool_id).free
    for one in answer.added():
        assert answer.live(one.pool_id).blocked is None, f"{one} is new in a blocked pool"
    for one in answer.made.allocations:
        assert answer.live(one.pool_id).blocked not in MOVE_AWAY, f"{one} should have moved away"


def nobody_refused_is_used(answer: Answer) -> None:
    refused = answer.question.shortlist.refused
    assert not any(one.pool_id in refused for one in answer.added())
    assert not any(refused.get(one.pool_id) in FACT_REASONS for one in answer.made.allocations)


def shortfall_means_no_room(answer: Answer) -> None:
    """Where units of the fill are missing, no pool of the fill could have taken one more."""
    fill = answer.made.caps.units - answer.made.caps.floor_units
    if answer.reclaimable == fill:
        return
    for entry in answer.question.shortlist.fill:
        caps, probation = answer.made.caps, answer.live(entry.pool_id).probation
        full = answer.by_pool[entry.pool_id] >= (caps.probation_units if probation else caps.pool_units)
        crowded = answer.by_group[entry.group_id] >= caps.group_units
        assert full or crowded or not answer.has_free(entry), f"{entry.pool_id} has room left"


def reasons_are_for_the_unchosen(answer: Answer) -> None:
    chosen = {one.pool_id for one in answer.made.allocations}
    assert not chosen & set(answer.made.reasons)
    for pool_id, reason in answer.made.reasons.items():
        released_by_cap = reason is Reason.CAP and any(key[0] == pool_id for key in answer.held)
        assert answer.live(pool_id).blocked in (None, reason) or released_by_cap


def money_adds_up(answer: Answer) -> None:
    cost = {True: 0, False: 0}
    for one in answer.made.allocations:
        entry = answer.entries[one.pool_id]
        cost[entry.committed] += one.instances * entry.price_micro_usd
    assert answer.made.cost_micro_usd == cost[True] + cost[False]
    assert 0 <= answer.made.depth_premium_micro_usd <= cost[False]
