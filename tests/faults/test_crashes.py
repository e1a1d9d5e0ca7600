"""Processes die without warning in the middle of placements, and every placement ends as one world."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.cloud.faults import FaultKind
from lab.control_plane import WORKER
from lab.stack import process
from tests.faults.conftest import PACE
from tests.faults.plant import CREATE, LIST, PARTITION, REGION, Plant

SEEDS = range(12)
HANGING_SECONDS = 60
AGE = """
    UPDATE workloads SET updated_at = now() - interval '11 seconds' WHERE workload_id = %s RETURNING 1
"""
SILENT: dict[str, Any] = {"times": 1, "delay_seconds": HANGING_SECONDS}


def test_a_worker_dies_at_every_point_of_a_placement(plant: Plant) -> None:
    shrinking = plant.new(10)
    plant.settle(shrinking)
    decided = stop_after_decision(plant)
    asked = stop_at_create(plant, FaultKind.TIMEOUT_BEFORE)
    created = stop_at_create(plant, FaultKind.TIMEOUT_AFTER)
    plant.cloud.set_speed(1)
    building = plant.new(10)
    plant.until(lambda: plant.states(building).get("building"), "servers are being built")
    plant.claim(shrinking, 2)
    plant.until(lambda: plant.states(shrinking).get("releasing"), "servers are being given back")
    plant.plane.kill(WORKER)
    claimed = plant.new(10)

    assert plant.states(decided).keys() == {"planned"}
    assert plant.servers(decided) == plant.servers(asked) == plant.servers(claimed) == []
    assert plant.servers(created)
    assert plant.states(created).keys() == {"planned"}
    assert plant.states(building).get("building")
    assert plant.states(shrinking).get("releasing")
    assert plant.states(claimed) == {}

    plant.cloud.clear_faults()
    plant.cloud.set_speed(PACE.cloud_speed)
    plant.plane.start(WORKER)
    everyone = (shrinking, decided, asked, created, building, claimed)
    assert plant.settle(*everyone) == dict.fromkeys(everyone, ("placed", 0, None))


def stop_after_decision(plant: Plant) -> str:
    """A workload whose plan is committed, while the first look at the provider hangs."""
    plant.fault(FaultKind.TIMEOUT_BEFORE, path=LIST, query="workload", **SILENT)
    workload = plant.new(10)
    plant.until(lambda: plant.fired()[-1], "the list hangs")
    return workload


def stop_at_create(plant: Plant, kind: FaultKind) -> str:
    """A workload whose first create hangs, before or after the provider acted on it."""
    plant.fault(kind, method="POST", path=CREATE, **SILENT)
    workload = plant.new(10)
    plant.until(lambda: plant.fired()[-1], "the create hangs")
    return workload


def test_temporal_dies_and_a_claim_is_committed_meanwhile(plant: Plant) -> None:
    """The claim's start is lost with it: the sweep finds the claim later."""
    stack = plant.plane.stack
    plant.cloud.set_speed(4)
    placing = plant.new(10)
    plant.until(lambda: plant.states(placing).get("building"), "servers are being built")
    stack.kill_one("temporal")
    claimed = plant.new(10, start=False)
    plant.cloud.set_speed(PACE.cloud_speed)
    assert plant.outcomes([placing, claimed]) == {}
    stack.start_one("temporal")
    age(plant, claimed)
    plant.trigger(f"placement-sweep/{PARTITION}")
    assert plant.settle(placing, claimed) == dict.fromkeys((placing, claimed), ("placed", 0, None))


def age(plant: Plant, workload: str) -> None:
    """The sweep leaves claims alone that are a few seconds old, as their start may be under way."""
    aged = (
        "UPDATE workloads SET updated_at = now() - interval '11 seconds' WHERE workload_id = %s RETURNING 1"
    )
    assert plant.rows(aged, workload)


def test_postgres_dies_while_servers_are_built(plant: Plant) -> None:
    stack = plant.plane.stack
    plant.cloud.set_speed(4)
    placing = [plant.new(10), plant.new(10)]
    plant.until(lambda: all(plant.states(one).get("building") for one in placing), "servers are being built")
    stack.kill_one("postgres")
    plant.cloud.set_speed(PACE.cloud_speed)
    time.sleep(1)
    stack.start_one("postgres")
    assert plant.settle(*placing) == dict.fromkeys(placing, ("placed", 0, None))


@pytest.fixture
def second_worker(plant: Plant) -> Iterator[process.Identity]:
    """A second worker process on the same queues."""
    log = plant.plane.data_dir / "logs" / "second-worker.log"
    started = process.spawn(
        [sys.executable, "-m", "workers.main"],
        log=log,
        folder=Path.cwd(),
        environment=os.environ | plant.plane.worker_environment() | {"SCO_METRICS_PORT": "0"},
        account=None,
    )
    plant.until(lambda: "worker_started" in log.read_text(), "the second worker serves")
    yield started
    process.kill(started)


def test_two_workers_share_the_work_and_the_budget(plant: Plant, second_worker: process.Identity) -> None:
    plant.cloud.clear_requests()
    placing = [plant.new(10) for _ in range(6)]
    process.kill(second_worker)
    assert plant.settle(*placing) == dict.fromkeys(placing, ("placed", 0, None))
    rate = PACE.provider_calls_per_second
    for seconds in (1, 3):
        asked = plant.cloud.requests(window_seconds=seconds)["regions"][REGION]
        assert 0 < asked["max_in_window"] <= 2 * rate + rate * seconds


def test_a_worker_dies_again_and_again_at_moments_of_chance(plant: Plant) -> None:
    names: list[str] = []
    for seed in SEEDS:
        chance = random.Random(seed)
        if names and chance.random() < 0.4:
            plant.claim(chance.choice(names), chance.randint(0, 15))
        else:
            names.append(plant.new(chance.randint(1, 12)))
        time.sleep(chance.uniform(0, 1.2))
        plant.restart_worker()
    # Pools may have gone unobserved meanwhile, and take nothing until they are: then the sweep tries again.
    plant.until(
        lambda: plant.settle(*names) == dict.fromkeys(names, ("placed", 0, None)), "all is placed in the end"
    )
