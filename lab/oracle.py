"""The oracle: whether what the control plane remembers and what exists at the provider are one world.

It asks the auditor's rule with what the cloud's admin API tells, and so sees what no list shows; and it
adds what the cloud alone knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import psycopg

from domain.acquisition import ServerStatus
from domain.audit import AuditTerms, Facts, FindingKind, ServerFact, audit
from domain.pool import PurchaseModel
from domain.tags import MANAGED_TAG
from lab.seed import TENANT
from store.audit_facts import Scope, read_facts
from store.engine import create_engine

GONE = "DELETED"
LEAVING = "deleting"
CREATE = "create"
# At rest nothing is on its way: whatever has no slot or no server has none.
AT_REST = AuditTerms(settle_seconds=0, replan_seconds=0)
_STATUS = {
    "BUILD": ServerStatus.BUILDING,
    "ACTIVE": ServerStatus.ACTIVE,
    "SHUTOFF": ServerStatus.STOPPED,
    "ERROR": ServerStatus.ERROR,
}
BATCHES = "SELECT batch_key, count(*) FROM instances GROUP BY 1"


class Truth(Protocol):
    """Who knows every server that ever was, as the cloud's `AdminClient` does."""

    def servers(self) -> list[Any]: ...


def check(dsn: str, cloud: Truth, *, foreign: Collection[str] = (), with_log: bool = True) -> list[str]:
    """What is wrong, each as a sentence; nothing when the two agree.

    It holds at any moment for bookings and for servers that nothing is being done about, and for a
    workload once its placement has ended. `foreign` are the ids of servers of others, on which nothing
    may have been done since their create. `with_log` also asks whether every action is in the audit
    log. Not for a running event loop.
    """
    told = cloud.servers()
    servers = [_fact(one) for one in told if one["status"] != GONE]
    facts = asyncio.run(_facts(dsn, [one for one in servers if one.is_managed]))
    findings, _ = audit(facts, AT_REST)
    return [
        *(one.problem for one in findings if with_log or one.kind is not FindingKind.UNLOGGED),
        *_beside_leases(told),
        *_touched(told, foreign),
    ]


def ran_at_once(dsn: str, cloud: Truth) -> list[str]:
    """Batches of which more servers ever ran at the same time than they have slots, each as a sentence.

    A server that turned up late may have run for the moment until it was deleted.
    """
    with psycopg.connect(dsn) as connection:
        slots: dict[str, int] = dict(connection.execute(BATCHES).fetchall())
    spans: dict[str, list[tuple[str, str]]] = {}
    for one in cloud.servers():
        batch_key = one["metadata"].get("sco_batch")
        if MANAGED_TAG in one["tags"] and batch_key is not None and one["launched_at"] is not None:
            spans.setdefault(batch_key, []).append((one["launched_at"], one["terminated_at"] or "9"))
    peaks = {batch_key: _most_at_once(of_batch) for batch_key, of_batch in spans.items()}
    return [
        f"batch {batch_key} had {peak} servers running at once for {slots.get(batch_key, 0)} slots"
        for batch_key, peak in sorted(peaks.items())
        if peak > slots.get(batch_key, 0)
    ]


def _most_at_once(spans: Iterable[tuple[str, str]]) -> int:
    """The largest number of spans that overlap; one that ends when another starts does not."""
    changes = [change for start, end in spans for change in ((start, 1), (end, -1))]
    running = most = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return most


async def _facts(dsn: str, servers: Sequence[ServerFact]) -> Facts:
    engine = create_engine(dsn, pool_size=1)
    try:
        return await read_facts(engine, Scope(TENANT), servers, datetime.now(UTC))
    finally:
        await engine.dispose()


def _fact(told: dict[str, Any]) -> ServerFact:
    metadata, fault = told["metadata"], told["fault"]
    return ServerFact(
        server_id=told["id"],
        region=told["region"],
        status=ServerStatus.DELETING if told["task_state"] == LEAVING else _STATUS[told["status"]],
        tags=frozenset(told["tags"]),
        batch_key=metadata.get("sco_batch"),
        pool_id=metadata.get("sco_pool"),
        workload_id=metadata.get("sco_workload"),
        partition_id=metadata.get("sco_partition"),
        fault=None if fault is None else fault["message"],
    )


def _beside_leases(told: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Committed servers that run, and not on a lease: guaranteed capacity that nobody approved."""
    for server in told:
        is_committed = server["metadata"].get("sco_purchase_model") == PurchaseModel.COMMITTED
        if is_committed and server["status"] != GONE and server["reservation"] is None:
            yield f"committed server {server['id']} is not on a lease"


def _touched(told: Iterable[dict[str, Any]], foreign: Collection[str]) -> Iterator[str]:
    """Servers of others that are not as their owners left them."""
    known = {one["id"]: one for one in told}
    for server_id in sorted(foreign):
        server = known[server_id]
        acts = sorted({act["action"] for act in server["actions"]} - {CREATE})
        if acts:
            yield f"foreign server {server_id} was touched: {', '.join(acts)}"
        if MANAGED_TAG in server["tags"]:
            yield f"foreign server {server_id} was tagged as ours"
