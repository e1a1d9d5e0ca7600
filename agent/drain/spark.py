"""Takes a Spark application's pods off this node: executors are decommissioned first, drivers go last.

Decommissioning is Spark's own: on SIGPWR an executor takes no new task, moves its shuffle and cached blocks
to others or to the fallback store, and ends. Spark's images do the same in the preStop hook that an eviction
runs; an executor without that hook is evicted only when it must end, or the eviction would cut it short.
"""

from __future__ import annotations

import signal as signals
from collections.abc import Callable, Sequence
from typing import Any

from agent.drain.kube_api import KubeApi
from agent.drain.kube_pods import Pod, at_edge
from agent.drain.kubernetes import KubernetesDriver
from agent.drain.processes import PROC, Process, catches, running, send
from wire.bundle import MAX_BUDGET_SECONDS

ROLE = "spark-role"
EXECUTOR = "executor"
DRIVER = "driver"
APPLICATION = "spark-app-selector"
BACKEND = b"ExecutorBackend"
DECOMMISSION = signals.SIGPWR


def decommissions(process: Process) -> bool:
    """Whether a process is an executor that understands the signal; it would kill any other."""
    try:
        words = (PROC / str(process.pid) / "cmdline").read_bytes()
    except OSError:
        return False
    return BACKEND in words and catches(process, DECOMMISSION)


class SparkDriver(KubernetesDriver):
    """A Kubernetes node whose work is Spark's. Pods that are not Spark's are evicted as anywhere."""

    name = "spark"

    def __init__(
        self,
        api: KubeApi,
        node: str,
        *,
        understands: Callable[[Process], bool] = decommissions,
        **options: Any,
    ) -> None:
        """`options` are those of KubernetesDriver; `understands` tells which process may get the signal."""
        super().__init__(api, node, **options)
        self._understands = understands
        self._decommissioned: set[str] = set()

    async def before(self, pods: Sequence[Pod]) -> None:
        """Decommission the executors that are not ending yet; again does no harm."""
        processes = self._processes()
        for pod in pods:
            if _role(pod) == EXECUTOR and not pod.ending:
                found = running(processes.get(pod.uid, ()))
                if any([send(one, DECOMMISSION) for one in found if self._understands(one)]):
                    self._decommissioned.add(pod.uid)

    def due(self, pods: Sequence[Pod], remaining_seconds: float) -> Sequence[Pod]:
        """All but what still moves its blocks away, and drivers whose executors here have not ended."""
        working = {pod.labels.get(APPLICATION) for pod in pods if _role(pod) == EXECUTOR}
        return [
            pod
            for pod in pods
            if at_edge(pod, remaining_seconds, MAX_BUDGET_SECONDS) or not self._waits(pod, working)
        ]

    def _waits(self, pod: Pod, working: set[str | None]) -> bool:
        if _role(pod) == DRIVER:
            return pod.labels.get(APPLICATION) in working
        return pod.uid in self._decommissioned and not pod.has_pre_stop


def _role(pod: Pod) -> str:
    return pod.labels.get(ROLE, "")
