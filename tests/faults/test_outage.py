"""The control plane is away for longer than a look is good for, and servers go meanwhile."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from domain.reconcile import ReconcileTerms, pace_limit
from lab.control_plane import WORKER
from tests.faults.conftest import PACE
from tests.faults.plant import PARTITION, REGION, Plant

STATE = """
    SELECT phase, cycle, acting_until > now() FROM reconciles WHERE partition_id = %s AND region = %s
"""
FLEET = "SELECT fleet + 3 FROM reconciles WHERE partition_id = %s AND region = %s"
RECOVERED = "SELECT recovered_at FROM reconciles WHERE partition_id = %s AND region = %s"
ACTIONS = """
    SELECT action, at, paced FROM audit_log
    WHERE region = %s AND at > %s AND action <> 'renew_lease' ORDER BY sequence
"""
GAPS = """
    SELECT extract(epoch FROM until - since) FROM fleet_gaps
    WHERE partition_id = %s AND region = %s AND until >= %s
"""


def away(plant: Plant) -> Any:
    """Kill the worker until every licence has lapsed; when that was."""
    died = plant.rows("SELECT now()")[0][0]
    plant.plane.kill(WORKER)
    plant.until(
        lambda: plant.rows("SELECT count(*) FROM reconciles WHERE acting_until > now()") == [(0,)],
        "licences lapse",
    )
    return died


def test_it_looks_twice_before_it_acts_and_then_in_small_steps(plant: Plant) -> None:
    workload = plant.new(20)
    plant.settle(workload)
    cycle = plant.rows(STATE, PARTITION, REGION)[0][1]
    died = away(plant)
    before = {one["id"] for one in plant.servers(workload)}
    taken = sorted(before)[:3]
    for server_id in taken:
        plant.cloud.terminate(server_id)
    plant.cloud.clear_requests()
    time.sleep(1)
    assert REGION not in plant.cloud.requests()["regions"]
    plant.plane.start(WORKER)
    plant.until(lambda: plant.states(workload).get("lost") == 3, "the lost servers are given up")
    plant.settle(workload)
    recovered = plant.rows(RECOVERED, PARTITION, REGION)[0][0]
    actions = plant.rows(ACTIONS, REGION, died)
    assert min(at for _, at, _ in actions) >= recovered
    assert plant.rows(STATE, PARTITION, REGION)[0][1] >= cycle + 2
    lost = [(at, paced) for action, at, paced in actions if action == "lose"]
    assert [paced for _, paced in lost] == [True] * 3
    most = pace_limit(plant.rows(FLEET, PARTITION, REGION)[0][0], ReconcileTerms())
    window = timedelta(seconds=PACE.pace_window_seconds)
    assert all(sum(first <= at < first + window for at, _ in lost) <= most for first, _ in lost)
    assert (
        max(row[0] for row in plant.rows(GAPS, PARTITION, REGION, died))
        >= PACE.lapse_seconds - PACE.cycle_seconds
    )
    assert not {one["id"] for one in plant.servers(workload)} & set(taken)


def test_a_claim_that_comes_with_the_worker_waits_for_two_looks(plant: Plant) -> None:
    settled = plant.new(6)
    plant.settle(settled)
    died = away(plant)
    workload = plant.new(6)
    plant.plane.start(WORKER)
    plant.settle(workload, settled)
    recovered = plant.rows(RECOVERED, PARTITION, REGION)[0][0]
    actions = plant.rows(ACTIONS, REGION, died)
    assert {action for action, _, _ in actions} == {"launch"}
    assert min(at for _, at, _ in actions) >= recovered


def test_a_worker_that_dies_while_it_recovers_starts_the_look_again(plant: Plant) -> None:
    workload = plant.new(12)
    plant.settle(workload)
    away(plant)
    for one in plant.servers(workload)[:2]:
        plant.cloud.terminate(one["id"])
    for pause in (0.3, 0.8, 1.6):
        plant.plane.start(WORKER)
        time.sleep(pause)
        plant.plane.kill(WORKER)
    plant.plane.start(WORKER)
    plant.until(lambda: plant.states(workload).get("lost") == 2, "the lost servers are given up")
    plant.settle(workload)
