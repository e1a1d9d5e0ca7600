"""What operators watch moves with what the hands do."""

from __future__ import annotations

from prometheus_client import REGISTRY

from tests.activities.deciding import Placer, halls
from tests.estates import Estate, contract


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_decisions_are_counted_by_outcome_and_timed(estate: Estate) -> None:
    placer = Placer(estate)
    await estate.open(halls(), free=3)
    await estate.workload("counted", contract())
    before = {
        outcome: value("sco_placement_decisions_total", outcome=outcome)
        for outcome in ("placed", "shortfall")
    }
    timed = value("sco_placement_decision_seconds_count")

    await placer.place(2, "counted")
    await placer.place(5_000, "counted")

    assert value("sco_placement_decisions_total", outcome="placed") == before["placed"] + 1
    assert value("sco_placement_decisions_total", outcome="shortfall") == before["shortfall"] + 1
    assert value("sco_placement_decision_seconds_count") == timed + 2
