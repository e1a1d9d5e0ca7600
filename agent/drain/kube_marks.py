"""The taint that keeps new pods off a node: whose it is, until when, and when it may be taken away."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from agent.drain.kube_answers import Blocked, Changed, Missing, NodeMarks
from agent.drain.kube_api import KubeApi
from agent.drain.ports import SchedulerUnreachable

TAINT = "sco.reclaim"
EFFECT = "NoSchedule"
OWNER = "sco.reclaim/owner"
UNTIL = "sco.reclaim/until"
# How owners begin that are drains of an agent; any other is a person or a program of the platform.
AGENTS = "sco-"
# The kubelet writes to its node, too; each try reads the node again.
MAX_TRIES = 5
# What a taint's value may be; an owner's name need not be one.
MAX_VALUE = 63

Taint = Mapping[str, Any]


class Change(NamedTuple):
    """What to write to the node: all of its taints, and our annotations (None takes one away)."""

    taints: list[Taint]
    annotations: dict[str, str | None]


def taint_value(owner: str) -> str:
    """The owner as a taint's value: what such a value cannot hold is replaced."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", owner)[:MAX_VALUE].strip("-_.")


def is_mark(taint: Taint) -> bool:
    return taint.get("key") == TAINT and taint.get("effect") == EFFECT


def marked(read: NodeMarks, owner: str, until: datetime, now: datetime) -> Change | None:
    """The change that marks the node as ours; None when another's mark is in force, which does as well."""
    present = next((taint for taint in read.taints if is_mark(taint)), None)
    if present is not None and not (_is_agents(present) or _is_of(read, present, owner) or _over(read, now)):
        return None
    mark = {"key": TAINT, "value": taint_value(owner), "effect": EFFECT}
    others = [taint for taint in read.taints if not is_mark(taint)]
    return Change([*others, mark], {OWNER: owner, UNTIL: until.astimezone(UTC).isoformat(timespec="seconds")})


def unmarked(read: NodeMarks, owner: str) -> Change | None:
    """The change that takes our mark away; None when there is none of ours."""
    if not any(is_mark(taint) and _is_of(read, taint, owner) for taint in read.taints):
        return None
    return Change([taint for taint in read.taints if not is_mark(taint)], {OWNER: None, UNTIL: None})


def _is_of(read: NodeMarks, taint: Taint, owner: str) -> bool:
    named = read.annotations.get(OWNER)
    return taint.get("value") == taint_value(owner) and named in (None, owner)


def _is_agents(taint: Taint) -> bool:
    """Whether an earlier drain of this node left it: the later drain takes it over, and then the earlier
    one's owner takes nothing away."""
    return str(taint.get("value", "")).startswith(AGENTS)


def _over(read: NodeMarks, now: datetime) -> bool:
    """Whether a mark's time has passed; one without a readable time is nobody's to take over."""
    try:
        until = datetime.fromisoformat(read.annotations[UNTIL])
    except (KeyError, ValueError):
        return False
    return until.tzinfo is not None and until <= now


async def mark(api: KubeApi, node: str, owner: str, until: datetime, now: datetime) -> None:
    """Taint the node. SchedulerUnreachable when it cannot be done; taints of others stay as they are."""
    for _ in range(MAX_TRIES):
        try:
            read = await api.node(node)
            change = marked(read, owner, until, now)
            if change is None:
                return
            await api.patch_node(node, read, change.taints, change.annotations)
        except (Changed, Blocked):
            continue
        except Missing as error:
            raise SchedulerUnreachable(f"the cluster has no node {node!r}") from error
        return
    raise SchedulerUnreachable(f"node {node!r} could not be marked in {MAX_TRIES} tries: others change it")


async def unmark(api: KubeApi, node: str, owner: str) -> None:
    """Take our taint away. A node that is gone, or has none of ours, is left as it is."""
    for _ in range(MAX_TRIES):
        try:
            read = await api.node(node)
            change = unmarked(read, owner)
            if change is not None:
                await api.patch_node(node, read, change.taints, change.annotations)
        except (Changed, Blocked):
            continue
        except Missing:
            return
        return
    raise SchedulerUnreachable(f"the mark stays on node {node!r}: others changed it at {MAX_TRIES} tries")
