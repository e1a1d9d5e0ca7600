"""What happens to the pods of the stand-in: bound, evicted under disruption budgets, ended with grace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from lab.schedulers.kube_faults import Faults, Lie
from lab.schedulers.kube_store import Object, Problem, Store

DEFAULT_GRACE_SECONDS = 30
RETRY_SECONDS = 10


# Ends a pod's containers within so many seconds of grace, and answers their exit code.
EndPod = Callable[[Object, float], Awaitable[int]]


class Cluster:
    """A small cluster. `seconds_per_grace_second` lets a kubelet's grace pass faster than real time."""

    def __init__(self, seconds_per_grace_second: float = 1.0, end: EndPod | None = None) -> None:
        """`end` is what kubelets do where pods have processes; it may be cancelled for a shorter grace."""
        self.store = Store()
        self.faults = Faults()
        # How many more pods of an application may be disrupted, by the label `app`.
        self.budgets: dict[str, int] = {}
        # How long pods take to end once they are told, by name; others take all of their grace.
        self.ends_after: dict[str, float] = {}
        # Who may do what: a token names the node it is bound to. Without tokens nobody is asked.
        self.tokens: dict[str, str] = {}
        # Every eviction and deletion that was taken: verb, pod, grace.
        self.asked: list[tuple[str, str, int]] = []
        self._scale = seconds_per_grace_second
        self._end_containers = end
        self._kubelets: dict[str, asyncio.Task[None]] = {}

    def add_node(self, name: str, taints: list[Object] | None = None) -> Object:
        body: Object = {
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": {"name": name, "uid": self.store.new_uid(), "labels": {}, "annotations": {}},
            "spec": {"taints": taints} if taints else {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
        return self.store.add("nodes", ("", name), body)

    def add_pod(self, name: str, node: str, namespace: str = "default", **options: Any) -> Object:
        """A running pod; `options` are labels, annotations, owner, phase, grace_seconds and pre_stop."""
        meta: Object = {
            "name": name,
            "namespace": namespace,
            "uid": self.store.new_uid(),
            "labels": options.get("labels", {}),
            "annotations": options.get("annotations", {}),
            "creationTimestamp": stamp(datetime.now(UTC)),
        }
        if owner := options.get("owner"):
            meta["ownerReferences"] = [
                {"apiVersion": "v1", "kind": owner, "name": "owner", "uid": "1", "controller": True}
            ]
        container: Object = {"name": "main", "image": "main"}
        if options.get("pre_stop"):
            container["lifecycle"] = {"preStop": {"exec": {"command": ["/opt/decom.sh"]}}}
        spec = {
            "nodeName": node,
            "terminationGracePeriodSeconds": options.get("grace_seconds", DEFAULT_GRACE_SECONDS),
            "containers": [container],
        }
        body = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": meta,
            "spec": spec,
            "status": {"phase": options.get("phase", "Running")},
        }
        return self.store.add("pods", (namespace, name), body)

    def evict(self, key: tuple[str, str], eviction: Object) -> None:
        """Evict, unless a disruption budget says no (429); the kubelet then has the grace that was given."""
        pod = self.store.find("pods", key)
        options = eviction.get("deleteOptions") or {}
        _check_uid(pod, options)
        if _counts_for_budget(pod):
            self._spend_budget(pod["metadata"].get("labels", {}).get("app"))
        self._end(key, pod, options.get("gracePeriodSeconds"), "evict")

    def delete(self, key: tuple[str, str], grace: int | None, options: Object | None = None) -> Object:
        """Delete with so many seconds of grace (None: its own), if it is the pod that `options` mean."""
        pod = self.store.find("pods", key)
        _check_uid(pod, options or {})
        self._end(key, pod, grace, "delete")
        return pod

    def finish_pod(self, namespace: str, name: str) -> None:
        """The pod's containers have ended and the kubelet has told the API."""
        self.store.remove("pods", (namespace, name))

    async def close(self) -> None:
        for task in self._kubelets.values():
            task.cancel()
        await asyncio.gather(*self._kubelets.values(), return_exceptions=True)

    def _spend_budget(self, app: str | None) -> None:
        if app is None or app not in self.budgets:
            return
        if self.budgets[app] <= 0:
            raise Problem(
                429,
                "TooManyRequests",
                "Cannot evict pod as it would violate the pod's disruption budget.",
                causes=[
                    {"reason": "DisruptionBudget", "message": f"the budget {app} needs more healthy pods"}
                ],
                retryAfterSeconds=RETRY_SECONDS,
            )
        self.budgets[app] -= 1

    def _end(self, key: tuple[str, str], pod: Object, grace: int | None, verb: str) -> None:
        meta, spec = pod["metadata"], pod["spec"]
        seconds = spec["terminationGracePeriodSeconds"] if grace is None else grace
        self.asked.append((verb, meta["name"], seconds))
        if Lie.EVICT in self.faults.lies and verb == "evict":
            return
        if Lie.DELETE in self.faults.lies and verb == "delete":
            return
        if seconds == 0 or not spec.get("nodeName"):
            self.store.remove("pods", key)
            return
        # A second request can only shorten the grace.
        if seconds < meta.get("deletionGracePeriodSeconds", seconds + 1):
            meta["deletionGracePeriodSeconds"] = seconds
            meta["deletionTimestamp"] = stamp(datetime.now(UTC) + timedelta(seconds=seconds))
            self.store.replace("pods", key, pod)
            self._start_kubelet(key, meta["uid"], seconds)

    def _start_kubelet(self, key: tuple[str, str], uid: str, grace: int) -> None:
        if uid in self._kubelets:
            self._kubelets[uid].cancel()
        seconds = min(self.ends_after.get(key[1], grace), grace) * self._scale
        self._kubelets[uid] = asyncio.create_task(self._run_kubelet(key, uid, seconds))

    async def _end_processes(self, end: EndPod, key: tuple[str, str], seconds: float) -> None:
        code = await end(self.store.find("pods", key), seconds)
        pod = self.store.find("pods", key)
        ended = {"terminated": {"exitCode": code, "finishedAt": stamp(datetime.now(UTC))}}
        pod["status"] = {
            "phase": "Succeeded" if code == 0 else "Failed",
            "containerStatuses": [{"name": "main", "state": ended}],
        }
        self.store.replace("pods", key, pod)

    async def _run_kubelet(self, key: tuple[str, str], uid: str, seconds: float) -> None:
        try:
            if self._end_containers is None:
                await asyncio.sleep(seconds)
            else:
                await self._end_processes(self._end_containers, key, seconds)
            if self.store.find("pods", key)["metadata"]["uid"] == uid:
                self.store.remove("pods", key)
        except Problem:
            return


def _check_uid(pod: Object, options: Object) -> None:
    wanted = (options.get("preconditions") or {}).get("uid")
    if wanted is not None and wanted != pod["metadata"]["uid"]:
        raise Problem(409, "Conflict", f"the UID in the precondition ({wanted}) does not match")


def _counts_for_budget(pod: Object) -> bool:
    finished = pod["status"].get("phase") in ("Pending", "Succeeded", "Failed")
    return not finished and not pod["metadata"].get("deletionTimestamp")


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
