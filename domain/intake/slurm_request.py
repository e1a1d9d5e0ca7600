"""What a Slurm job, array task or component of a heterogeneous job asks for, as its record says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from domain.claim import MAX_UNITS, LeftOutReason
from domain.intake.gpus import gpu_type
from domain.intake.slurm_numbers import Tres, memory_mib, number, tres_list
from domain.intake.words import Skip, Unclear, clean, shown, some

_EXCLUSIVE = ("NONE", "NO", "TRUE", "YES", "EXCLUSIVE")
_PLAIN_TRES = ("cpu", "mem", "node", "billing", "energy", "vmem", "pages", "fs", "bb", "ic", "license")
_GPU_FIELDS = ("tres_per_task", "tres_per_node", "tres_per_socket", "tres_per_job")
_SHARES = ("mps", "shard")

Job = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs as they were asked for; `per_job` is the whole job's."""

    per_task: int = 0
    per_node: int = 0
    per_job: int = 0
    kind: str | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """MiB as they were asked for; exactly one is above 0. `per_job` is the scheduler's own total."""

    per_node: int = 0
    per_cpu: int = 0
    per_gpu: int = 0
    per_job: int = 0

    def of(self, vcpu: int, gpus: int, parts: int) -> int:
        """MiB of one of `parts` units, at least 1."""
        asked = self.per_node or self.per_cpu * vcpu or self.per_gpu * gpus or -(-self.per_job // parts)
        return max(1, asked)


@dataclass(frozen=True, slots=True)
class Request:
    """One job. `node_count` is Slurm's estimate while a job waits; `min_nodes`, `max_nodes` are asked for."""

    tasks: int
    vcpu_per_task: int
    vcpu_per_gpu: int
    min_vcpu_per_node: int
    tasks_per_node: int
    node_count: int
    min_nodes: int
    max_nodes: int
    is_exclusive: bool
    gpus: Gpus
    memory: Memory


def read_request(job: Job) -> Request:
    """Raises `Unclear` for what cannot be read and `Skip` for what no pool offers."""
    listed = tres_list(job.get("tres_req_str"), "tres_req_str")
    node_count = _number(job, "node_count") or 1
    tasks_per_node = _number(job, "tasks_per_node")
    tasks = _number(job, "tasks") or max(1, node_count * tasks_per_node)
    min_nodes = max((_count(tres, "tres_req_str") for tres in listed if tres.name == "node"), default=1)
    for what, value in (("tasks", tasks), ("node_count", node_count), ("node in tres_req_str", min_nodes)):
        if value > MAX_UNITS:
            raise Unclear(f"{what} is {value:,}; allowed are at most {MAX_UNITS:,}")
    return Request(
        tasks=tasks,
        vcpu_per_task=max(_vcpu_per_task(job), -(-_number(job, "cpus") // tasks)),
        vcpu_per_gpu=_named_count(job, "cpus_per_tres", "gpu"),
        min_vcpu_per_node=_number(job, "minimum_cpus_per_node"),
        tasks_per_node=tasks_per_node,
        node_count=node_count,
        min_nodes=max(1, min_nodes),
        max_nodes=_number(job, "max_nodes"),
        is_exclusive=_is_exclusive(job),
        gpus=_gpus(job, listed),
        memory=_memory(job, listed),
    )


def _number(job: Job, name: str) -> int:
    return number(job.get(name), name) or 0


def _vcpu_per_task(job: Job) -> int:
    """Slurm 22.05 hides cpus_per_task, newer ones repeat it in tres_per_task."""
    return max(1, _number(job, "cpus_per_task"), _named_count(job, "tres_per_task", "cpu"))


def _named_count(job: Job, field: str, name: str) -> int:
    return max(
        (_count(tres, field) for tres in tres_list(job.get(field), field) if tres.name == name), default=0
    )


def _is_exclusive(job: Job) -> bool:
    """`shared` says none for an exclusive job, as text or in a list; `exclusive` says true or so."""
    for name in ("shared", "exclusive"):
        value = job.get(name)
        words = value if isinstance(value, list) else [value]
        if any(word is True or (isinstance(word, str) and word.upper() in _EXCLUSIVE) for word in words):
            return True
    return False


def _memory(job: Job, listed: list[Tres]) -> Memory:
    per_cpu = memory_mib(job.get("memory_per_cpu"), "memory_per_cpu")
    if per_cpu:
        return Memory(per_cpu=per_cpu)
    per_node = memory_mib(job.get("memory_per_node"), "memory_per_node")
    if per_node:
        return Memory(per_node=per_node)
    for tres in tres_list(job.get("memory_per_tres"), "memory_per_tres"):
        if tres.name == "gpu" and (per_gpu := memory_mib(tres.amount, "memory_per_tres")):
            return Memory(per_gpu=per_gpu)
    total = sum(memory_mib(tres.amount, "tres_req_str") or 0 for tres in listed if tres.name == "mem")
    if total:
        return Memory(per_job=total)
    raise Skip(
        LeftOutReason.UNSUPPORTED_RESOURCE,
        "it asks for all memory of a node (0) and the list does not say how much that is:"
        " submit it with --mem or --mem-per-cpu",
    )


def _gpus(job: Job, listed: list[Tres]) -> Gpus:
    kinds: set[str] = set()
    per_task, per_node, per_socket, per_job = (
        _gpus_in(tres_list(job.get(name), name), name, kinds) for name in _GPU_FIELDS
    )
    in_list = _gpus_in(listed, "tres_req_str", kinds)
    if per_socket:
        per_node = max(per_node, per_socket * _sockets(job))
    if not (per_task or per_node or per_job):
        per_job = in_list
    if len(kinds) > 1:
        raise Skip(
            LeftOutReason.UNSUPPORTED_RESOURCE,
            f"it asks for several GPU types ({some(sorted(map(clean, kinds)))}); a workload is placed on one",
        )
    if not kinds:
        return Gpus(per_task, per_node, per_job)
    kind = gpu_type(kinds.pop())
    return Gpus(per_task, per_node, per_job, kind.name, (kind.remark,) if kind.remark else ())


def _gpus_in(resources: list[Tres], where: str, kinds: set[str]) -> int:
    """GPUs in one text: the typed ones or all, whichever is more; raises `Skip` for any other device."""
    counts = {True: 0, False: 0}
    for tres in resources:
        if tres.name == "gpu":
            count = _count(tres, where)
            counts[tres.kind is not None] += count
            if tres.kind is not None and count:
                kinds.add(tres.kind.lower())
        elif (tres.is_gres or tres.name not in _PLAIN_TRES) and tres.amount.strip("0."):
            what = "a share of a GPU" if tres.name in _SHARES else "a device that no pool offers"
            raise Skip(
                LeftOutReason.UNSUPPORTED_RESOURCE, f"it asks for {what}: {clean(tres.name)} in {where}"
            )
    return max(counts.values())


def _sockets(job: Job) -> int:
    sockets = _number(job, "sockets_per_node")
    if not sockets:
        raise Skip(
            LeftOutReason.UNSUPPORTED_RESOURCE,
            "it asks for GPUs per socket without saying how many sockets a node has:"
            " submit it with --gpus-per-node or --sockets-per-node",
        )
    return sockets


def _count(tres: Tres, where: str) -> int:
    if not tres.amount.isdecimal():
        raise Unclear(f"{where} has {shown(tres.amount)} for {clean(tres.name)}; a whole number is expected")
    return int(tres.amount)
