"""Spread one claim over a shortlist: keep what is held, restore the floor, fill the rest.

1. Keep what is held, oldest and best first, as far as floor and caps of the claim allow. What does not
   fit any more is released: newest and least valuable first, never below the floor.
2. Floor: committed capacity, at most a third of the floor per hall while three halls can give it.
3. Fill: reclaimable pools in the shortlist's order within pool, group and probation caps; whole
   instances and an even spread over halls first, then partly used instances, then uneven halls.

What no pool can take ends as a shortfall with its reason. Order is fixed, so equal questions have equal
answers; the pools whose live state was read are returned, so that a past answer can be recomputed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from domain.placement.caps import Caps, Terms, caps_for
from domain.placement.draft import Draft, Holding, Limits, Live
from domain.placement.filters import FACT_REASONS, Entry, Shortlist
from domain.reasons import Reason, ShortfallReason

PASSES = (
    Limits(even_halls=True, tidy=True),
    Limits(even_halls=True, tidy=False),
    Limits(even_halls=False, tidy=False),
)
MOVE_AWAY = frozenset({Reason.STATE, Reason.EXCLUDED})


GONE = Live(0, Reason.STATE)


class Allocation(NamedTuple):
    """Units and instances that one pool is to hold for one shape."""

    pool_id: str
    shape_index: int
    units: int
    instances: int


class Shortfall(NamedTuple):
    units: int
    reason: ShortfallReason


@dataclass(frozen=True, slots=True)
class Question:
    """All that a plan depends on. `units` follows the order of the class's shapes."""

    units: tuple[int, ...]
    terms: Terms
    shortlist: Shortlist
    live: Mapping[str, Live]
    holdings: Sequence[Holding] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the claim's units go. Prices are micro-USD per hour.

    `reasons` names why pools that were looked at take no (more) units; every other pool of the fill is
    outscored, and the shortlist knows those that were never candidates.
    """

    caps: Caps
    allocations: tuple[Allocation, ...]
    shortfalls: tuple[Shortfall, ...]
    reasons: dict[str, Reason]
    consulted: dict[str, Live]
    cost_micro_usd: int
    depth_premium_micro_usd: int
    floor_spread_met: bool
    hall_spread_met: bool

    @property
    def placed_units(self) -> int:
        return sum(one.units for one in self.allocations)


class _Planner:
    """The working memory of one plan."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.shortlist = question.shortlist
        self.caps = caps_for(sum(question.units), question.terms)
        self.draft = Draft(self.caps)
        self.consulted: dict[str, Live] = {}
        self.reasons: dict[str, Reason] = {}
        self.floor_wanted = self._floor_by_shape()
        self.fill_wanted = [
            total - floor for total, floor in zip(question.units, self.floor_wanted, strict=True)
        ]
        self.floor_spread_met = True
        self.hall_spread_met = True

    def _floor_by_shape(self) -> list[int]:
        """The floor takes the largest units first: they are the hardest to place again."""
        left, parts = self.caps.floor_units, []
        for units in self.question.units:
            parts.append(min(units, left))
            left -= parts[-1]
        return parts

    def live(self, pool_id: str) -> Live:
        state = self.consulted.get(pool_id)
        if state is None:
            state = self.consulted[pool_id] = self.question.live.get(pool_id, GONE)
        return state

    def keep(self) -> None:
        rank_of, worst = self.shortlist.rank_of, len(self.shortlist.entries) + 1

        def oldest_and_best(held: Holding) -> tuple[int, int, str, int]:
            return (held.generation, rank_of.get(held.pool_id, worst), held.pool_id, held.shape_index)

        for held in sorted(self.question.holdings, key=oldest_and_best):
            entry = self.shortlist.entries.get(held.pool_id)
            if entry is None or not self._may_stay(entry, held):
                continue
            wanted = self.floor_wanted if entry.committed else self.fill_wanted
            cap = self.draft.cap_left(entry, self.live(entry.pool_id).probation)
            units = min(held.units, wanted[held.shape_index], cap)
            if units > 0:
                wanted[held.shape_index] -= units
                self.draft.hold(entry, held, units)

    def _may_stay(self, entry: Entry, held: Holding) -> bool:
        reason = self.live(entry.pool_id).blocked
        if reason in MOVE_AWAY:
            self.reasons[entry.pool_id] = reason
            return False
        refused = self.shortlist.refused.get(entry.pool_id)
        return refused not in FACT_REASONS and entry.per_instance[held.shape_index] > 0

    def floor(self) -> None:
        taken_unevenly = self._spread(self.shortlist.floor, self.floor_wanted)
        self.floor_spread_met = taken_unevenly == 0

    def fill(self) -> None:
        taken_unevenly = self._spread(self.shortlist.fill, self.fill_wanted)
        self.hall_spread_met = taken_unevenly == 0

    def _spread(self, entries: Sequence[Entry], wanted: list[int]) -> int:
        """Take what is wanted, strictest pass first; returns the units that spoilt the even spread."""
        taken_unevenly = 0
        for limits in PASSES:
            for index, units in enumerate(wanted):
                if units > 0:
                    taken = self._walk(entries, index, units, limits)
                    wanted[index] -= taken
                    taken_unevenly += 0 if limits.even_halls else taken
        return taken_unevenly

    def _walk(self, entries: Sequence[Entry], index: int, wanted: int, limits: Limits) -> int:
        left = wanted
        for entry in entries:
            state = self.live(entry.pool_id)
            if state.blocked is not None:
                self.reasons[entry.pool_id] = state.blocked
                continue
            taken, reason = self.draft.take(entry, index, left, state, limits)
            left -= taken
            if reason is not None:
                self.reasons[entry.pool_id] = reason
            if left == 0:
                break
        return wanted - left

    def shortfalls(self) -> tuple[Shortfall, ...]:
        found = []
        if (floor_missing := sum(self.floor_wanted)) > 0:
            found.append(Shortfall(floor_missing, self._why_floor()))
        if (fill_missing := sum(self.fill_wanted)) > 0:
            found.append(Shortfall(fill_missing, self._why_fill()))
        return tuple(found)

    def _why_floor(self) -> ShortfallReason:
        return self._why_none() if not self.shortlist.floor else ShortfallReason.FLOOR_CAPACITY

    def _why_none(self) -> ShortfallReason:
        """Nothing passes the filters: denied by policy when region and boundary alone leave nothing."""
        denied = (Reason.REGION, Reason.BOUNDARY)
        refused = self.shortlist.refused.values()
        if self.shortlist.refused and all(reason in denied for reason in refused):
            return ShortfallReason.POLICY_DENIED
        return ShortfallReason.NO_ELIGIBLE_POOL

    def _why_fill(self) -> ShortfallReason:
        if not self.shortlist.fill:
            return self._why_none()
        states = {entry.pool_id: self.live(entry.pool_id) for entry in self.shortlist.fill}
        if Reason.BACKED_OFF in (state.blocked for state in states.values()):
            return ShortfallReason.LAUNCHES_FAILED
        if self._caps_admit(states) < self.caps.units - self.caps.floor_units:
            return ShortfallReason.CAPS_UNSATISFIABLE
        return ShortfallReason.CAPACITY

    def _caps_admit(self, states: Mapping[str, Live]) -> int:
        """How many units the caps would admit if every open pool had endless capacity."""
        by_group: dict[str, int] = {}
        for entry in self.shortlist.fill:
            state = states[entry.pool_id]
            if state.blocked is None:
                cap = self.caps.probation_units if state.probation else self.caps.pool_units
                by_group[entry.group_id] = by_group.get(entry.group_id, 0) + cap
        return sum(min(self.caps.group_units, units) for units in by_group.values())

    def depth_premium(self, fill_cost_micro_usd: int) -> int:
        """What depth and spread cost over the cheapest fill of the same units by price alone, per hour."""
        cheapest = 0
        for index, order in enumerate(self.shortlist.cheapest):
            left = self.draft.fill_units_of_shape(index)
            for entry in order:
                if left == 0:
                    break
                state = self.live(entry.pool_id)
                per_instance = entry.per_instance[index]
                free = 0 if state.blocked is not None else state.free * per_instance
                taken = min(left, free + self.draft.held_units(entry.pool_id, index))
                cheapest += taken * entry.price_micro_usd // per_instance
                left -= taken
        return max(0, fill_cost_micro_usd - cheapest)


def plan(question: Question) -> Plan:
    """Decide where every unit of the claim goes; never raises for a claim that cannot be met."""
    planner = _Planner(question)
    planner.keep()
    planner.floor()
    planner.fill()
    shortfalls = planner.shortfalls()
    draft = planner.draft
    allocations = tuple(Allocation(*row) for row in draft.rows())
    chosen = {one.pool_id for one in allocations}
    fill_cost = draft.cost_micro_usd(committed=False)
    premium = planner.depth_premium(fill_cost)
    return Plan(
        caps=planner.caps,
        allocations=allocations,
        shortfalls=shortfalls,
        reasons={pool: why for pool, why in planner.reasons.items() if pool not in chosen},
        consulted=planner.consulted,
        cost_micro_usd=fill_cost + draft.cost_micro_usd(committed=True),
        depth_premium_micro_usd=premium,
        floor_spread_met=planner.floor_spread_met,
        hall_spread_met=planner.hall_spread_met,
    )
