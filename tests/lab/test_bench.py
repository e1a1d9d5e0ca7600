"""The benches run, on few claims here, and write what they measured beside what others wrote."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from lab.bench import durable, faults, growth, grpc_calls, planner, pool_reads, rebuild, run
from lab.bench.report import Figure, percentile, write
from lab.stack.stack import Stack


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([5.0], 0.99, 5.0),
        ([4.0, 1.0, 3.0, 2.0], 0.5, 2.0),
        (list(range(1, 101)), 0.95, 95),
        ([1, 2], 0.99, 2),
    ],
)
def test_a_percentile_is_a_value_that_was_measured(
    values: list[float], share: float, expected: float
) -> None:
    assert percentile(values, share) == expected


def figure(name: str, value: float) -> Figure:
    return Figure(name=name, value=value, unit="1/s", method="by hand")


def test_figures_replace_those_of_their_name_and_keep_the_others(tmp_path: Path) -> None:
    path = tmp_path / "build" / "bench.json"
    write(path, [figure("kept", 1), figure("replaced", 1)])
    write(path, [figure("replaced", 2)])
    rows = {row["name"]: row for row in json.loads(path.read_text())}
    assert {name: row["value"] for name, row in rows.items()} == {"kept": 1, "replaced": 2}
    assert {"name", "value", "unit", "method"} <= rows["kept"].keys()


def test_the_planner_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "CLAIMS", 50)
    (measured,) = planner.measure()
    assert measured.name == "planner_decisions_per_s"
    assert measured.value > 0


def test_decisions_are_measured_beside_the_yardstick(
    monkeypatch: pytest.MonkeyPatch, own_stack: Stack
) -> None:
    small: list[tuple[ModuleType, dict[str, object]]] = [
        (growth, {"SMALL": 20, "LARGE": 60, "DECISIONS": 5}),
        (durable, {"PER_ROUND": 6, "ROUNDS": 1, "WARM_UP": 2, "OPEN_RATES": (5,), "OPEN_SECONDS": 1}),
        (run, {"LIVE_CLAIMS": 10}),
    ]
    for module, values in small:
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)

    figures = asyncio.run(run._decisions(own_stack, lambda line: None))

    assert {one.name for one in figures} == {
        "planner_cost_ratio_100k_over_1k",
        "bare_workflow_per_s",
        "placement_durable_per_s",
        "placement_over_bare_ratio",
        "placement_durable_p50_ms_at_5",
        "placement_durable_p95_ms_at_5",
        "placement_durable_p99_ms_at_5",
    }
    assert all(one.value > 0 for one in figures)


def test_lost_records_are_rebuilt_and_timed(monkeypatch: pytest.MonkeyPatch, own_stack: Stack) -> None:
    monkeypatch.setattr(rebuild, "SERVERS", 200)
    (measured,) = asyncio.run(run._rebuilding(own_stack, lambda line: None))
    assert measured.name == "rebuild_20k_instances_s"
    assert measured.value > 0
    assert "200 records" in measured.method


def test_faults_are_lived_through_and_counted(monkeypatch: pytest.MonkeyPatch, own_stack: Stack) -> None:
    monkeypatch.setattr(faults, "CASES", 4)
    monkeypatch.setattr(faults, "JOBS", 1)
    figures = {one.name: one.value for one in asyncio.run(run._faults(own_stack, lambda line: None))}
    assert figures["provider_fault_cases"] == 4
    assert figures["provider_fault_leaks"] == 0
    assert 0 < figures["provider_rate_over_budget_max"] <= 1


def test_placements_over_grpc_are_measured_while_pools_report(
    monkeypatch: pytest.MonkeyPatch, own_stack: Stack
) -> None:
    small = {"POOLS": 6, "REPORT_SECONDS": 0.5, "OPEN_RATES": (10,), "OPEN_SECONDS": 1.0, "MOST_SECONDS": 1.0}
    for name, value in small.items():
        monkeypatch.setattr(grpc_calls, name, value)
    for name, figure_of_it in {"PER_SECOND": 10, "SECONDS": 1.0, "WARM_UP_SECONDS": 0.5}.items():
        monkeypatch.setattr(pool_reads, name, figure_of_it)
    figures = asyncio.run(run._model_placements(own_stack, lambda line: None))
    names = {one.name for one in figures}
    assert names == {"place_grpc_per_s", "place_grpc_p95_ms_at_10", "pool_reads_p99_ms_at_100"}
    reads = next(one for one in figures if one.name == "pool_reads_p99_ms_at_100")
    assert reads.value > 0
    assert "; 0 refused" in reads.method
    for one in (each for each in figures if each.name.startswith("place_grpc")):
        assert one.value > 0
        accepted = re.search(r"\((\d+) accepted, 0 refused\); calls refused: none", one.method)
        assert accepted is not None, one.method
        assert int(accepted[1]) >= 6
