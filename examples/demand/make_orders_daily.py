"""Writes `orders-daily-pods.json`: what `kubectl get pods -o json` prints while the pipeline waits.

    python examples/demand/make_orders_daily.py > examples/demand/orders-daily-pods.json

42 worker pods wait for nodes. Each asks for 4 vCPU and 16 GiB:

    container `worker`                          3500m   14Gi
    init container `shuffle-proxy` (a sidecar)   500m    2Gi   restarts always, so it runs beside the worker
    init container `fetch-plan`                     1    1Gi   has ended before the worker starts

A pod needs the larger of its running and its starting phase: 4 vCPU and 16 GiB beat 1.5 vCPU and 3 GiB.
So the claim is 42 units, 168 vCPU and 672 GiB. Six more pods are in the list and none of it: the driver
runs, one pod is bound to a node, one is being deleted, two are held by a gate, and one belongs to the
workload `web`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

WORKERS = 42
WORKLOAD_LABEL = "spot-capacity.io/workload"
SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"

Document = dict[str, Any]


def digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def suffix(name: str) -> str:
    """Five characters as the Kubernetes API appends them, the same on every run."""
    return "".join(SUFFIX_LETTERS[byte % len(SUFFIX_LETTERS)] for byte in digest(name)[:5])


def uid(name: str) -> str:
    text = digest(f"uid of {name}").hex()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:32]}"


def resources(cpu: str, memory: str) -> Document:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}}


def container(name: str, image: str, cpu: str, memory: str) -> Document:
    return {
        "name": name,
        "image": f"registry.example.org/data-platform/{image}",
        "imagePullPolicy": "IfNotPresent",
        "resources": resources(cpu, memory),
    }


def worker_spec() -> Document:
    return {
        "initContainers": [
            container("shuffle-proxy", "shuffle-proxy:1.8.2", "500m", "2Gi") | {"restartPolicy": "Always"},
            container("fetch-plan", "plan-tools:3.1.0", "1", "1Gi"),
        ],
        "containers": [container("worker", "orders-worker:2026.11.3", "3500m", "14Gi")],
        "nodeSelector": {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"},
        "priority": 1000,
        "priorityClassName": "batch-deadline",
        "restartPolicy": "Never",
        "schedulerName": "default-scheduler",
        "serviceAccountName": "orders-daily",
        "terminationGracePeriodSeconds": 110,
        "tolerations": [
            {"key": "spot-capacity.io/reclaimable", "operator": "Exists", "effect": "NoSchedule"}
        ],
    }


def waiting_status() -> Document:
    return {
        "phase": "Pending",
        "qosClass": "Burstable",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/6 nodes are available: 6 Insufficient cpu. preemption: not helpful.",
                "lastTransitionTime": "2026-11-29T03:00:07Z",
            }
        ],
    }


def pod(base: str, workload: str = "orders-daily", stage: str = "aggregate") -> Document:
    """A waiting worker pod; what is special about one is changed by its caller."""
    name = f"{base}-{suffix(base)}"
    job = base.rsplit("-", 1)[0]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "data-platform",
            "uid": uid(name),
            "creationTimestamp": "2026-11-29T03:00:05Z",
            "labels": {
                "app.kubernetes.io/name": workload,
                "app.kubernetes.io/component": stage,
                "batch.kubernetes.io/job-name": job,
                WORKLOAD_LABEL: workload,
            },
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": job,
                    "uid": uid(job),
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": worker_spec(),
        "status": waiting_status(),
    }


def driver() -> Document:
    running = pod("orders-daily-driver-0", stage="driver")
    running["spec"]["nodeName"] = "core-n03"
    running["status"] = {"phase": "Running", "qosClass": "Burstable", "startTime": "2026-11-29T03:00:05Z"}
    return running


def bound() -> Document:
    placed = pod("orders-daily-extract-7", stage="extract")
    placed["spec"]["nodeName"] = "core-n05"
    return placed


def being_deleted() -> Document:
    leaving = pod("orders-daily-extract-8", stage="extract")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-29T03:01:40Z"
    leaving["metadata"]["deletionGracePeriodSeconds"] = 110
    return leaving


def gated(number: int) -> Document:
    held = pod(f"orders-daily-publish-{number}", stage="publish")
    held["spec"]["schedulingGates"] = [{"name": "data-platform.example.org/after-aggregate"}]
    held["status"]["conditions"][0] |= {
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }
    return held


def main() -> None:
    workers = [pod(f"orders-daily-aggregate-{number}") for number in range(WORKERS)]
    others = [
        driver(),
        bound(),
        being_deleted(),
        gated(0),
        gated(1),
        pod("web-0", workload="web", stage="web"),
    ]
    listed = {
        "apiVersion": "v1",
        "kind": "List",
        "metadata": {"resourceVersion": ""},
        "items": workers + others,
    }
    json.dump(listed, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
