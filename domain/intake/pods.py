"""What one pod asks for, counted as the Kubernetes scheduler counts it.

Per container and resource: the request, else the limit. Per pod: the larger of (a) all containers plus
all sidecars (init containers that restart always) and (b) each init container plus the sidecars started
before it. Then pod-level requests of vCPU and memory replace the sum, and the overhead is added.
"""

from __future__ import annotations

from collections.abc import Mapping

from domain.claim import LeftOutReason
from domain.intake.quantities import mib, milli, quantity_nano, whole
from domain.intake.shaping import Size
from domain.intake.words import Skip, Unclear, clean, listing, mapping, mappings, shown, some, text_of

CPU = "cpu"
MEMORY = "memory"
GPU = "nvidia.com/gpu"
_POD_LEVEL = (CPU, MEMORY)
_NOT_COUNTED = ("ephemeral-storage", "storage", "hugepages-")

Amounts = dict[str, int]
"""Billionths of each resource, by name."""


def pod_amounts(spec: Mapping[str, object]) -> Amounts:
    """Billionths of every resource that the pod asks for; raises `Unclear`, naming the place."""
    containers = list(mappings(spec.get("containers"), "spec.containers"))
    if not containers:
        raise Unclear("spec.containers is missing or empty; a pod has at least one container")
    running: Amounts = {}
    for where, container in containers:
        _add(running, _container_amounts(container, where))
    total = _with_init(spec.get("initContainers"), running)
    total.update(_pod_level(spec.get("resources"), total))
    _add(total, _amounts(mapping(spec.get("overhead"), "spec.overhead"), "spec.overhead"))
    return total


def _with_init(init_containers: object, running: Amounts) -> Amounts:
    peak: Amounts = {}
    sidecars: Amounts = {}
    for where, container in mappings(init_containers, "spec.initContainers"):
        amounts = _container_amounts(container, where)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, amounts)
            _raise(peak, sidecars)
        else:
            _add(amounts, sidecars)
            _raise(peak, amounts)
    total = dict(running)
    _add(total, sidecars)
    _raise(total, peak)
    return total


def _pod_level(resources: object, summed: Amounts) -> Amounts:
    """The pod-level amounts: its request; its limit only where no container names the resource."""
    place = "spec.resources"
    block = mapping(resources, place)
    asked = _amounts(mapping(block.get("requests"), f"{place}.requests"), f"{place}.requests")
    limits = _amounts(mapping(block.get("limits"), f"{place}.limits"), f"{place}.limits")
    levels = {name: amount for name, amount in limits.items() if name not in summed} | asked
    return {name: amount for name, amount in levels.items() if name.startswith((*_POD_LEVEL, "hugepages-"))}


def _container_amounts(container: Mapping[str, object], where: str) -> Amounts:
    block = container.get("resources")
    if not block:
        return {}
    name = container.get("name")
    place = f"{where} {shown(name)}" if isinstance(name, str) else where
    resources = mapping(block, f"{place} resources")
    limits = mapping(resources.get("limits"), f"{place} limits")
    requests = mapping(resources.get("requests"), f"{place} requests")
    present = {key: value for key, value in requests.items() if value is not None}
    return _amounts({**limits, **present} if limits else present, place)


def _amounts(quantities: Mapping[str, object], where: str) -> Amounts:
    amounts = {}
    for name, value in quantities.items():
        if value is None:
            continue
        try:
            amounts[name] = quantity_nano(value)
        except Unclear as problem:
            raise Unclear(f"{where}, {clean(str(name))}: {problem}") from None
    return amounts


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: Amounts, other: Amounts) -> None:
    for name, amount in other.items():
        if amount > total.get(name, 0):
            total[name] = amount


def pod_size(amounts: Amounts) -> Size:
    """The size of a unit; raises `Skip` naming each resource that no pool is registered with.

    vCPU and memory that a pod does not ask for count as the smallest amount a unit can have.
    """
    strange = sorted(name for name, amount in amounts.items() if amount and not _is_known(name))
    if strange:
        names = some([shown(name) for name in strange])
        raise Skip(LeftOutReason.UNSUPPORTED_RESOURCE, f"it asks for {names}, which no pool offers")
    return Size(
        max(1, milli(amounts.get(CPU, 0))),
        max(1, mib(amounts.get(MEMORY, 0))),
        whole(amounts.get(GPU, 0), GPU),
    )


def _is_known(name: str) -> bool:
    return name in (CPU, MEMORY, GPU) or name.startswith(_NOT_COUNTED)


def remarks(amounts: Amounts) -> list[str]:
    """What was counted with a reservation."""
    found = [
        f"asks for {clean(name)}, which is not counted as memory or otherwise"
        for name, amount in amounts.items()
        if amount and name.startswith(_NOT_COUNTED)
    ]
    if not amounts.get(CPU):
        found.append("asks for no vCPU: counted as 0.001 vCPU")
    if not amounts.get(MEMORY):
        found.append("asks for no memory: counted as 1 MiB")
    return found


def refuse_device_claims(spec: Mapping[str, object]) -> None:
    """Devices asked for through resource claims say nothing about their number: never guessed."""
    claims = [
        shown(text_of(mapping(claim, "spec.resourceClaims").get("name"), "the name of a resource claim"))
        for claim in listing(spec.get("resourceClaims"), "spec.resourceClaims")
    ]
    if claims:
        raise Skip(
            LeftOutReason.UNSUPPORTED_RESOURCE,
            f"it asks for devices through resource claim {some(claims)}; only nvidia.com/gpu is placed",
        )
