"""Spread one claim over a shortlist: keep what is held, restore the floor, fill the rest.

1. Keep what is held, oldest and best first, as far as floor and caps of the claim allow. What does not
   fit any more is released: newest and least valuable first, never below the floor (see `keep`).
2. Floor: committed capacity, an even share of the floor per hall while the halls can give it.
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
from domain.placement.keep import Kept, floor_to_find, floor_to_keep
from domain.placement.premium import depth_premium_micro_usd
from domain.placement.shortfall import why_fill, why_floor
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
        self.unheld = list(question.units)
        self.floor_left = self.caps.floor_units
        self.fill_left = self.caps.units - self.caps.floor_units

    def live(self, pool_id: str) -> Live:
        state = self.consulted.get(pool_id)
        if state is None:
            state = self.consulted[pool_id] = self.question.live.get(pool_id, GONE)
        return state

    def keep(self) -> None:
        staying = [
            Kept(held, entry) for held, entry in self._oldest_and_best() if self._may_stay(entry, held)
        ]
        committed = [one for one in staying if one.entry.committed]
        for one, units in zip(committed, floor_to_keep(committed, self.unheld, self.caps), strict=True):
            self.floor_left -= units
            self._hold(one, units)
        for one in staying:
            if not one.entry.committed:
                units = min(one.room, self.unheld[one.held.shape_index], self.fill_left, self._cap_left(one))
                self.fill_left -= units
                self._hold(one, units)

    def _oldest_and_best(self) -> list[tuple[Holding, Entry]]:
        entries, rank_of = self.shortlist.entries, self.shortlist.rank_of
        known = [(held, entries[held.pool_id]) for held in self.question.holdings if held.pool_id in entries]
        worst = len(entries) + 1
        return sorted(known, key=lambda one: (one[0].generation, rank_of.get(one[0].pool_id, worst), one[0]))

    def _may_stay(self, entry: Entry, held: Holding) -> bool:
        reason = self.live(entry.pool_id).blocked
        if reason in MOVE_AWAY:
            self.reasons[entry.pool_id] = reason
            return False
        refused = self.shortlist.refused.get(entry.pool_id)
        return refused not in FACT_REASONS and entry.per_instance[held.shape_index] > 0

    def _cap_left(self, one: Kept) -> int:
        left = self.draft.cap_left(one.entry, self.live(one.entry.pool_id).probation)
        if left <= 0:
            self.reasons[one.entry.pool_id] = Reason.CAP
        return max(0, left)

    def _hold(self, one: Kept, units: int) -> None:
        if units > 0:
            self.unheld[one.held.shape_index] -= units
            self.draft.hold(one.entry, one.held, units)

    def place_the_rest(self) -> None:
        floor = floor_to_find(self.unheld, self.floor_left)
        fill = [units - of_floor for units, of_floor in zip(self.unheld, floor, strict=True)]
        self.floor_left -= self._spread(self.shortlist.floor, floor)
        self.fill_left -= self._spread(self.shortlist.fill, fill)

    def _spread(self, entries: Sequence[Entry], wanted: list[int]) -> int:
        """Take what is wanted of each shape, strictest pass first; returns how many units were taken."""
        before = sum(wanted)
        for limits in PASSES:
            for index, units in enumerate(wanted):
                if units > 0:
                    wanted[index] -= self._walk(entries, index, units, limits)
        return before - sum(wanted)

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
        if self.floor_left > 0:
            found.append(Shortfall(self.floor_left, why_floor(self.shortlist)))
        if self.fill_left > 0:
            live = {entry.pool_id: self.live(entry.pool_id) for entry in self.shortlist.fill}
            found.append(
                Shortfall(self.fill_left, why_fill(self.shortlist, self.draft, live, self.fill_left))
            )
        return tuple(found)

    def floor_spread_met(self) -> bool:
        """Whether the floor's units reach as many halls as they should, one unit each at least."""
        halls = self.draft.hall_units(committed=True)
        return len(halls) >= min(self.caps.floor_halls, sum(halls))

    def hall_spread_met(self) -> bool:
        return all(units <= self.caps.hall_units for units in self.draft.hall_units(committed=False))


def plan(question: Question) -> Plan:
    """Decide where every unit of the claim goes; never raises for a claim that cannot be met."""
    planner = _Planner(question)
    planner.keep()
    planner.place_the_rest()
    shortfalls = planner.shortfalls()
    draft = planner.draft
    premium = depth_premium_micro_usd(planner.shortlist, draft, planner.live)
    allocations = tuple(
        Allocation(row.entry.pool_id, row.shape_index, row.units, row.instances) for row in draft.rows()
    )
    chosen = {one.pool_id for one in allocations}
    return Plan(
        caps=planner.caps,
        allocations=allocations,
        shortfalls=shortfalls,
        reasons={pool: why for pool, why in planner.reasons.items() if pool not in chosen},
        consulted=planner.consulted,
        cost_micro_usd=draft.cost_micro_usd(),
        depth_premium_micro_usd=premium,
        floor_spread_met=planner.floor_spread_met(),
        hall_spread_met=planner.hall_spread_met(),
    )
