"""The laboratory's kubelets: a pod ends when its processes do, with what they said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.nodes.kubelets import Kubelets
from lab.nodes.process import NodeProcess
from lab.nodes.workloads import Kind
from lab.reclaimer.targets import Node
from lab.schedulers.kube_store import FIRST_VERSION

PATIENCE_SECONDS = 30.0
KINDS = (Kind.CHECKPOINTS, Kind.EXITS_WRONGLY, Kind.IGNORES, Kind.FORKS)
KILLED = 128 + 9


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    one = NodeProcess(tmp_path, Node("i-1", "h1", "p1", "g1"), KINDS, {})
    one.start_workloads()
    one.wait_for_workloads()
    yield one
    one.stop()


@pytest.fixture
def kubelets(node: NodeProcess) -> Kubelets:
    made = Kubelets()
    made.join(node)
    return made


def pods(kubelets: Kubelets) -> list[tuple[str, str]]:
    found = [pod["metadata"] for pod in kubelets.cluster.store.all("pods")]
    return sorted((one["namespace"], one["name"]) for one in found)


def told(kubelets: Kubelets) -> dict[str, tuple[str, int]]:
    """How each pod ended, as whoever watches is told: phase and exit code, by the number of its workload."""
    ended = {}
    for change in kubelets.cluster.store.since("pods", FIRST_VERSION):
        for one in change.object["status"].get("containerStatuses", ()):
            name = change.object["metadata"]["name"]
            code = one["state"]["terminated"]["exitCode"]
            ended[name.rpartition("-")[2]] = (change.object["status"]["phase"], code)
    return ended


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        for _ in range(int(PATIENCE_SECONDS * 100)):
            if holds():
                return
            await asyncio.sleep(0.01)


async def test_evicted_pods_end_as_their_processes_do(kubelets: Kubelets, node: NodeProcess) -> None:
    for key in pods(kubelets):
        kubelets.cluster.evict(key, {"deleteOptions": {"gracePeriodSeconds": 2}})
    await until(lambda: not pods(kubelets))
    assert told(kubelets) == {
        "0": ("Succeeded", 0),
        "1": ("Failed", 7),
        "2": ("Failed", KILLED),
        "3": ("Succeeded", 0),
    }
    assert node.workloads_running() == 0
    assert all(stamp is not None and stamp.signal == "SIGTERM" for stamp in node.stamps())
    await kubelets.cluster.close()


async def test_a_shorter_grace_takes_the_place_of_a_longer_one(kubelets: Kubelets, node: NodeProcess) -> None:
    stubborn = pods(kubelets)[2]
    kubelets.cluster.evict(stubborn, {"deleteOptions": {"gracePeriodSeconds": 600}})
    await until(lambda: node.stamps()[2] is not None)
    kubelets.cluster.delete(stubborn, 1)
    await until(lambda: stubborn not in pods(kubelets))
    assert node.exit_code(2) == -9
    await kubelets.cluster.close()


async def test_pods_of_an_instance_that_has_ended_are_gone(kubelets: Kubelets, node: NodeProcess) -> None:
    node.end()
    kubelets.lose("i-1")
    assert pods(kubelets) == []
    await kubelets.cluster.close()
