"""The oracle: whether what the control plane remembers and what exists at the provider are one world.

It reads the database as its owner and the cloud through its admin API, so it sees what no list shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import psycopg
from psycopg.rows import namedtuple_row

from domain.acquisition import LIVE_STATES, SlotState
from domain.tags import MANAGED_TAG
from store.tables import Phase

GONE = "DELETED"
LEAVING = "deleting"
SETTLED = (Phase.PLACED.value, Phase.SHORTFALL.value)

SLOTS = """
    SELECT slot_key, batch_key, workload_id, pool_id, region, state, server_id FROM instances ORDER BY 1
"""
COUNTS = """
    SELECT concat_ws('/', r.workload_id, r.pool_id, r.shape_key) AS subject,
           r.instances AS booked, coalesce(s.live, 0) AS live
    FROM reservations r LEFT JOIN (
      SELECT tenant_id, workload_id, pool_id, shape_key, count(*) AS live FROM instances
      WHERE state = ANY(%(live)s) GROUP BY 1, 2, 3, 4
    ) s USING (tenant_id, workload_id, pool_id, shape_key)
    WHERE r.instances <> coalesce(s.live, 0)
    UNION ALL
    SELECT c.pool_id, c.reserved_instances, coalesce(s.live, 0)
    FROM pool_capacity c LEFT JOIN (
      SELECT tenant_id, pool_id, count(*) AS live FROM instances
      WHERE state = ANY(%(live)s) GROUP BY 1, 2
    ) s USING (tenant_id, pool_id)
    WHERE c.reserved_instances <> coalesce(s.live, 0)
"""
OVERBOOKED = """
    SELECT pool_id, reserved_instances, capacity_instances FROM pool_capacity
    WHERE reserved_instances > capacity_instances
"""
PLANS = """
    SELECT w.workload_id, w.phase, w.shortfall_units, w.shortfall_reason, c.units AS claimed,
           coalesce(r.placed, 0) AS placed, coalesce(r.meant, 0) AS meant,
           coalesce(s.active, 0) AS active, coalesce(s.open, 0) AS open
    FROM workloads w
    JOIN claims c ON (c.tenant_id, c.workload_id, c.version)
                   = (w.tenant_id, w.workload_id, w.planned_version)
    LEFT JOIN (
      SELECT tenant_id, workload_id, sum(units) AS placed, sum(target_instances) AS meant
      FROM reservations GROUP BY 1, 2
    ) r ON (r.tenant_id, r.workload_id) = (w.tenant_id, w.workload_id)
    LEFT JOIN (
      SELECT tenant_id, workload_id, count(*) FILTER (WHERE state = 'active') AS active,
             count(*) FILTER (WHERE state IN ('planned', 'building', 'releasing')) AS open
      FROM instances GROUP BY 1, 2
    ) s ON (s.tenant_id, s.workload_id) = (w.tenant_id, w.workload_id)
    WHERE w.phase = ANY(%(settled)s)
    ORDER BY 1
"""


class Server(NamedTuple):
    """A server of ours as the cloud knows it."""

    server_id: str
    region: str
    batch_key: str | None
    pool_id: str | None
    leaving: bool


class Truth(Protocol):
    """Who knows every server, as the cloud's `AdminClient` does."""

    def servers(self) -> list[Any]: ...


def check(dsn: str, cloud: Truth) -> list[str]:
    """What is wrong, each as a sentence; nothing when the two agree.

    It holds at any moment for servers, slots and bookings, and for a workload once its placement has
    ended. A server that is being deleted is on its way out and counts for nothing.
    """
    servers = [
        _server(one) for one in cloud.servers() if MANAGED_TAG in one["tags"] and one["status"] != GONE
    ]
    with psycopg.connect(dsn, row_factory=namedtuple_row) as connection:
        # One snapshot: the control plane may be at work.
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        slots: list[Any] = connection.execute(SLOTS).fetchall()
        counts: list[Any] = connection.execute(COUNTS, {"live": [*LIVE_STATES]}).fetchall()
        overbooked = connection.execute(OVERBOOKED).fetchall()
        plans: list[Any] = connection.execute(PLANS, {"settled": [*SETTLED]}).fetchall()
    return [
        *_without_slot(servers, slots),
        *_without_server(servers, slots),
        *_too_many(servers, slots),
        *(f"{one.subject}: {one.booked} instances are booked, {one.live} slots live" for one in counts),
        *(f"{one[0]}: {one[1]} instances are booked of {one[2]}" for one in overbooked),
        *(problem for plan in plans for problem in _of_plan(plan)),
    ]


def _server(told: dict[str, Any]) -> Server:
    metadata = told["metadata"]
    leaving = told["task_state"] == LEAVING
    return Server(told["id"], told["region"], metadata.get("sco_batch"), metadata.get("sco_pool"), leaving)


def _live(slots: Iterable[Any]) -> list[Any]:
    return [slot for slot in slots if slot.state in LIVE_STATES]


def _without_slot(servers: Sequence[Server], slots: Sequence[Any]) -> Iterator[str]:
    holders = Counter(slot.server_id for slot in _live(slots) if slot.server_id is not None)
    for server in servers:
        if not server.leaving and holders[server.server_id] != 1:
            yield (
                f"server {server.server_id} of batch {server.batch_key} in {server.region}"
                f" has {holders[server.server_id]} live slots"
            )


def _without_server(servers: Sequence[Server], slots: Sequence[Any]) -> Iterator[str]:
    existing = {server.server_id: server for server in servers}
    for slot in _live(slots):
        server = existing.get(slot.server_id)
        if slot.server_id is None:
            continue
        if server is None:
            yield f"slot {slot.slot_key} is {slot.state}, its server {slot.server_id} does not exist"
        elif (server.batch_key, server.pool_id, server.region) != (slot.batch_key, slot.pool_id, slot.region):
            yield f"slot {slot.slot_key} holds server {slot.server_id}, which was made for another slot"
        elif server.leaving and slot.state != SlotState.RELEASING:
            yield f"slot {slot.slot_key} is {slot.state}, its server {slot.server_id} is being deleted"


def _too_many(servers: Sequence[Server], slots: Sequence[Any]) -> Iterator[str]:
    planned = Counter(slot.batch_key for slot in slots)
    made = Counter(server.batch_key for server in servers if not server.leaving)
    for batch_key, count in made.items():
        if count > planned[batch_key]:
            yield f"batch {batch_key} has {count} servers for {planned[batch_key]} slots"


def _of_plan(plan: Any) -> Iterator[str]:
    """A placement that has ended: every claimed unit is placed or missing, and what was meant runs."""
    if plan.placed + plan.shortfall_units != plan.claimed:
        yield (
            f"{plan.workload_id}: {plan.placed} units are placed and {plan.shortfall_units} missing"
            f" of {plan.claimed} claimed"
        )
    if (plan.shortfall_units > 0) != (plan.shortfall_reason is not None):
        yield f"{plan.workload_id}: {plan.shortfall_units} missing with reason {plan.shortfall_reason}"
    if (plan.shortfall_units > 0) != (plan.phase == Phase.SHORTFALL):
        yield f"{plan.workload_id}: {plan.phase} with {plan.shortfall_units} units missing"
    if plan.open or plan.active != plan.meant:
        yield (
            f"{plan.workload_id}: {plan.phase} with {plan.active} active instances of {plan.meant} meant"
            f" and {plan.open} slots open"
        )
