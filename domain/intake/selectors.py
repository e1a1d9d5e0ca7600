"""Where a pod may run, as far as its node selector and required node affinity say so.

Read are the labels of architecture, operating system, region, GPU product and host name. Anything else
is reported, since no pool is registered with it: new nodes must carry such a label to serve the pod.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from domain.claim import LeftOutReason, Requirements
from domain.intake.gpus import gpu_type
from domain.intake.words import Skip, Unclear, clean, mapping, mappings, shown, some, text_of
from domain.pool import Arch

_ARCH = ("kubernetes.io/arch", "beta.kubernetes.io/arch")
_OS = ("kubernetes.io/os", "beta.kubernetes.io/os")
_REGION = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
_PRODUCT = ("nvidia.com/gpu.product",)
_HOST = ("kubernetes.io/hostname", "metadata.name")
_ARCHES = {"amd64": Arch.X86_64, "x86_64": Arch.X86_64, "arm64": Arch.ARM64, "aarch64": Arch.ARM64}
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")


class Place(NamedTuple):
    """Where a pod may run, and what of its wishes was not read."""

    requirements: Requirements
    remarks: tuple[str, ...]


_ANYWHERE = Place(Requirements(), ())


def pod_place(spec: Mapping[str, object]) -> Place:
    """Raises `Skip` for a pod that waits for one given node, `Unclear` for what cannot be read."""
    selector = mapping(spec.get("nodeSelector"), "spec.nodeSelector")
    wanted: dict[str, tuple[str, ...]] = {
        key: (text_of(value, f"node selector {clean(key)}"),) for key, value in selector.items()
    }
    unread = [] if spec.get("affinity") is None else _read_affinity(spec["affinity"], wanted)
    if not wanted and not unread:
        return _ANYWHERE
    place = _place(tuple(sorted(wanted.items())))
    return Place(place.requirements, place.remarks + tuple(unread))


def _read_affinity(affinity: object, wanted: dict[str, tuple[str, ...]]) -> list[str]:
    """Adds the plain `In` rules of the one required term to `wanted`; returns what stays unread."""
    where = "spec.affinity.nodeAffinity"
    node = mapping(mapping(affinity, "spec.affinity").get("nodeAffinity"), where)
    required = mapping(node.get("requiredDuringSchedulingIgnoredDuringExecution"), f"{where}.required")
    terms = list(mappings(required.get("nodeSelectorTerms"), f"{where}.required.nodeSelectorTerms"))
    if not terms:
        return []
    if len(terms) > 1:
        return [f"required node affinity with {len(terms)} alternatives is not read"]
    ((place, term),) = terms
    unread = []
    for part in ("matchExpressions", "matchFields"):
        for rule_place, rule in mappings(term.get(part), f"{place}.{part}"):
            key = text_of(rule.get("key"), f"{rule_place}.key")
            values = rule.get("values")
            if rule.get("operator") != "In" or not isinstance(values, list) or not values:
                unread.append(f"required node affinity on {clean(key)} is not read")
                continue
            allowed = tuple(text_of(value, f"{rule_place}.values") for value in values)
            before = wanted.get(key)
            wanted[key] = tuple(v for v in allowed if v in before) if before else allowed
            if not wanted[key]:
                raise Unclear(f"node selector and affinity allow no common value of {clean(key)}")
    return unread


@lru_cache(maxsize=1024)
def _place(wanted: tuple[tuple[str, tuple[str, ...]], ...]) -> Place:
    fields: dict[str, object] = {}
    remarks: list[str] = []
    for key, values in wanted:
        if key in _ARCH:
            fields["arch"] = _arch(key, values)
        elif key in _REGION:
            fields["regions"] = tuple(_region(key, value) for value in sorted(values))
        elif key in _PRODUCT:
            fields["gpu_type"] = _gpu(values, remarks)
        else:
            _other(key, values, remarks)
    return Place(Requirements.model_validate(fields), tuple(remarks))


def _arch(key: str, values: tuple[str, ...]) -> Arch:
    """The architecture; x86_64 where both are allowed."""
    unknown = [shown(value) for value in values if value not in _ARCHES]
    if len(unknown) == len(values):
        raise Unclear(f"{key} is {some(unknown)}; allowed are amd64 and arm64")
    found = {_ARCHES[value] for value in values if value in _ARCHES}
    return Arch.X86_64 if Arch.X86_64 in found else Arch.ARM64


def _region(key: str, value: str) -> str:
    if not _NAME.fullmatch(value):
        raise Unclear(f"{key} {shown(value)} is not a region name; allowed are a-z, 0-9, - and .")
    return value


def _gpu(values: tuple[str, ...], remarks: list[str]) -> str:
    types = [gpu_type(value) for value in values]
    names = sorted({kind.name for kind in types})
    if len(names) > 1:
        raise Skip(
            LeftOutReason.UNSUPPORTED_RESOURCE,
            f"it allows several GPU types ({some(names)}); a workload is placed on one",
        )
    remarks.extend(kind.remark for kind in types if kind.remark)
    return names[0]


def _other(key: str, values: tuple[str, ...], remarks: list[str]) -> None:
    if key in _HOST:
        raise Skip(LeftOutReason.NODE_PINNED, f"it waits for node {some([clean(v) for v in values])}")
    if key not in _OS:
        remarks.append(f"asks for nodes labelled {clean(key)}={some([clean(v) for v in values])}")
    elif "linux" not in values:
        raise Skip(
            LeftOutReason.UNSUPPORTED_RESOURCE,
            f"it asks for operating system {some([shown(v) for v in values])}; pools run linux",
        )
