"""A workload lives: it grows and shrinks, loses pools and halls, launches fail. The rules always hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from domain.placement.caps import Terms, caps_for
from domain.placement.draft import Holding, Live
from domain.placement.portfolio import Plan, plan
from domain.reasons import Reason
from tests.domain.invariants import Answer, check
from tests.domain.strategies import QUICK, SHAPES, Sketch, World, any_terms, as_holdings, sketches, world_of

TWO = (SHAPES[0], SHAPES[2])
WAYS_OUT = (Reason.EXCLUDED, Reason.STATE, Reason.STALE, Reason.DEGRADED, Reason.BACKED_OFF)
places = st.integers(0, 99)
few = st.integers(0, 15)


class LivingWorkload(RuleBasedStateMachine):
    """Every rule changes one thing and then plans, with what the last plan left as holdings."""

    estate: list[Sketch]
    world: World
    under: Terms
    units: tuple[int, ...]
    holdings: tuple[Holding, ...] = ()
    before: tuple[Holding, ...] = ()
    generation = 0

    @initialize(
        estate=st.lists(sketches(standings=1), min_size=3, max_size=14),
        under=any_terms(),
        units=st.tuples(st.integers(1, 30), few),
    )
    def start(self, estate: list[Sketch], under: Terms, units: tuple[int, ...]) -> None:
        self.estate, self.world = list(estate), world_of(estate, TWO)
        self.under, self.units = under, units
        self.settle()

    @rule(more=st.tuples(few, few))
    def grow(self, more: tuple[int, int]) -> None:
        self.units = tuple(now + extra for now, extra in zip(self.units, more, strict=True))
        self.stays(self.settle())

    @rule(percent=st.integers(1, 99))
    def shrink(self, percent: int) -> None:
        before = sum(self.units)
        self.units = tuple(-(-units * percent // 100) for units in self.units)
        must_move = self.a_cap_is_broken() or self.the_floor_shrinks() or self.units_were_missing(before)
        answer = self.settle()
        assert must_move or not list(answer.added())

    @rule(place=places, reason=st.sampled_from(WAYS_OUT))
    def pool_out(self, place: int, reason: Reason) -> None:
        pool_id = self.pool(place)
        self.set_live(lambda state: state._replace(blocked=reason), [pool_id])
        self.stays(self.settle(), but={pool_id})

    @rule(place=places)
    def pool_on_probation(self, place: int) -> None:
        pool_id = self.pool(place)
        self.set_live(lambda state: Live(state.free, None, probation=True), [pool_id])
        self.stays(self.settle(), but={pool_id})

    @rule(place=places)
    def pool_restored(self, place: int) -> None:
        self.set_live(lambda state: Live(state.free), [self.pool(place)])
        self.stays(self.settle())

    @rule(number=st.integers(1, 4))
    def hall_lost(self, number: int) -> None:
        pools = self.hall(number)
        self.set_live(lambda state: state._replace(blocked=Reason.EXCLUDED), pools)
        answer = self.settle()
        self.stays(answer, but=pools)
        assert not {one.pool_id for one in answer.made.allocations} & set(pools)

    @rule(number=st.integers(1, 4))
    def hall_back(self, number: int) -> None:
        self.set_live(lambda state: Live(state.free), self.hall(number))
        self.stays(self.settle())

    @rule(place=places, free=st.integers(0, 8))
    def capacity_changes(self, place: int, free: int) -> None:
        self.set_live(lambda state: state._replace(free=free), [self.pool(place)])
        self.stays(self.settle())

    @rule(place=places, dear=st.sampled_from((2, 3, 6, 9)), episodes=st.sampled_from((0, 100)))
    def ranked_anew(self, place: int, dear: int, episodes: int) -> None:
        """A new price, inverted perhaps, or a new history: where units go changes, not where they are."""
        changed = place % len(self.estate)
        self.estate[changed] = self.estate[changed]._replace(dear=dear, episodes=episodes)
        self.world = replace(self.world, listed=world_of(self.estate, TWO).listed)
        self.stays(self.settle())

    @precondition(lambda self: bool(self.launched()))
    @rule(place=places)
    def launches_fail(self, place: int) -> None:
        """What the last plan added in one pool never came, and the pool is left alone for a while."""
        launched = self.launched()
        pool_id = launched[place % len(launched)]
        old = {held[:2]: held for held in self.before}
        came = [
            held if held.pool_id != pool_id or not self.grew(held, old) else old.get(held[:2])
            for held in self.holdings
        ]
        self.holdings = tuple(held for held in came if held is not None)
        self.set_live(lambda state: state._replace(blocked=Reason.BACKED_OFF), [pool_id])
        self.stays(self.settle())

    def settle(self) -> Answer:
        """Plan, hold the plan against the rules, carry it out, and ask the same once more."""
        question = self.world.asked(self.units, self.under, self.holdings)
        made = plan(question)
        answer = check(question, made)
        self.generation += 1
        held = as_holdings(made, self.generation, self.holdings)
        carried_out = self.world.after(made, self.holdings, deleted=False)
        self.nothing_changes(plan(carried_out.asked(self.units, self.under, held)), made)
        self.world = self.world.after(made, self.holdings)
        self.before, self.holdings = self.holdings, held
        return answer

    @staticmethod
    def nothing_changes(again: Plan, made: Plan) -> None:
        assert again.allocations == made.allocations
        assert [one.units for one in again.shortfalls] == [one.units for one in made.shortfalls]

    @staticmethod
    def stays(answer: Answer, but: Collection[str] = ()) -> None:
        """Every holding is where it was, except in the pools named."""
        for key, held in answer.held.items():
            if held.pool_id not in but:
                assert answer.allocated[key].units >= held.units, f"{held} was moved without need"

    def pool(self, place: int) -> str:
        return sorted(self.world.live)[place % len(self.world.live)]

    def hall(self, number: int) -> list[str]:
        entries = self.world.listed.entries.values()
        return [entry.pool_id for entry in entries if entry.hall == f"h{number}"]

    def set_live(self, change: Callable[[Live], Live], pool_ids: Collection[str]) -> None:
        live = dict(self.world.live)
        live.update({pool_id: change(live[pool_id]) for pool_id in pool_ids})
        self.world = replace(self.world, live=live)

    def launched(self) -> list[str]:
        old = {held[:2]: held for held in self.before}
        return sorted({held.pool_id for held in self.holdings if self.grew(held, old)})

    @staticmethod
    def grew(held: Holding, old: Mapping[tuple[str, int], Holding]) -> bool:
        return held[:2] not in old or held.instances > old[held[:2]].instances

    def a_cap_is_broken(self) -> bool:
        caps = caps_for(sum(self.units), self.under)
        by_pool: dict[str, int] = {}
        by_group: dict[str, int] = {}
        for held in self.holdings:
            entry = self.world.listed.entries[held.pool_id]
            if not entry.committed:
                by_pool[held.pool_id] = by_pool.get(held.pool_id, 0) + held.units
                by_group[entry.group_id] = by_group.get(entry.group_id, 0) + held.units
        on_probation = {pool_id for pool_id, state in self.world.live.items() if state.probation}
        return any(units > caps.group_units for units in by_group.values()) or any(
            units > (caps.probation_units if pool_id in on_probation else caps.pool_units)
            for pool_id, units in by_pool.items()
        )

    def units_were_missing(self, units: int) -> bool:
        """Units of one shape may take the room that another gives up."""
        return sum(held.units for held in self.holdings) < units

    def the_floor_shrinks(self) -> bool:
        """Which shape gives up its part of the floor may make another shape take a place in the fill."""
        entries = self.world.listed.entries
        committed = sum(held.units for held in self.holdings if entries[held.pool_id].committed)
        return committed > caps_for(sum(self.units), self.under).floor_units


TestLivingWorkload = LivingWorkload.TestCase
TestLivingWorkload.settings = settings(QUICK, max_examples=60, stateful_step_count=25)
