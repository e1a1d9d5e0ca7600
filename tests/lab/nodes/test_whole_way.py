"""A server that the control plane launched, from its one-time token to the story of its drain."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lab.bring_up import bring_up
from lab.cloud.admin_client import AdminClient
from lab.control_plane import API, RELAY, WORKER, ControlPlane
from lab.demo.tools import CloudRecord, Sco
from lab.nodes.commands import start_on
from lab.nodes.metadata import http_target
from lab.nodes.node_file import vendordata_target
from lab.nodes.running import RunningNodes
from lab.nodes.workloads import Kind
from lab.reclaimer.targets import Node
from lab.stack import Stack
from tests.stack_fixtures import new_folder
from wire.lifecycle import EventType

EXAMPLES = Path(__file__).parents[3] / "examples"
CONTRACT = EXAMPLES / "contracts" / "orders-daily.yaml"
PODS = EXAMPLES / "demand" / "orders-daily-pods.json"
WORKLOAD = "orders-daily"
WARNING_SECONDS = 8.0
PATIENCE_SECONDS = 60.0
# A whole region runs on one machine: a scheduler that is well may take its time there.
PATIENT = {"SCO_AGENT_SCHEDULER_SECONDS": "2"}


@dataclass(frozen=True)
class Laboratory:
    """Everything as `sco-lab up` starts it, a placed workload, and nodes on three of its servers."""

    plane: ControlPlane
    sco: Sco
    cloud: AdminClient
    nodes: RunningNodes

    def told(self, node: Node) -> set[str]:
        return {one["type"] for one in self.nodes.events() if one["instanceId"] == node.instance_id}

    def outcomes(self, node: Node) -> list[str]:
        return [str(one["outcome"]) for one in self.sco.data("drains", "--node", node.instance_id)]

    def lines(self, node: Node) -> list[str]:
        """The story of a node's newest drain; none while the history knows of no drain."""
        if not self.outcomes(node):
            return []
        return [str(line["text"]) for line in self.sco.data("explain-drain", node.instance_id)["lines"]]

    def listed(self, node: Node) -> dict[str, Any] | None:
        found = [one for one in self.sco.data("nodes") if one["instanceId"] == node.instance_id]
        return found[0] if found else None

    def has_told(self, node: Node) -> bool:
        """Whether the history knows anything of it."""
        listed = self.listed(node)
        return listed is not None and listed["lastEvent"] is not None

    def token(self, instance_id: str) -> dict[str, Any]:
        """What the metadata of an instance would show below `sco`."""
        target = http_target(vendordata_target(self.plane.relay.node_file(self.plane.api_url)))
        return asyncio.run(_answer(target(instance_id)))


async def _answer(asked: Any) -> dict[str, Any]:
    return dict(await asked)


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture(scope="module")
def laboratory() -> Iterator[Laboratory]:
    folder = new_folder()
    stack = Stack.start(folder / "lab")
    plane = ControlPlane(stack)
    try:
        bring_up(plane)
        sco = Sco(plane, Console(quiet=True))
        sco.run("apply", "-f", str(CONTRACT))
        sco.run("claim", "-f", str(PODS), "--workload", WORKLOAD, "--wait")
        # The relay without nodes gives way to one with them.
        plane.stop(RELAY)
        nodes = start_on(plane.data_dir, WORKLOAD, 3, (Kind.HONEST,), PATIENT)
        yield Laboratory(plane, sco, CloudRecord(plane).admin, nodes)
    finally:
        # Nothing is left to hand over, so its grace need not be waited for.
        plane.kill(WORKER)
        plane.stop_all()
        stack.stop()
        shutil.rmtree(folder)


def test_a_server_that_was_launched_is_known_by_its_agent_alone(laboratory: Laboratory) -> None:
    for node in laboratory.nodes.nodes:
        listed = laboratory.listed(node)
        assert listed is not None
        assert (listed["workloadId"], listed["hall"]) == (WORKLOAD, node.hall)
        # The first version is the copy of the launch; this one was asked for with the node's own key.
        assert listed["bundleVersion"] > 1
        assert laboratory.token(node.instance_id) == {}
        # Its scheduler is there to be asked, so that the agent is ready to drain, and says so.
        until(partial(laboratory.has_told, node))
        assert laboratory.told(node) == {EventType.READY}
    known = {node.instance_id for node in laboratory.nodes.nodes}
    server = next(one["id"] for one in laboratory.cloud.servers() if one["id"] not in known)
    assert set(laboratory.token(server)) == {"token", "apiUrl"}
    assert laboratory.token("nobodys") == {}


def test_a_notice_drains_the_node_and_the_history_tells_how(laboratory: Laboratory) -> None:
    node = laboratory.nodes.nodes[0]
    [notice] = laboratory.nodes.reclaimer(WARNING_SECONDS).reclaim([node])
    until(lambda: laboratory.outcomes(node) == ["drained"])
    story = laboratory.sco.data("explain-drain", node.instance_id)
    assert story["sentence"].startswith("Nobody's fault: the provider took the node back")
    assert story["drainId"] == str(notice.notice_id)
    assert 0 < story["secondsToSpare"] < WARNING_SECONDS
    assert 0 <= story["signalledAfterSeconds"] < WARNING_SECONDS
    assert story["gaps"] == []
    # By eviction: the workload was a pod, whose kubelet ended it and told how.
    assert story["path"] == "kubernetes"
    assert any("exit code 0: pod default/work-" in line["text"] for line in story["lines"])
    seconds = [line["seconds"] for line in story["lines"]]
    assert len(seconds) >= 4
    assert seconds == sorted(seconds)
    assert "Notice by" in story["lines"][0]["text"]
    assert "Nothing was left on the node" in story["lines"][-1]["text"]
    # The deadline is meant: the server ends, and another one is placed for it.
    until(lambda: laboratory.listed(node) is None)
    assert laboratory.outcomes(node) == ["drained"]


def test_a_notice_that_is_withdrawn_after_the_work_ended_is_told_and_ends_no_server(
    laboratory: Laboratory,
) -> None:
    node = laboratory.nodes.nodes[1]
    reclaimer = laboratory.nodes.reclaimer()
    said = reclaimer.reclaim([node])
    until(lambda: EventType.DRAINED in laboratory.told(node))
    reclaimer.withdraw(said)
    until(lambda: any("The notice was withdrawn" in line for line in laboratory.lines(node)))
    assert laboratory.outcomes(node) == ["drained"]
    listed = laboratory.listed(node)
    assert listed is not None
    assert listed["state"] == "active"


def test_a_drain_without_a_control_plane_is_in_the_history_once_it_is_back(laboratory: Laboratory) -> None:
    node = laboratory.nodes.nodes[2]
    for name in (API, WORKER):
        laboratory.plane.kill(name)
    laboratory.nodes.reclaimer().reclaim([node])
    until(lambda: EventType.DRAINED in laboratory.told(node))
    for name in (WORKER, API):
        assert not laboratory.plane.running(name)
        laboratory.plane.start(name)
    until(lambda: laboratory.outcomes(node) == ["drained"])
    told = [one["eventId"] for one in laboratory.nodes.events() if one["instanceId"] == node.instance_id]
    assert len(told) == len(set(told))
