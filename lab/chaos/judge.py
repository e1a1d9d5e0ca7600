"""What must hold after a case: each breach is a sentence with the word of its column."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from domain.acquisition import ServerStatus
from domain.audit import AuditTerms, FindingKind, ServerFact, audit
from domain.tags import MANAGED_TAG
from lab.bench.estate import TENANT
from lab.chaos.lane import REGION, Lane, servers_of
from lab.cloud.cloud import Cloud
from lab.cloud.records import Server, Status
from lab.cloud.request_log import IDENTITY
from store.audit_facts import Scope, read_facts

RATE_WINDOWS_SECONDS = (0.25, 1.0, 5.0)
LAUNCHED = """
    SELECT batch_key, sum(instances)::int FROM audit_log
    WHERE tenant_id = %s AND partition_id = %s AND action = 'launch' GROUP BY 1
"""
DELETED = """
    SELECT server_id FROM audit_log WHERE tenant_id = %s AND partition_id = %s AND action = 'delete'
"""
ENDED = """
    SELECT slot_key, state, server_id, problem FROM instances
    WHERE tenant_id = %s AND partition_id = %s AND state IN ('failed', 'lost') ORDER BY 1
"""
SLOTS = "SELECT batch_key, count(*) FROM instances WHERE tenant_id = %s AND partition_id = %s GROUP BY 1"


class Breach(StrEnum):
    """What was broken."""

    LEAKED = "leaked"
    DUPLICATE = "duplicate"
    FOREIGN = "foreign"
    NEEDLESS = "needless"
    UNWRITTEN = "unwritten"
    RATE = "rate"
    UNSETTLED = "unsettled"
    NOT_FIRED = "not fired"


class Broken(NamedTuple):
    """One breach, in words."""

    breach: Breach
    text: str

    def __str__(self) -> str:
        return f"{self.breach}: {self.text}"


class Kept(NamedTuple):
    """What the cloud keeps of one server."""

    server_id: str
    status: Status
    task_state: str | None
    tags: tuple[str, ...]
    metadata: dict[str, str]
    updated_at: datetime
    actions: tuple[str, ...]

    @property
    def is_alive(self) -> bool:
        return self.status is not Status.DELETED

    @property
    def batch_key(self) -> str:
        return self.metadata.get("sco_batch", "")


def kept(server: Server) -> Kept:
    return Kept(
        server.id,
        server.status,
        server.task_state,
        server.tags,
        dict(server.metadata),
        server.updated_at,
        tuple(each.action for each in server.actions),
    )


# At rest nothing is on its way: whatever has no slot or no server has none.
AT_REST = AuditTerms(settle_seconds=0, replan_seconds=0)
_STATUS = {
    Status.BUILD: ServerStatus.BUILDING,
    Status.ACTIVE: ServerStatus.ACTIVE,
    Status.SHUTOFF: ServerStatus.STOPPED,
    Status.ERROR: ServerStatus.ERROR,
}
_BREACH_OF = {
    FindingKind.DUPLICATE: Breach.DUPLICATE,
    FindingKind.SHARED: Breach.DUPLICATE,
    FindingKind.ORPHAN: Breach.LEAKED,
    FindingKind.ENDED: Breach.LEAKED,
    FindingKind.UNRECORDED: Breach.LEAKED,
    FindingKind.STRANGER: Breach.LEAKED,
    FindingKind.UNLOGGED: Breach.UNWRITTEN,
}


async def at_rest(lane: Lane, partition_id: str, foreign: Iterable[str]) -> list[Broken]:
    """Where records and cloud are not one world, asked of the auditor's rule with all that there is."""
    others = frozenset(foreign)
    servers = await asyncio.to_thread(
        lane.cloud.call,
        lambda cloud: [kept(one) for one in cloud.regions[REGION].servers.live() if one.id not in others],
    )
    facts = await read_facts(
        lane.engine,
        Scope(TENANT, partitions=(partition_id,)),
        [_fact(one) for one in servers if MANAGED_TAG in one.tags],
        datetime.now(UTC),
    )
    findings, _ = audit(facts, AT_REST)
    return [
        *(Broken(_BREACH_OF.get(one.kind, Breach.UNSETTLED), one.problem) for one in findings),
        *(
            Broken(Breach.LEAKED, f"server {one.server_id} lives without our tag")
            for one in servers
            if MANAGED_TAG not in one.tags
        ),
    ]


def _fact(one: Kept) -> ServerFact:
    return ServerFact(
        server_id=one.server_id,
        region=REGION,
        status=ServerStatus.DELETING if one.task_state == "deleting" else _STATUS[one.status],
        tags=frozenset(one.tags),
        batch_key=one.metadata.get("sco_batch"),
        pool_id=one.metadata.get("sco_pool"),
        workload_id=one.metadata.get("sco_workload"),
        partition_id=one.metadata.get("sco_partition"),
    )


class Witness(NamedTuple):
    """What is known of a case when it is over. `struck` are servers that the provider changed itself."""

    lane: Lane
    partition_id: str
    foreign: dict[str, Kept]
    struck: frozenset[str]
    began: float
    time_only: bool
    once_only: bool


def verdict(seen: Witness, rows: dict[str, Sequence[Any]]) -> list[Broken]:
    """Every breach that the cloud's own records and ours show together."""
    servers = seen.lane.cloud.call(
        lambda cloud: [
            kept(one) for one in servers_of(cloud, seen.partition_id) if one.id not in seen.foreign
        ]
    )
    return [
        *_left_alive(servers),
        *_foreign_touched(seen),
        *_made_twice(servers, seen, rows),
        *_needless(seen, rows),
        *_unwritten(servers, rows),
        *over_budget(seen.lane, seen.began),
    ]


def _left_alive(servers: Iterable[Kept]) -> Iterator[Broken]:
    for one in servers:
        if one.is_alive:
            yield Broken(Breach.LEAKED, f"server {one.server_id} of batch {one.batch_key} is {one.status}")


def _foreign_touched(seen: Witness) -> Iterator[Broken]:
    def now(cloud: Cloud) -> dict[str, Kept]:
        found = (cloud.regions[REGION].servers.get(server_id) for server_id in seen.foreign)
        return {one.id: kept(one) for one in found if one is not None}

    present = seen.lane.cloud.call(now)
    for server_id, before in seen.foreign.items():
        if present.get(server_id) != before:
            yield Broken(Breach.FOREIGN, f"server {server_id} of others is {present.get(server_id)}")


def _made_twice(servers: Iterable[Kept], seen: Witness, rows: dict[str, Sequence[Any]]) -> Iterator[Broken]:
    """Servers that show in time are never asked for twice."""
    if not seen.once_only:
        return
    slots = dict(rows["slots"])
    for batch, made in sorted(Counter(one.batch_key for one in servers).items()):
        if made > slots.get(batch, 0):
            yield Broken(Breach.DUPLICATE, f"batch {batch}: {made} servers for {slots.get(batch, 0)} slots")


def _needless(seen: Witness, rows: dict[str, Sequence[Any]]) -> Iterator[Broken]:
    """Nothing is given up that serves: only what the provider took, or what it refused."""
    for slot, state, server_id, problem in rows["ended"]:
        if state == "lost" and server_id not in seen.struck:
            yield Broken(
                Breach.NEEDLESS, f"slot {slot} was given up, its server {server_id} served: {problem}"
            )
        if state == "failed" and seen.time_only:
            yield Broken(Breach.NEEDLESS, f"slot {slot} failed: {problem}")


def _unwritten(servers: Iterable[Kept], rows: dict[str, Sequence[Any]]) -> Iterator[Broken]:
    launched, deleted = dict(rows["launched"]), {row[0] for row in rows["deleted"]}
    every = list(servers)
    for batch, made in sorted(Counter(one.batch_key for one in every).items()):
        if made > launched.get(batch, 0):
            yield Broken(
                Breach.UNWRITTEN, f"batch {batch}: {made} made, {launched.get(batch, 0)} written down"
            )
    for one in every:
        if "delete" in one.actions and one.server_id not in deleted:
            yield Broken(Breach.UNWRITTEN, f"server {one.server_id} was deleted and nobody wrote it down")


def over_budget(lane: Lane, began: float) -> Iterator[Broken]:
    used = rate_used(lane, began)
    if used > 1:
        yield Broken(Breach.RATE, f"{used:.2f} times as many calls as the budget allows")


def rate_used(lane: Lane, began: float) -> float:
    """The most calls in any window since `began`, as a share of what the budget allows in it."""
    times = lane.cloud.call(
        lambda cloud: sorted(
            each.at
            for each in cloud.requests.recent(20_000)
            if each.at >= began and each.region in (REGION, IDENTITY)
        )
    )
    rate, burst = float(lane.terms.calls_per_second), lane.terms.burst
    return max(most_within(times, window) / (burst + rate * window) for window in RATE_WINDOWS_SECONDS)


def most_within(times: Sequence[float], window_seconds: float) -> int:
    """The most of these moments, in any order, that fall into one window."""
    most = first = 0
    ordered = sorted(times)
    for last, at in enumerate(ordered):
        while at - ordered[first] >= window_seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


def rows_of(connection: Any, partition_id: str) -> dict[str, Sequence[Any]]:
    """What the records say of a partition, read as their owner."""
    named = [TENANT, partition_id]
    return {
        "slots": connection.execute(SLOTS, named).fetchall(),
        "ended": connection.execute(ENDED, named).fetchall(),
        "launched": connection.execute(LAUNCHED, named).fetchall(),
        "deleted": connection.execute(DELETED, named).fetchall(),
    }
