"""How each fault is armed at a step, and whether it has come true."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from lab.chaos.table import Cell, Fault
from lab.cloud.cloud import Cloud
from lab.cloud.faults import FaultKind, FaultRule
from lab.cloud.server import CloudHandle
from lab.cloud.wire import Act, ArmedFault, WireFault, WireKind

# Real seconds. Late is within the time that a launch is given to show, very late is beyond it.
LATE_SECONDS, VERY_LATE_SECONDS = 0.25, 0.9
MOST_TIMES = 3
MISSING_OF_A_BATCH = 1

_KINDS: dict[Fault, WireKind] = {
    Fault.THROTTLED: WireKind.THROTTLED,
    Fault.SILENT_BEFORE: WireKind.SILENT_BEFORE,
    Fault.SILENT_AFTER: WireKind.SILENT_AFTER,
    Fault.DROPPED_BEFORE: WireKind.DROPPED_BEFORE,
    Fault.DROPPED_AFTER: WireKind.DROPPED_AFTER,
    Fault.DROPPED_MID_BODY: WireKind.DROPPED_MID_BODY,
    Fault.MALFORMED: WireKind.MALFORMED,
    Fault.TRUNCATED: WireKind.TRUNCATED,
    Fault.EMPTY_LIST: WireKind.EMPTY_LIST,
    Fault.FAILED_PAGE: WireKind.FAILED_PAGE,
    Fault.PARTIAL_LIST: WireKind.PARTIAL_LIST,
    Fault.UNFILTERED: WireKind.UNFILTERED,
    Fault.TAKEN_AWAY: WireKind.TAKEN_AWAY,
    Fault.TURNS_TO_ERROR: WireKind.TURNS_TO_ERROR,
    Fault.LOSES_TAGS: WireKind.LOSES_TAGS,
}
_STATUS: dict[Fault, tuple[WireKind, int]] = {
    Fault.ERROR_500: (WireKind.ERROR_BEFORE, 500),
    Fault.ERROR_502: (WireKind.ERROR_BEFORE, 502),
    Fault.ERROR_503: (WireKind.ERROR_BEFORE, 503),
    Fault.CONFLICT: (WireKind.ERROR_BEFORE, 409),
    Fault.NOT_FOUND: (WireKind.ERROR_BEFORE, 404),
    Fault.UNAUTHORIZED: (WireKind.ERROR_BEFORE, 401),
    Fault.DONE_503: (WireKind.ERROR_AFTER, 503),
    Fault.DONE_504: (WireKind.ERROR_AFTER, 504),
    Fault.GONE_404: (WireKind.ERROR_AFTER, 404),
    Fault.GONE_409: (WireKind.ERROR_AFTER, 409),
    Fault.GONE_500: (WireKind.ERROR_AFTER, 500),
}
_LATENESS: dict[Fault, float] = {Fault.LATE: LATE_SECONDS, Fault.VERY_LATE: VERY_LATE_SECONDS}
# The provider's own failures to build, armed at the service and not on the way to it.
_BUILDS: dict[Fault, tuple[FaultKind, int | None]] = {
    Fault.QUOTA: (FaultKind.QUOTA_EXCEEDED, None),
    Fault.NO_VALID_HOST: (FaultKind.NO_VALID_HOST, None),
    Fault.BUILD_ERROR: (FaultKind.BUILD_ERROR, MISSING_OF_A_BATCH),
    Fault.STUCK_BUILD: (FaultKind.STUCK_BUILD, MISSING_OF_A_BATCH),
    Fault.NEVER_SHOWN: (FaultKind.NOT_CREATED, None),
    Fault.FEWER: (FaultKind.NOT_CREATED, MISSING_OF_A_BATCH),
}
# A list that lies twice running may be believed by nobody, but a launch may give up what it hides.
_ONCE = frozenset({Fault.SILENT_BEFORE, Fault.SILENT_AFTER, Fault.THROTTLED, Fault.STUCK_BUILD})


@dataclass(slots=True)
class Armed:
    """One fault in force. `struck` are the servers that it changed."""

    fired: Callable[[], int]
    struck: Callable[[], list[str]]
    disarm: Callable[[], None]


class Victims(NamedTuple):
    """Whose servers a fault may change: those with this metadata that are not spared."""

    metadata: dict[str, str]
    spared: frozenset[str]


def arm(cloud: CloudHandle, cell: Cell, rng: random.Random, region: str, victims: Victims) -> Armed:
    """Arm one cell's fault. It comes true a bounded number of times, and then the provider is well."""
    times = 1 if cell.fault in _ONCE else rng.randint(1, MOST_TIMES)
    if cell.fault in _BUILDS:
        return _arm_build(cloud, cell.fault, times, region)
    return _arm_wire(cloud, _wire_fault(cell, times, region, victims))


def _wire_fault(cell: Cell, times: int, region: str, victims: Victims) -> WireFault:
    common: dict[str, Any] = {"act": cell.step, "times": times, "region": region}
    if cell.fault in _STATUS:
        kind, status = _STATUS[cell.fault]
        return WireFault(kind=kind, status=status, **common)
    if cell.fault in _LATENESS:
        seconds = _LATENESS[cell.fault] if cell.step is Act.CREATE else VERY_LATE_SECONDS
        return WireFault(kind=WireKind.CARRIED_OUT_LATE, delay_seconds=seconds, **common)
    whose = {"victims": tuple(sorted(victims.metadata.items())), "spared": victims.spared}
    return WireFault(kind=_KINDS[cell.fault], **whose, **common)


def _arm_wire(cloud: CloudHandle, fault: WireFault) -> Armed:
    armed: ArmedFault = cloud.call(lambda _: cloud.wire.plan.arm(fault))
    return Armed(
        fired=lambda: armed.fired,
        struck=lambda: list(armed.struck),
        disarm=lambda: cloud.call(lambda _: cloud.wire.plan.disarm()),
    )


def _arm_build(cloud: CloudHandle, fault: Fault, times: int, region: str) -> Armed:
    kind, count = _BUILDS[fault]
    rule = FaultRule(kind=kind, method="POST", region=region, times=times, count=count)
    rule_id = cloud.call(lambda held: held.faults.add(rule))
    fired: list[int] = []

    def disarm() -> None:
        fired.append(cloud.call(lambda held: _fired(held, rule_id)))
        cloud.call(lambda held: held.faults.clear())

    return Armed(
        fired=lambda: fired[-1] if fired else cloud.call(lambda held: _fired(held, rule_id)),
        struck=list,
        disarm=disarm,
    )


def _fired(cloud: Cloud, rule_id: int) -> int:
    return next((armed.fired for armed in cloud.faults.rules() if armed.rule_id == rule_id), 0)
