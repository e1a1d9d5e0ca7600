"""How many decisions per second the planner makes alone, on one core."""

from __future__ import annotations

import random
import time
from decimal import Decimal
from itertools import islice

from domain.claim import Demand
from domain.placement.caps import Terms, cap_units
from domain.placement.draft import Live
from domain.placement.filters import RequirementClass, Shortlist, pool_cap_units_that_matter, shortlist
from domain.placement.portfolio import Question, plan
from domain.placement.scoring import PoolInputs, Ranking, rank
from domain.policy import ScoringPolicy
from lab.bench.estate import FLOOR_SHARE, demands, facts
from lab.bench.report import Figure

CLAIMS = 5_000
ROUNDS = 5
TERMS = Terms(
    floor_share=FLOOR_SHARE,
    pool_cap_share=Decimal("0.15"),
    group_cap_share=Decimal("0.30"),
    probation_cap_share=Decimal("0.05"),
    floor_min_halls=3,
)


def _ranking(rng: random.Random) -> Ranking:
    inputs = [
        PoolInputs(
            facts=one, episodes=rng.randint(0, 12), observed_hours=720, free_instances=rng.randint(10, 400)
        )
        for one in facts()
    ]
    return rank("bench", "bench", inputs, ScoringPolicy())


def _question(demand: Demand, ranking: Ranking, known: dict[str, Shortlist]) -> Question:
    shapes = tuple(group.shape for group in demand.shapes)
    cap = cap_units(TERMS.pool_cap_share, demand.units)
    wanted = RequirementClass(
        requirements=demand.requirements,
        shapes=shapes,
        tolerated_interruptions_per_hour=Decimal(1),
        pool_cap_units=pool_cap_units_that_matter(ranking, shapes, cap),
    )
    listed = known.get(wanted.key) or known.setdefault(wanted.key, shortlist(ranking, wanted))
    live = {score.facts.pool_id: Live(100) for score in ranking.scores}
    return Question(units=(demand.units,), terms=TERMS, shortlist=listed, live=live)


def measure() -> list[Figure]:
    """The median of several rounds over the same distinct claims; every plan must place all its units."""
    rng = random.Random(1)
    ranking = _ranking(rng)
    known: dict[str, Shortlist] = {}
    questions = [_question(one, ranking, known) for one in islice(demands(rng), CLAIMS)]
    rates = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for question in questions:
            if plan(question).shortfalls:
                raise RuntimeError("a benched claim was not placed: the figure would be meaningless")
        rates.append(CLAIMS / (time.perf_counter() - began))
    return [
        Figure(
            name="planner_decisions_per_s",
            value=sorted(rates)[ROUNDS // 2],
            unit="1/s",
            target=">= 2,000",
            method=(
                f"median of {ROUNDS} rounds of {CLAIMS:,} distinct first claims of 20-60 units over 432"
                f" reclaimable and 108 committed pools, {len(known)} requirement classes, one core"
            ),
        )
    ]
