"""Findings: what an audit says is wrong, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from domain.audit.facts import ServerFact, SlotFact
from domain.model import Frozen

MAX_SERVERS_NAMED = 20


class FindingKind(StrEnum):
    """What kind of wrong. Words that drift has too mean the same here."""

    OVERBOOKED = "overbooked"
    MISCOUNTED = "miscounted"
    SHARED = "shared"
    DUPLICATE = "duplicate"
    LOST = "lost"
    UNSERVING = "unserving"
    ORPHAN = "orphan"
    ENDED = "ended"
    UNRECORDED = "unrecorded"
    STRANGER = "stranger"
    MISMATCH = "mismatch"
    WRONG_TAGS = "wrong_tags"
    PLAN = "plan"
    UNLOGGED = "unlogged"


WHAT_TO_DO: dict[FindingKind, str] = {
    FindingKind.OVERBOOKED: "Stop placements into the pool and find out who changed its rows:"
    " the database refuses this.",
    FindingKind.MISCOUNTED: "Find out who wrote counts or slots past the triggers, then count again.",
    FindingKind.SHARED: "Keep the slot whose batch the server names, and end the other one.",
    FindingKind.DUPLICATE: "The next reconcile deletes the server without a slot; check that one runs.",
    FindingKind.LOST: "The next reconcile ends the slot and has its units placed anew; check that one runs.",
    FindingKind.UNSERVING: "The next reconcile replaces it; read the server's fault at the provider.",
    FindingKind.ORPHAN: "The next reconcile adopts or deletes it; check that one runs.",
    FindingKind.ENDED: "The next reconcile deletes it again; where that fails, ask the provider why.",
    FindingKind.UNRECORDED: "The next reconcile adopts it; find out how its records were lost.",
    FindingKind.STRANGER: "Find out who launched it: register its workload, or delete it by hand.",
    FindingKind.MISMATCH: "Place the workload again with `sco place`, and find out who bound the server.",
    FindingKind.WRONG_TAGS: "The next reconcile sets its tags; find out who changed them.",
    FindingKind.PLAN: "Place the workload again with `sco place`, and read the outcome.",
    FindingKind.UNLOGGED: "Find out who acted past the control plane: ask the provider for the server's"
    " actions.",
}


class Finding(Frozen):
    """One thing that is wrong. `subject` is the id of the pool, workload, batch, slot or server."""

    kind: FindingKind
    subject: str
    problem: str
    what_to_do: str
    region: str | None = None
    workload_id: str | None = None
    pool_id: str | None = None
    server_ids: tuple[str, ...] = ()


def of_slot(kind: FindingKind, slot: SlotFact, problem: str, subject: str | None = None) -> Finding:
    return finding(
        kind,
        subject or slot.slot_key,
        problem,
        region=slot.region,
        workload_id=slot.workload_id,
        pool_id=slot.pool_id,
        server_ids=() if slot.server_id is None else (slot.server_id,),
    )


def of_server(
    kind: FindingKind,
    server: ServerFact,
    problem: str,
    *,
    subject: str | None = None,
    all_of: Iterable[ServerFact] = (),
) -> Finding:
    return finding(
        kind,
        subject or server.server_id,
        problem,
        region=server.region,
        workload_id=server.workload_id,
        pool_id=server.pool_id,
        server_ids=tuple(sorted(one.server_id for one in all_of or (server,)))[:MAX_SERVERS_NAMED],
    )


def finding(
    kind: FindingKind,
    subject: str,
    problem: str,
    *,
    region: str | None = None,
    workload_id: str | None = None,
    pool_id: str | None = None,
    server_ids: tuple[str, ...] = (),
) -> Finding:
    return Finding(
        kind=kind,
        subject=subject,
        problem=problem,
        what_to_do=WHAT_TO_DO[kind],
        region=region,
        workload_id=workload_id,
        pool_id=pool_id,
        server_ids=server_ids,
    )
