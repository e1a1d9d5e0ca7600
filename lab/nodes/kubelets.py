"""Kubernetes behind the laboratory's nodes: the stand-in API, and pods that are processes of the nodes."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from lab.nodes.process import NodeProcess
from lab.schedulers.kube_cluster import Cluster
from lab.schedulers.kube_store import Object

LOOK_SECONDS = 0.05
# As a workload that checkpoints asks for; what a drain gives is less.
GRACE_SECONDS = 120


class _Container(NamedTuple):
    node: NodeProcess
    number: int


class Kubelets:
    """The kubelets of a cluster in which each node of the laboratory is a node, and each workload a pod."""

    def __init__(self) -> None:
        self.cluster = Cluster(end=self._end)
        self._containers: dict[str, _Container] = {}
        self._told: set[str] = set()

    def join(self, node: NodeProcess) -> None:
        """Let a node join, under the id of its instance, with the workloads that it has."""
        name = node.node.instance_id
        self.cluster.add_node(name)
        for number, folder in enumerate(node.work):
            pod = self.cluster.add_pod(
                f"work-{name[:8]}-{folder.name}", name, owner="ReplicaSet", grace_seconds=GRACE_SECONDS
            )
            self._containers[pod["metadata"]["uid"]] = _Container(node, number)

    def lose(self, instance_id: str) -> None:
        """The instance has ended: its pods are known to be gone at once here, after minutes in earnest."""
        for pod in list(self.cluster.store.all("pods")):
            if pod["spec"]["nodeName"] == instance_id:
                self.cluster.finish_pod(pod["metadata"]["namespace"], pod["metadata"]["name"])

    async def _end(self, pod: Object, grace_seconds: float) -> int:
        """TERM once, KILL for what runs after the grace; the exit code as containers have it."""
        uid = pod["metadata"]["uid"]
        node, number = self._containers[uid]
        if uid not in self._told:
            self._told.add(uid)
            node.tell_workload(number)
        for _ in range(int(grace_seconds / LOOK_SECONDS) + 1):
            if node.exit_code(number) is not None:
                break
            await asyncio.sleep(LOOK_SECONDS)
        node.kill_workload(number)
        code = node.exit_code(number)
        assert code is not None, "a workload that was killed has ended"
        return code if code >= 0 else 128 - code
