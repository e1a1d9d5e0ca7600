"""A Slurm job divided into units, the smallest pieces that must each fit on one instance.

A unit is one task with its vCPUs, unless something holds per node: a node count or range, tasks per
node, memory or GPUs per node or socket, a minimum of CPUs per node, exclusive nodes, or GPUs of the job
that do not divide among its tasks. Then a unit is one node's share: tasks and GPUs are dealt out evenly,
and what remains goes one by one to the first shares, so that the totals stay those of the job.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from domain.intake.shaping import Size
from domain.intake.slurm_request import Request

_MILLI = 1000


def job_units(request: Request) -> Counter[Size]:
    """The units of one job by size."""
    return _node_shares(request) if _holds_per_node(request) else _task_units(request)


def remarks(request: Request) -> list[str]:
    """What was counted with a reservation."""
    found = list(request.gpus.remarks)
    if request.memory.per_job:
        found.append("names no memory, which means whole nodes: counted as tres_req_str lists it")
    if request.is_exclusive:
        found.append("wants whole nodes for itself: counted by what it asks for, not by the node's size")
    return found


def _holds_per_node(request: Request) -> bool:
    return bool(
        request.memory.per_node
        or request.gpus.per_node
        or request.gpus.per_job % request.tasks
        or request.tasks_per_node
        or request.max_nodes
        or request.min_nodes > 1
        or request.min_vcpu_per_node > request.vcpu_per_task
        or request.is_exclusive
    )


def _task_units(request: Request) -> Counter[Size]:
    gpus = max(request.gpus.per_task, request.gpus.per_job // request.tasks)
    vcpu = max(request.vcpu_per_task, request.vcpu_per_gpu * gpus)
    return Counter({Size(vcpu * _MILLI, request.memory.of(vcpu, gpus, request.tasks), gpus): request.tasks})


def _node_shares(request: Request) -> Counter[Size]:
    """Slurm's estimate of the nodes counts as far as it lies within what the job and its tasks allow."""
    most = min(request.max_nodes or request.node_count, request.tasks)
    nodes = max(request.min_nodes, min(request.node_count, most))
    spare_tasks, spare_gpus = request.tasks % nodes, request.gpus.per_job % nodes
    shares: Counter[Size] = Counter()
    for first, end in pairwise(sorted({0, spare_tasks, spare_gpus, nodes})):
        tasks = request.tasks // nodes + (first < spare_tasks)
        gpus = max(
            request.gpus.per_node,
            request.gpus.per_task * tasks,
            request.gpus.per_job // nodes + (first < spare_gpus),
        )
        asked = (tasks * request.vcpu_per_task, request.min_vcpu_per_node, request.vcpu_per_gpu * gpus)
        vcpu = max(1, *asked)
        shares[Size(vcpu * _MILLI, request.memory.of(vcpu, gpus, nodes), gpus)] += end - first
    return shares
