"""Our own format for a claim, written by hand.

    apiVersion: sco/v1
    kind: Claim
    workload: orders-daily
    units: {count: 42, vcpu: 4, memory: 16Gi, gpus: 0}   # or a list of such groups
    requirements:                                        # all optional; left out means no restriction
      arch: x86_64                                       # or arm64; x86_64 when left out
      regions: [eu-north]
      boundaries: [private, regional]
      gpuType: a100
      nvme: false
      minNicGbps: 25
      maxPricePerUnitHourUsd: "0.35"

`vcpu` and `memory` are quantities as in Kubernetes and round up to thousandths and MiB.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from pydantic import ValidationError

from domain.claim import MAX_UNITS, Requirements
from domain.intake.quantities import mib, milli, quantity_nano
from domain.intake.shaping import Size
from domain.intake.tally import Ask, Intake, IntakeRefused, Tally, check_size, check_workload
from domain.intake.words import Skip, Unclear, clean, is_mapping, mapping, shown, some, text_of

API_VERSION = "sco/v1"
KIND = "Claim"
_FIELDS = ("apiVersion", "kind", "workload", "units", "requirements")
_GROUP_FIELDS = ("count", "vcpu", "memory", "gpus")
_PRICE = "maxPricePerUnitHourUsd"
_REQUIREMENTS = {
    "arch": "arch",
    "regions": "regions",
    "boundaries": "boundaries",
    "gpuType": "gpu_type",
    "nvme": "nvme",
    "minNicGbps": "min_nic_gbps",
    _PRICE: "max_price_per_unit_hour_usd",
}
_HOW_TO_MARK = "add workload: NAME to the claim"

Document = dict[str, object]


def looks_like_claim(document: Document) -> bool:
    """Whether a document is meant as a claim of ours, valid or not."""
    version = document.get("apiVersion")
    return (isinstance(version, str) and version.startswith("sco/")) or document.get("kind") == KIND


def read_claims(documents: Sequence[object], workload: str | None) -> Intake | IntakeRefused:
    """Count the claims of all documents; refused when not one of them can be read."""
    tally = Tally(workload)
    problems = []
    for index, item in enumerate(documents):
        name = f"document {index + 1}"
        try:
            document = mapping(item, name)
            named = document.get("workload")
            name = clean(f"{name} ({named})") if isinstance(named, str) else name
            _claim(document, name, tally)
        except Skip as why:
            tally.skip(name, why)
        except Unclear as problem:
            tally.unclear(name, problem)
            problems.append(f"{name}: {problem}")
    if len(problems) == len(documents):
        return IntakeRefused(problem=some(problems))
    return tally.result("sco")


def _claim(document: Document, name: str, tally: Tally) -> None:
    _only(document, _FIELDS, "the claim")
    for field, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(field) != expected:
            raise Unclear(f"{field} is {shown(document.get(field))}; {expected} is expected")
    mark = text_of(document.get("workload"), "workload")
    owner = tally.owner(check_workload(mark, "workload") if mark else None, _HOW_TO_MARK)
    ask = Ask(_units(document.get("units")), _requirements(document.get("requirements")))
    tally.count(name, owner, ask)


def _units(units: object) -> tuple[tuple[Size, int], ...]:
    groups = units if isinstance(units, list) else [units]
    places = [f"units[{index}]" for index in range(len(groups))] if isinstance(units, list) else ["units"]
    if units is None or not groups:
        raise Unclear(f"units is missing or empty; {some(list(_GROUP_FIELDS), limit=9)} are expected")
    return tuple(_group(group, place) for group, place in zip(groups, places, strict=True))


def _group(group: object, place: str) -> tuple[Size, int]:
    if not is_mapping(group):
        raise Unclear(f"{place} is {shown(group)}; an object with count, vcpu, memory and gpus is expected")
    _only(group, _GROUP_FIELDS, place)
    size = Size(
        milli(_quantity(group, "vcpu", place)),
        mib(_quantity(group, "memory", place)),
        _whole(group.get("gpus", 0), f"{place}.gpus", least=0),
    )
    if size.vcpu_milli == 0:
        raise Unclear(f"{place}.vcpu is {shown(group.get('vcpu'))}; at least 0.001 is expected")
    return check_size(size), _whole(group.get("count"), f"{place}.count", least=1)


def _quantity(group: Document, field: str, place: str) -> int:
    if group.get(field) is None:
        raise Unclear(f"{place}.{field} is missing; a quantity such as 4 or 16Gi is expected")
    try:
        nano = quantity_nano(group[field])
    except Unclear as problem:
        raise Unclear(f"{place}.{field}: {problem}") from None
    if field == "memory" and mib(nano) <= 1:
        raise Unclear(f"{place}.memory is {shown(group[field])} bytes; write the unit, for example 16Gi")
    return nano


def _whole(value: object, where: str, *, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_UNITS:
        raise Unclear(f"{where} is {shown(value)}; a whole number from {least} to {MAX_UNITS:,} is expected")
    return value


def _requirements(value: object) -> Requirements:
    given = mapping(value, "requirements")
    _only(given, tuple(_REQUIREMENTS), "requirements")
    fields = {
        _REQUIREMENTS[name]: _setting(name, setting) for name, setting in given.items() if setting is not None
    }
    try:
        return Requirements.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        names = {field: name for name, field in _REQUIREMENTS.items()}
        place = ".".join(names.get(str(part), str(part)) for part in first["loc"])
        raise Unclear(
            f"requirements.{place} is {shown(first['input'])}: {clean(first['msg'], 200)}"
        ) from None


def _setting(name: str, value: object) -> object:
    """Lists in one order, so that equal wishes are equal; a price may be written as a number."""
    if isinstance(value, list):
        if not value:
            raise Unclear(f"requirements.{name} is an empty list; leave it out to allow all")
        return sorted(set(value)) if all(isinstance(item, str) for item in value) else value
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    return str(value) if name == _PRICE and is_number else value


def _only(given: Document, allowed: tuple[str, ...], where: str) -> None:
    unknown = [shown(name) for name in given if name not in allowed]
    if unknown:
        raise Unclear(f"{where} has unknown field {some(unknown)}; allowed are {', '.join(allowed)}")
