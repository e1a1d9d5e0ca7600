"""The hand that places models is measured, on few placements here."""

from __future__ import annotations

import pytest

from lab.bench import grpc_calls, place_hand
from store.engine import Engine


async def test_the_hand_that_places_models_is_measured(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, dsn: str
) -> None:
    monkeypatch.setattr(grpc_calls, "POOLS", 6)
    for name, value in {"WARM_UP": 2, "ALONE": 5, "CROWD": 20, "IN_FLIGHT": 4}.items():
        monkeypatch.setattr(place_hand, name, value)
    await grpc_calls.prepare(engine)
    figures = {one.name: one.value for one in await place_hand.measure(engine, dsn)}
    assert set(figures) == {"place_hand_p95_ms", "place_hand_per_s"}
    assert all(value > 0 for value in figures.values())
    held = await _held(engine)
    assert held == 2 + 5 + 20


async def _held(engine: Engine) -> int:
    async with engine.connect() as connection:
        found = await connection.exec_driver_sql(
            "SELECT count(*) FROM model_placements WHERE state = 'held' AND warm"
        )
        return int(found.scalar_one())
