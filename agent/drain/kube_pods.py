"""Pods of one node as a drain sees them: which are ours to drain, and how long each may take."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

MIRROR = "kubernetes.io/config.mirror"
SOURCE = "kubernetes.io/config.source"
FINISHED = frozenset({"Succeeded", "Failed"})
DEFAULT_GRACE_SECONDS = 30
# The machine must still be able to say what became of the work once the work has ended.
MARGIN_SECONDS = 3
# A grace of zero would take the pod off the API without waiting for its containers to end.
LEAST_GRACE_SECONDS = 1
HIGHEST_CODE = 255


class Pod(NamedTuple):
    """What a drain has to know of a pod. `ending_seconds` is its grace once it is being deleted.

    `exit_code` is there once every container has ended: the first that is not 0, below 0 a signal.
    """

    namespace: str
    name: str
    uid: str
    node: str
    phase: str = "Running"
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    controller: str = ""
    grace_seconds: int = DEFAULT_GRACE_SECONDS
    ending_seconds: int | None = None
    has_pre_stop: bool = False
    exit_code: int | None = None
    ended_at: datetime | None = None

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def ending(self) -> bool:
        return self.ending_seconds is not None


def belongs_to_node(pod: Pod) -> bool:
    """Whether it is part of the node: a daemon comes back at once, a static pod is the kubelet's."""
    static = MIRROR in pod.annotations or pod.annotations.get(SOURCE, "api") != "api"
    return static or pod.controller in ("DaemonSet", "Node")


def left_alone(pod: Pod) -> bool:
    """Whether a drain leaves it: it is the node's own, or has ended."""
    return belongs_to_node(pod) or pod.phase in FINISHED


def ours(pods: Iterable[Pod], node: str) -> tuple[Pod, ...]:
    """The pods to drain, sorted by name. What runs on another node is never among them."""
    found = (pod for pod in pods if pod.node == node and not left_alone(pod))
    return tuple(sorted(found, key=lambda pod: (pod.namespace, pod.name, pod.uid)))


def grace_for(remaining_seconds: float, budget_seconds: int) -> int:
    """Whole seconds a pod may take from now: its budget, but never beyond the deadline and never none."""
    return max(LEAST_GRACE_SECONDS, min(budget_seconds, math.floor(remaining_seconds - MARGIN_SECONDS)))


def at_edge(pod: Pod, remaining_seconds: float, budget_seconds: int) -> bool:
    """Whether a pod that is still blocked has to be told now, or its own grace no longer fits."""
    wanted = max(LEAST_GRACE_SECONDS, min(pod.grace_seconds, budget_seconds))
    return remaining_seconds - MARGIN_SECONDS <= wanted


def read_pod(raw: Any) -> Pod:
    """A pod from the API's JSON. Of its annotations, which may be large, only those are kept that count."""
    meta, spec, status = raw["metadata"], raw["spec"], raw.get("status") or {}
    owners = meta.get("ownerReferences") or ()
    controllers = (one["kind"] for one in owners if one.get("controller") or one["kind"] == "Node")
    annotations = meta.get("annotations") or {}
    grace = spec.get("terminationGracePeriodSeconds")
    ending = int(meta.get("deletionGracePeriodSeconds") or 0) if meta.get("deletionTimestamp") else None
    code, ended_at = _ended(status)
    return Pod(
        namespace=str(meta["namespace"]),
        name=str(meta["name"]),
        uid=str(meta["uid"]),
        node=spec.get("nodeName") or "",
        phase=status.get("phase") or "Pending",
        labels=dict(meta.get("labels") or {}),
        annotations={name: annotations[name] for name in (MIRROR, SOURCE) if name in annotations},
        controller=next(controllers, ""),
        grace_seconds=DEFAULT_GRACE_SECONDS if grace is None else int(grace),
        ending_seconds=ending,
        has_pre_stop=any((one.get("lifecycle") or {}).get("preStop") for one in spec.get("containers") or ()),
        exit_code=code,
        ended_at=ended_at,
    )


def _ended(status: Mapping[str, Any]) -> tuple[int | None, datetime | None]:
    """Exit code and moment of the end, once no container runs or is about to."""
    states = status.get("containerStatuses") or ()
    found = [(one.get("state") or {}).get("terminated") for one in states]
    ended = [one for one in found if one is not None]
    if not ended or len(ended) < len(found):
        return None, None
    codes = [-int(one["signal"]) if one.get("signal") else int(one["exitCode"]) for one in ended]
    code = next((code for code in codes if code != 0), 0)
    moments = [datetime.fromisoformat(one["finishedAt"]) for one in ended if one.get("finishedAt")]
    return (code if abs(code) <= HIGHEST_CODE else None), max(moments, default=None)
