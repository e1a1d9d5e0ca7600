"""Waiting for a placement: when it ends, how, and what is shown meanwhile."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import answers
from tests.cli.conftest import FakeClock, Sco
from tests.cli.fake_api import FakeApi, Reply, document, problem

WORKLOAD = "/workloads/orders-daily"
BEFORE = "2026-11-29T13:00:00Z"
LOST = problem(503, "the database cannot be reached")
PTY_SECONDS = 60
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3\d|4\d|9\d)[;m]")


def at(phase: str, planned: int = 1, **changed: object) -> Reply:
    return document(answers.workload(phase, plannedVersion=planned, **changed))


def placing(api: FakeApi, *states: Reply, version: int = 1) -> None:
    """The first state is read before the placement is asked for, the others while it is waited for."""
    placed = {"workloadId": "orders-daily", "claimVersion": version, "placement": answers.launch()}
    api.on("POST", "/placements", document(placed, 202))
    api.on("GET", WORKLOAD, document(answers.workload("placed", updatedAt=BEFORE)), *states)


def test_it_waits_until_the_claim_is_placed(sco: Sco, api: FakeApi, passing_time: FakeClock) -> None:
    placing(
        api,
        at("requested", 0, instancesByState={}),
        at("acquiring", instancesByState={"planned": 20, "active": 1}),
        at("acquiring", instancesByState={"building": 8, "active": 13}),
        at("acquiring", instancesByState={"building": 8, "active": 13}),
        at("placed"),
    )
    ran = sco("place", "orders-daily", "--wait")
    assert ran.code == 0
    assert ran.err.splitlines() == [
        "  0:00  requested: no instance is planned yet",
        "  0:01  acquiring: 1 of 21 instances active",
        "  0:02  acquiring: 13 of 21 instances active",
        "  0:04  placed: 21 of 21 instances active",
    ]
    assert "workload orders-daily: placed" in ran.out
    assert passing_time.slept == [1.0] * 4
    assert api.asked("POST", "/placements")[0].document == {"workloadId": "orders-daily"}


def test_an_older_placement_is_not_taken_for_the_new_one(sco: Sco, api: FakeApi) -> None:
    api.on("POST", f"{WORKLOAD}/scale", document(answers.claimed(3, units=60)))
    api.on("GET", WORKLOAD, at("placed", 2), at("placed", 2), at("planned", 3), at("placed", 3))
    ran = sco("scale", "orders-daily", "--units", "60", "--wait")
    assert ran.code == 0
    assert len(api.asked("GET", WORKLOAD)) == 4


def test_a_newer_claim_ends_the_wait_too(sco: Sco, api: FakeApi) -> None:
    placing(api, at("placed", 9), version=3)
    assert sco("place", "orders-daily", "--wait").code == 0


def test_a_shortfall_ends_with_5_and_its_reason(sco: Sco, api: FakeApi) -> None:
    short = {"units": 4, "reason": "capacity", "text": "the eligible pools have too little free capacity"}
    placing(api, at("acquiring"), at("shortfall", shortfall=short))
    ran = sco("place", "orders-daily", "--wait")
    assert ran.code == 5
    assert "workload orders-daily: shortfall" in ran.out
    assert "orders-daily: 4 units not placed: the eligible pools have too little" in ran.err
    assert "sco explain orders-daily" in ran.err


def test_too_long_ends_with_4_and_says_how_far_it_came(
    sco: Sco, api: FakeApi, passing_time: FakeClock
) -> None:
    placing(api, at("acquiring", instancesByState={"planned": 3, "active": 18}))
    ran = sco("place", "orders-daily", "--wait", "--timeout", "30")
    assert (ran.code, ran.out) == (4, "")
    assert "is acquiring after 30 seconds: 18 of 21 instances active" in ran.err
    assert sum(passing_time.slept) == 30


def test_a_server_that_is_away_for_a_moment_is_asked_again(sco: Sco, api: FakeApi) -> None:
    placing(api, at("acquiring"), LOST, LOST, LOST, LOST, LOST, at("placed"))
    assert sco("place", "orders-daily", "--wait").code == 0


def test_a_server_that_stays_away_ends_with_3(sco: Sco, api: FakeApi) -> None:
    placing(api, at("acquiring"), LOST)
    ran = sco("place", "orders-daily", "--wait")
    assert ran.code == 3
    assert "the database cannot be reached" in ran.err


def test_a_workload_that_is_gone_ends_with_1(sco: Sco, api: FakeApi) -> None:
    placing(api, at("acquiring"), problem(404, "no workload 'orders-daily'"))
    assert sco("place", "orders-daily", "--wait").code == 1


def test_a_claim_can_be_waited_for_and_printed_for_programs(sco: Sco, api: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "pods.json").write_text('{"kind": "List", "items": []}')
    api.on("POST", f"{WORKLOAD}/claims", document(answers.claimed(1)))
    for command in (["claim", "--workload", "orders-daily"], ["place", "orders-daily"]):
        placing(api, at("planned"), at("placed"))
        ran = sco(*command, "-f", "pods.json", "--wait", "-o", "json")
        assert ran.code == 0
        assert json.loads(ran.out)["phase"] == "placed"


def test_without_wait_it_says_where_to_look(sco: Sco, api: FakeApi) -> None:
    placing(api, at("acquiring"))
    ran = sco("place", "orders-daily")
    assert ran.code == 0
    assert "sco describe workload orders-daily" in ran.out
    assert len(api.asked("GET", WORKLOAD)) == 1


def test_a_placement_that_cannot_run_yet_is_queued(sco: Sco, api: FakeApi) -> None:
    placing(api, at("placed"))
    queued = {"workloadId": "orders-daily", "claimVersion": 2, "placement": answers.launch("queued")}
    api.on("POST", "/placements", document(queued, 202))
    assert "claim 2 is queued" in sco("place", "orders-daily").out


def test_the_outcome_before_is_not_taken_for_the_new_one(sco: Sco, api: FakeApi) -> None:
    """Placing again a workload that fell short: its old outcome stands until the new one is recorded."""
    old = answers.workload("shortfall", updatedAt=BEFORE)
    placing(api, document(old), document(old), at("placed"))
    ran = sco("place", "orders-daily", "--wait")
    assert ran.code == 0
    assert len(api.asked("GET", WORKLOAD)) == 4


@pytest.mark.parametrize("colour", [True, False])
def test_on_a_terminal_a_bar_is_drawn_and_no_colour_is_honoured(api: FakeApi, colour: bool) -> None:
    placing(api, at("acquiring", instancesByState={"planned": 9, "active": 12}), at("placed"))
    text = on_a_terminal(api, *("place", "orders-daily", "--wait"), colour=colour)
    assert "orders-daily acquiring" in text
    assert "12 of 21 instances active" in text
    assert "workload orders-daily: placed" in text
    assert bool(COLOUR.search(text)) is colour


def on_a_terminal(api: FakeApi, *arguments: str, colour: bool = False) -> str:
    """Everything that one run writes to a terminal of 120 columns."""
    master, slave = pty.openpty()
    environment = {
        "PATH": os.environ["PATH"],
        "TERM": "xterm-256color",
        "COLUMNS": "120",
        "SCO_SERVER": api.url,
        "NO_COLOR": "" if colour else "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "clients.cli.main", *arguments],
        env=environment,
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    found = bytearray()
    try:
        while chunk := os.read(master, 65536):
            found += chunk
    except OSError:
        pass  # Linux ends a terminal that nobody holds with an error
    finally:
        os.close(master)
    assert process.wait(PTY_SECONDS) == 0
    return found.decode()
