"""What a reclaim takes: one node, a pool, a correlation group, or a whole hall."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

NAMES_SHOWN = 8


class Node(NamedTuple):
    """One instance of the laboratory, and where the provider counts it."""

    instance_id: str
    hall: str
    pool_id: str
    group_id: str


class TargetKind(StrEnum):
    NODE = "node"
    POOL = "pool"
    GROUP = "group"
    HALL = "hall"


class Target(NamedTuple):
    """What is taken, by its name."""

    kind: TargetKind
    name: str


class NothingThere(Exception):
    """No node is in what was named. The text says what there is instead."""


def chosen(nodes: Sequence[Node], target: Target) -> tuple[Node, ...]:
    """The nodes of a target, by id. NothingThere when there are none."""
    found = [one for one in nodes if _name(one, target.kind) == target.name]
    if not found:
        known = sorted({_name(one, target.kind) for one in nodes})
        more = f" and {len(known) - NAMES_SHOWN} more" if len(known) > NAMES_SHOWN else ""
        there = ", ".join(known[:NAMES_SHOWN]) + more if known else "no node runs"
        of = "" if target.kind is TargetKind.NODE else f" of {target.kind}"
        raise NothingThere(f"no node{of} {target.name!r} runs here; there is: {there}")
    return tuple(sorted(found))


def _name(node: Node, kind: TargetKind) -> str:
    by_kind = {
        TargetKind.NODE: node.instance_id,
        TargetKind.POOL: node.pool_id,
        TargetKind.GROUP: node.group_id,
        TargetKind.HALL: node.hall,
    }
    return by_kind[kind]
