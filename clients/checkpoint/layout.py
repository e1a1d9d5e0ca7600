"""Where things are kept below the prefix of one workload, and how their names are ordered.

Numbers are written with as many digits each time, so that keys sort as the numbers do.
"""

from __future__ import annotations

import re
from typing import NamedTuple

DIGITS = 16
MAX_NUMBER = 10**DIGITS - 1
MANIFESTS, PARTS, LEASES = "manifests/", "parts/", "leases/"
STAGED, PUBLISHED = "outputs/staged/", "outputs/published.json"
# Names the newest manifest. A hint only: it helps where listings lag behind.
HEAD = "head.json"
WORKLOAD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MANIFEST = re.compile(rf"{MANIFESTS}(\d{{{DIGITS}}})-(\d{{{DIGITS}}})-([a-z0-9]{{1,64}})\.json")
_LEASE = re.compile(rf"{LEASES}(\d{{{DIGITS}}})-([a-z0-9]{{1,64}})\.json")
_ATTEMPT = re.compile(rf"{PARTS}(\d{{{DIGITS}}})-(\d{{{DIGITS}}})-([a-z0-9]{{1,64}})-[a-z0-9]{{1,64}}/")


class Order(NamedTuple):
    """What decides between generations: the lease's token, then the generation, then the writer's name."""

    token: int
    generation: int
    writer: str


def manifest_key(order: Order) -> str:
    return f"{MANIFESTS}{order.token:0{DIGITS}d}-{order.generation:0{DIGITS}d}-{order.writer}.json"


def manifest_order(key: str) -> Order | None:
    """The order that a manifest's key says; None when it is none."""
    match = _MANIFEST.fullmatch(key)
    return Order(int(match[1]), int(match[2]), match[3]) if match else None


def lease_key(token: int, writer: str) -> str:
    return f"{LEASES}{token:0{DIGITS}d}-{writer}.json"


def lease_holder(key: str) -> tuple[int, str] | None:
    match = _LEASE.fullmatch(key)
    return (int(match[1]), match[2]) if match else None


def attempt_prefix(order: Order, attempt: str) -> str:
    """Where one attempt to write a generation puts its parts; no two attempts share it."""
    return f"{PARTS}{order.token:0{DIGITS}d}-{order.generation:0{DIGITS}d}-{order.writer}-{attempt}/"


def attempt_order(key: str) -> Order | None:
    """Whose attempt a part's key belongs to; None when it is no part."""
    match = _ATTEMPT.match(key)
    return Order(int(match[1]), int(match[2]), match[3]) if match else None


def staged_prefix(token: int, writer: str) -> str:
    return f"{STAGED}{token:0{DIGITS}d}-{writer}/"


def checked_workload(workload: str) -> str:
    """The name itself. ValueError when it cannot be part of a key."""
    if not WORKLOAD.fullmatch(workload):
        raise ValueError(
            f"{workload[:140]!r} is no name for a workload: use letters, digits and ._-, at most 128"
        )
    return workload
