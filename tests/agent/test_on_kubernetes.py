"""Nodes of Kubernetes drained by a real agent process, with the stand-in for the API beside it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from lab.schedulers.kube_cluster import Cluster
from lab.schedulers.kube_faults import Fault
from lab.schedulers.kube_server import serve
from tests.agent.rig import PATIENT_WITH_KUBERNETES, Node, letter, node, notice, until
from wire.bundle import DrainPath

NAME = "n1"
# A second of grace passes this much faster in the stand-in's kubelets.
SCALE = 0.005
# What the scheduler and then the local path may take together, and slack for a machine that is busy.
LOCAL_SECONDS = 0.8 + 0.2
SLACK_SECONDS = 2.0
# Writes down when it was called, on the clock that the agent uses, and how.
DBUS_SEND = '#!/bin/sh\nread -r up rest < /proc/uptime\necho "$up $*" >> {log}\n'


class Scene(NamedTuple):
    cluster: Cluster
    node: Node

    async def until(self, holds: Callable[[], object]) -> None:
        """Look in a thread: the API answers in this one."""
        await asyncio.to_thread(until, holds)

    async def notice(self, seconds: float = 60.0) -> None:
        self.node.metadata.letters = [letter(notice(self.node.instance_id, seconds))]
        await self.until(lambda: self.node.phase() in ("signalled", "drained", "finished"))

    async def story(self) -> list[str]:
        return await asyncio.to_thread(self.node.story)

    def announced(self) -> list[tuple[float, str]]:
        """When the kubelet was told that the machine goes down, and in which words."""
        log = self.node.folder / "announced"
        lines = log.read_text().splitlines() if log.exists() else []
        return [(float(line.split()[0]), line) for line in lines]


@asynccontextmanager
async def scene(folder: Path, prelude: str = PATIENT_WITH_KUBERNETES) -> AsyncIterator[Scene]:
    """A cluster with pods a and b on the agent's node, and the agent ready."""
    cluster = Cluster(SCALE)
    cluster.add_node(NAME)
    cluster.add_pod("a", NAME)
    cluster.add_pod("b", NAME, labels={"app": "b"})
    async with serve(cluster) as address:
        with node(folder, path=DrainPath.KUBERNETES) as one:
            program = one.folder / "dbus-send"
            program.write_text(DBUS_SEND.format(log=one.folder / "announced"))
            program.chmod(0o755)
            one.settings |= {
                "SCO_AGENT_KUBERNETES_URL": address,
                "SCO_AGENT_NODE_NAME": NAME,
                "PATH": f"{one.folder}:{os.environ['PATH']}",
            }
            await asyncio.to_thread(partial(one.start, prelude=prelude))
            yield Scene(cluster, one)


def pods(cluster: Cluster) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in cluster.store.all("pods"))


async def test_the_node_is_closed_its_pods_are_evicted_and_it_is_drained(tmp_path: Path) -> None:
    async with scene(tmp_path / "n") as one:
        await one.notice()
        await one.until(lambda: one.node.phase() == "finished")
        assert pods(one.cluster) == []
        assert sorted(verb for verb, _, _ in one.cluster.asked) == ["evict", "evict"]
        assert all(50 <= grace <= 57 for _, _, grace in one.cluster.asked)
        (taint,) = one.cluster.store.find("nodes", ("", NAME))["spec"]["taints"]
        assert taint["effect"] == "NoSchedule"
        story = await one.story()
        assert story == ["notice", "signalled", "work_ended", "work_ended", "drained"]
        paths = {event["type"]: event.get("path") for event in one.node.events()}
        assert (paths["notice"], paths["signalled"]) == ("poll", "kubernetes")
        assert one.announced() == []


async def test_an_api_that_hangs_is_passed_by_within_a_second(tmp_path: Path) -> None:
    async with scene(tmp_path / "n", prelude="") as one:
        one.cluster.faults.add(Fault(".", hang_seconds=600.0))
        await one.notice()
        await one.until(one.announced)
        drain = one.node.kept()["drain"]
        took = one.announced()[0][0] - drain["heard_at"]
        assert took < LOCAL_SECONDS + SLACK_SECONDS
        assert "PrepareForShutdown boolean:true" in one.announced()[0][1]
        assert drain["route"] == "local"
        assert one.cluster.asked == []
        await one.until(lambda: one.node.phase() != "signalled")
        one.cluster.faults.clear()
        (signalled,) = await asyncio.to_thread(one.node.told, "signalled")
        assert signalled["path"] == "kubernetes-local"
        assert signalled["secondsSinceNotice"] < LOCAL_SECONDS + SLACK_SECONDS


async def test_after_a_restart_a_pod_that_a_budget_held_back_is_asked_for_again(tmp_path: Path) -> None:
    async with scene(tmp_path / "n") as one:
        one.cluster.budgets["b"] = 0
        await one.notice()
        await one.until(lambda: pods(one.cluster) == ["b"])
        one.node.kill()
        one.cluster.budgets["b"] = 1
        await asyncio.to_thread(partial(one.node.start, prelude=PATIENT_WITH_KUBERNETES, ready=False))
        await one.until(lambda: one.node.phase() == "finished")
        assert pods(one.cluster) == []
        assert {verb for verb, _, _ in one.cluster.asked} == {"evict"}
        assert (await one.story())[-1] == "drained"
