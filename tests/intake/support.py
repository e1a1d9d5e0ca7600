"""Short ways to write pods and jobs, and to read what came out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from domain.claim import LeftOutReason
from domain.intake import Intake, IntakeRefused, read_claim
from domain.intake.kubernetes import WORKLOAD_LABEL
from wire.intake import parse_documents

DATA = Path(__file__).parent / "data"
GIB = 1024

Json = dict[str, Any]


def read_file(name: str, workload: str | None = None) -> Intake:
    return read_ok(parse_documents((DATA / name).read_bytes()), workload)


def read_ok(documents: list[object], workload: str | None = None) -> Intake:
    intake = read_claim(documents, workload=workload)
    assert isinstance(intake, Intake), intake
    return intake


def refusal(documents: list[object], workload: str | None = None) -> str:
    refused = read_claim(documents, workload=workload)
    assert isinstance(refused, IntakeRefused), refused
    return refused.problem


def sizes(intake: Intake, workload: str) -> list[tuple[int, int, int, int]]:
    """(units, thousandths of a vCPU, MiB, GPUs) of each shape, in the order of the claim."""
    return [
        (group.units, group.shape.vcpu_milli, group.shape.ram_mib, group.shape.gpus)
        for group in intake.workloads[workload].shapes
    ]


def reasons(intake: Intake) -> dict[str, LeftOutReason]:
    return {entry.name: entry.reason for entry in intake.left_out}


def details(intake: Intake) -> dict[str, str]:
    return {entry.name: entry.detail for entry in intake.left_out}


def problems(intake: Intake) -> dict[str, str]:
    return {entry.name: entry.problem for entry in intake.unreadable}


def container(
    name: str = "c",
    *,
    cpu: object = None,
    memory: object = None,
    more: Json | None = None,
    limits: Json | None = None,
) -> Json:
    requests = {"cpu": cpu, "memory": memory, **(more or {})}
    return {"name": name, "resources": {"requests": requests, "limits": limits or {}}}


def devices(*names: str, count: object = 1) -> Json:
    """A spec whose one container asks for `count` of each device."""
    return {"containers": [container(cpu="1", memory="1Gi", more=dict.fromkeys(names, count))]}


def pod(name: str = "p", workload: str | None = "w", *, spec: Json | None = None, **metadata: object) -> Json:
    labels = {WORKLOAD_LABEL: workload} if workload else {}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "labels": labels, **metadata},
        "spec": {"containers": [container(cpu="1", memory="1Gi")], **(spec or {})},
        "status": {"phase": "Pending"},
    }


def pods(*items: object) -> list[object]:
    return [{"kind": "List", "items": list(items)}]


def job(job_id: int = 1, **fields: object) -> Json:
    return {
        "job_id": job_id,
        "name": "j",
        "job_state": ["PENDING"],
        "state_reason": "Resources",
        "priority": {"set": True, "infinite": False, "number": 100},
        "comment": "sco:workload=w",
        "tasks": 1,
        "cpus": 1,
        "node_count": 1,
        "memory_per_cpu": 1024,
        **fields,
    }


def jobs(*items: object) -> list[object]:
    return [{"jobs": list(items), "errors": []}]
