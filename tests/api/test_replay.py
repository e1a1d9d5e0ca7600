"""Replay: a decision comes out as it was stored, and whatever was changed since is reported in its place."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from domain.placement import scoring
from tests.api.door import Door

REPLAY = "/placements/orders-daily/replay"


async def replayed(door: Door, **query: Any) -> dict[str, Any]:
    answer = await door.post(REPLAY, params=query)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_every_generation_comes_out_the_same(door: Door) -> None:
    await door.open_estate()
    for units in (42, 60, 7, 0):
        await door.claim(units, allowShrink=True)
        await door.placer.decide("orders-daily")
        await door.placer.run()
    await door.estate.rank()
    for generation in (1, 2, 3, 4):
        told = await replayed(door, generation=generation)
        assert (told["same"], told["differences"], told["generation"]) == (True, [], generation)
    assert (await replayed(door))["generation"] == 4


async def test_a_shortfall_comes_out_the_same(door: Door) -> None:
    await door.open_estate(free=1)
    await door.placed(500)
    assert (await door.get("/placements/orders-daily")).json()["shortfall"]["units"] > 0
    told = await replayed(door)
    assert told["same"], told["differences"]


# What is changed in the store, and the first part that a replay must name.
TAMPERED = {
    "inputs: an episode more": (
        "UPDATE rankings SET inputs = jsonb_set(inputs, '{0,episodes}', '77')",
        "ranking.scores[",
    ),
    "inputs: a cheaper pool": (
        "UPDATE rankings SET inputs = jsonb_set(inputs, '{3,facts,price_per_hour_usd}', '\"0.000001\"')",
        "ranking.scores[",
    ),
    "inputs: a pool gone": ("UPDATE rankings SET inputs = inputs - 5", "ranking.scores["),
    "inputs: unreadable": (
        "UPDATE rankings SET inputs = jsonb_set(inputs, '{0,episodes}', '\"many\"')",
        "PoolInputs",
    ),
    "scores: a deeper pool": (
        "UPDATE rankings SET scores = jsonb_set(scores, '{2,depth_band}', '3')",
        "ranking.scores[",
    ),
    "scores: unreadable": ("UPDATE rankings SET scores = '[{}]'", "PoolScore"),
    "policy": (
        "UPDATE rankings SET policy = jsonb_set(policy, '{deep_instances}', '400')",
        "ranking.scores[",
    ),
    "scorer": ("UPDATE rankings SET scorer_version = '0'", "ranking.scorerVersion"),
    "class": (
        "UPDATE shortlists SET requirement_class ="
        " jsonb_set(requirement_class, '{requirements,arch}', '\"arm64\"')",
        "shortlist.classKey",
    ),
    "fill: order": (
        "UPDATE shortlists SET fill = jsonb_set(jsonb_set(fill, '{0}', fill->1), '{1}', fill->0)",
        "shortlist.fill[0]",
    ),
    "fill: one less": ("UPDATE shortlists SET fill = fill - -1", "shortlist.fill["),
    "floor": ("UPDATE shortlists SET floor = floor - 0", "shortlist.floor[0]"),
    "refused": (
        'UPDATE shortlists SET refused = refused || \'{"eu-north-h1-ga-m": "price"}\'',
        "shortlist.refused[eu-north-h1-ga-m]",
    ),
    "question: units": (
        "UPDATE placement_decisions SET question = jsonb_set(question, '{units,0}', '43')",
        "claim.units",
    ),
    "question: terms": (
        "UPDATE placement_decisions SET question = jsonb_set(question, '{terms,pool_cap_share}', '\"0.30\"')",
        "decision.",
    ),
    "question: live": (
        "UPDATE placement_decisions SET question ="
        " jsonb_set(question, '{live}', question->'live' || '{\"nowhere\": [1, null, false]}')",
        "decision.question[live][nowhere]",
    ),
    "question: unreadable": ("UPDATE placement_decisions SET question = '{}'", "decision"),
    "allocations": (
        "UPDATE placement_decisions SET allocations = jsonb_set(allocations, '{0,2}', '1')",
        "decision.allocations",
    ),
    "reasons": (
        'UPDATE placement_decisions SET reasons = reasons || \'{"eu-north-h1-gp-s": "quota"}\'',
        "decision.reasons[eu-north-h1-gp-s]",
    ),
    "shortfalls": (
        "UPDATE placement_decisions SET shortfalls = '[[1, \"capacity\"]]'",
        "decision.shortfalls",
    ),
    "outcome": ("UPDATE placement_decisions SET outcome = 'policy_denied'", "decision.outcome"),
    "claim: another shape": (
        "UPDATE claims SET demand = jsonb_set(demand, '{shapes,0,shape,vcpu_milli}', '2000')",
        "claim.shapes",
    ),
    "claim: other units": (
        "UPDATE claims SET demand = jsonb_set(demand, '{shapes,0,units}', '41')",
        "claim.units",
    ),
    "claim: another place": (
        "UPDATE claims SET demand = jsonb_set(demand, '{requirements,nvme}', 'true')",
        "claim.requirements",
    ),
    "generation: cost": ("UPDATE plan_generations SET cost_per_hour = 1", "generation.cost_per_hour"),
    "generation: premium": (
        "UPDATE plan_generations SET depth_premium_per_hour = 9",
        "generation.depth_premium_per_hour",
    ),
    "generation: currency": ("UPDATE plan_generations SET currency = 'EUR'", "generation.currency"),
    "generation: units": ("UPDATE plan_generations SET units = 99", "generation.units"),
    "generation: placed": ("UPDATE plan_generations SET placed_units = 1", "generation.placed_units"),
    "generation: floor": ("UPDATE plan_generations SET floor_units = 1", "generation.floor_units"),
    "generation: pool cap": ("UPDATE plan_generations SET pool_cap_units = 1", "generation.pool_cap_units"),
    "generation: group cap": (
        "UPDATE plan_generations SET group_cap_units = 1",
        "generation.group_cap_units",
    ),
    "generation: floor spread": (
        "UPDATE plan_generations SET floor_spread_met = NOT floor_spread_met",
        "generation.floor_spread_met",
    ),
    "generation: hall spread": (
        "UPDATE plan_generations SET hall_spread_met = NOT hall_spread_met",
        "generation.hall_spread_met",
    ),
}


@pytest.mark.parametrize(("change", "part"), TAMPERED.values(), ids=TAMPERED.keys())
async def test_whatever_was_changed_is_reported(read_door: Door, change: str, part: str) -> None:
    assert (await replayed(read_door))["same"]
    saved = [
        (table, await read_door.estate.rows(f"CREATE TABLE saved_{table} AS TABLE {table}"))
        for table in ("rankings", "shortlists", "placement_decisions", "plan_generations", "claims")
    ]
    try:
        await read_door.estate.rows(change)
        told = await replayed(read_door)
        assert not told["same"]
        parts = [one["part"] for one in told["differences"]]
        assert any(one.startswith(part) for one in parts), parts
        assert all(one["stored"] != one["recomputed"] for one in told["differences"])
    finally:
        for table, _ in saved:
            await restore(read_door, table)
    assert (await replayed(read_door))["same"]


async def restore(door: Door, table: str) -> None:
    """Put back what a test changed; ids never change, so the rows are updated in place."""
    columns = [
        row[0]
        for row in await door.estate.rows(
            "SELECT column_name FROM information_schema.columns"
            " WHERE table_name = :t AND table_schema = 'public'",
            t=table,
        )
    ]
    key = {"claims": "workload_id"}.get(table, "ranking_id")
    if table in ("placement_decisions", "plan_generations"):
        key = "decision_id"
    assigned = ", ".join(f"{name} = s.{name}" for name in columns)
    await door.estate.rows(f"UPDATE {table} t SET {assigned} FROM saved_{table} s WHERE t.{key} = s.{key}")
    await door.estate.rows(f"DROP TABLE saved_{table}")


async def test_another_rule_of_scoring_is_told_pool_by_pool(
    read_door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shallower(*_: Any) -> Any:
        return Decimal("0.1000")

    monkeypatch.setattr(scoring, "depth_of", shallower)
    told = await replayed(read_door)
    assert not told["same"]
    assert len(told["differences"]) == 100
    assert told["omitted"] > 0
    assert told["differences"][0]["recomputed"] == "0.1000"
