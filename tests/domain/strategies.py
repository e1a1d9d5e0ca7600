"""Small estates, claims and histories for property tests of placement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from domain.claim import Shape
from domain.placement.caps import Terms
from domain.placement.draft import Holding, Live
from domain.placement.filters import Shortlist, shortlist
from domain.placement.portfolio import Plan, Question, plan
from domain.placement.scoring import PoolInputs, rank
from domain.policy import ScoringPolicy
from domain.pool import PurchaseModel
from domain.reasons import Reason
from tests.domain.worlds import UNIT, facts, terms, wanted

QUICK = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
SHAPES = (
    UNIT,
    Shape(vcpu_milli=3000, ram_mib=4 * 1024),
    Shape(vcpu_milli=2000, ram_mib=16 * 1024),
    Shape(vcpu_milli=1500, ram_mib=2 * 1024),
    Shape(vcpu_milli=1000, ram_mib=1024),
    Shape(vcpu_milli=500, ram_mib=512),
)
OPEN = (None, False)
STANDINGS = (
    OPEN,
    (None, True),
    (Reason.BACKED_OFF, False),
    (Reason.STALE, False),
    (Reason.EXCLUDED, False),
    (Reason.STATE, False),
)


class Sketch(NamedTuple):
    """One pool of a small estate. `dear` of 9 is an inverted price, which the filters refuse."""

    hall: int
    aggregate: int
    cores: int
    dear: int
    free: int
    episodes: int
    committed: bool
    standing: int


def sketches(*, standings: int = len(STANDINGS), committed: bool | None = None) -> st.SearchStrategy[Sketch]:
    return st.builds(
        Sketch,
        hall=st.integers(1, 4),
        aggregate=st.integers(1, 2),
        cores=st.sampled_from((4, 8, 16, 32)),
        dear=st.sampled_from((3, 4, 5, 3, 4, 9)),
        free=st.integers(0, 6),
        episodes=st.sampled_from((0, 0, 100)),
        committed=st.booleans() if committed is None else st.just(committed),
        standing=st.sampled_from((0,) * 6 + tuple(range(standings))),
    )


def inputs_of(estate: Sequence[Sketch]) -> list[PoolInputs]:
    """Pools of one family; the price of one vCPU is a tenth of `dear` of the guaranteed one."""
    return [
        PoolInputs(
            facts=facts(
                f"pool-{number:02d}",
                hall=f"h{pool.hall}",
                group=f"h{pool.hall}-a{pool.aggregate}",
                cores=pool.cores,
                model=PurchaseModel.COMMITTED if pool.committed else PurchaseModel.RECLAIMABLE,
                price=f"{pool.cores * pool.dear * Decimal('0.01')}",
                guaranteed=f"{pool.cores * Decimal('0.1')}",
            ),
            episodes=pool.episodes,
            observed_hours=720,
            free_instances=40,
        )
        for number, pool in enumerate(estate)
    ]


@dataclass(frozen=True)
class World:
    """An estate ranked and shortlisted, and its state now."""

    listed: Shortlist
    live: Mapping[str, Live]
    shapes: tuple[Shape, ...]

    def asked(self, units: Sequence[int], under: Terms, holdings: Sequence[Holding] = ()) -> Question:
        return Question(tuple(units), under, self.listed, self.live, tuple(holdings))

    def after(self, made: Plan, holdings: Sequence[Holding], *, deleted: bool = True) -> World:
        """The estate once the plan is carried out; what was released is free again only when `deleted`."""
        change: Counter[tuple[str, int]] = Counter()
        for one in made.allocations:
            change[one[:2]] -= one.instances
        for held in holdings:
            change[held[:2]] += held.instances
        live = dict(self.live)
        for (pool_id, _), gained in change.items():
            state = live[pool_id]
            live[pool_id] = state._replace(free=state.free + (gained if deleted else min(0, gained)))
        return replace(self, live=live)


def world_of(estate: Sequence[Sketch], shapes: tuple[Shape, ...] = (UNIT,)) -> World:
    ranking = rank("ranking-1", "k8s-eu-north", inputs_of(estate), ScoringPolicy())
    listed = shortlist(ranking, wanted(*shapes))
    live = {
        f"pool-{number:02d}": Live(pool.free, *STANDINGS[pool.standing]) for number, pool in enumerate(estate)
    }
    return World(listed, live, shapes)


def worlds(
    *, shapes: tuple[Shape, ...] = (UNIT,), standings: int = len(STANDINGS), committed: bool | None = None
) -> st.SearchStrategy[World]:
    pools = sketches(standings=standings, committed=committed)
    return st.lists(pools, min_size=1, max_size=14).map(lambda estate: world_of(estate, shapes))


def any_terms() -> st.SearchStrategy[Terms]:
    return st.builds(
        terms,
        floor=st.sampled_from(("0", "0.10", "0.30", "0.30", "0.5")),
        pool=st.sampled_from(("0.15", "0.15", "0.4", "1")),
        group=st.sampled_from(("0.30", "0.30", "0.5", "1")),
    )


def as_holdings(made: Plan, generation: int, before: Sequence[Holding] = ()) -> tuple[Holding, ...]:
    """What is held once the plan is carried out; a holding's generation is that of its latest growth."""
    old = {(held.pool_id, held.shape_index): held for held in before}
    kept = []
    for one in made.allocations:
        held = old.get((one.pool_id, one.shape_index))
        grown = held is None or one.units > held.units
        kept.append(Holding(*one, generation=generation if held is None or grown else held.generation))
    return tuple(kept)


@dataclass(frozen=True)
class Lived:
    """A workload with a history: its world now, its holdings, and the claim they were planned for."""

    world: World
    under: Terms
    units: tuple[int, ...]
    holdings: tuple[Holding, ...]
    made: Plan


def live_through(world: World, under: Terms, claims: Sequence[tuple[int, ...]]) -> Lived:
    """Plan and carry out one claim after the other; what the last one released is still being deleted."""
    holdings: tuple[Holding, ...] = ()
    made = plan(world.asked(claims[0], under))
    for generation, units in enumerate(claims, start=1):
        made = plan(world.asked(units, under, holdings))
        world = world.after(made, holdings, deleted=generation < len(claims))
        holdings = as_holdings(made, generation, holdings)
    return Lived(world, under, claims[-1], holdings, made)


def claims(shapes: int, most: int = 40) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*[st.integers(1, most)] * shapes)


def histories(shapes: tuple[Shape, ...] = (UNIT,), standings: int = 2) -> st.SearchStrategy[Lived]:
    return st.builds(
        live_through,
        worlds(shapes=shapes, standings=standings),
        any_terms(),
        st.lists(claims(len(shapes)), min_size=1, max_size=3),
    )
