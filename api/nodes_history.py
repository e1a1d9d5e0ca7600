"""Nodes that live and drains that were: what happened to each, second by second, and whose fault it was."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import sqlalchemy as sa
from fastapi import APIRouter, Path, Query
from pydantic import AwareDatetime, BeforeValidator
from pydantic_core import PydanticCustomError

from api import problems
from api.deps import Tenant, Uses
from api.paging import PageQuery, after_of, cut, listing_key
from api.problems import Problem
from api.shapes import Body, View
from domain.acquisition import SlotState
from domain.cause import Cause, counts_in_ledger
from domain.claim import WorkloadId
from domain.drain_history import Episode, fold
from domain.drain_story import Fault, Story, tell
from domain.lifecycle import Drain, EventType, Outcome
from domain.pool import Name
from store import lifecycle, live_nodes, node_drains
from store.engine import Connection
from store.live_nodes import NodeFilter
from store.node_drains import DrainFilter
from wire.node import InstanceId

router = APIRouter(tags=["nodes"])
InstancePath = Annotated[InstanceId, Path(alias="instanceId", description="The id of an instance")]
MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def _moment(value: object) -> object:
    """Not every form that a date can have: a number, or a time without a zone, is a mistake."""
    if isinstance(value, str) and MOMENT.fullmatch(value):
        return value
    raise PydanticCustomError("moment", "a moment with its zone, such as 2030-01-31T12:00:00Z")


Moment = Annotated[AwareDatetime, BeforeValidator(_moment)]


class NodesQuery(PageQuery):
    """Which nodes: of a hall, of a workload, those that drain now (or do not)."""

    hall: Name | None = None
    workload_id: WorkloadId | None = None
    draining: bool | None = None


class DrainsQuery(PageQuery):
    """Which drains; `since` is the earliest time of their beginning."""

    outcome: Outcome | None = None
    cause: Cause | None = None
    hall: Name | None = None
    instance_id: InstanceId | None = None
    since: Moment | None = None


class ExplainQuery(Body):
    """Which drain of the node; the newest unless one is named."""

    drain_id: UUID | None = None


class LastEventView(View):
    """What the node told last, with its own time of it."""

    type: EventType
    occurred_at: datetime


class LastDrainView(View):
    """The newest drain of a node."""

    drain_id: UUID
    outcome: Outcome
    at: datetime
    deadline: datetime | None


class NodeView(View):
    """A live node.

    `bundleVersion` was issued to it last, and `bundleAgeSeconds` says how long ago; without one it has only
    the copy that it was launched with. `bundleHeld` is what it says itself that it holds, as of
    `bundleHeldReportedAt`, which is written every five minutes while nothing changes.
    """

    instance_id: str
    state: SlotState
    region: str
    hall: str
    pool_id: str
    partition_id: str
    workload_id: str
    active_at: datetime | None
    registered_at: datetime | None
    revoked_at: datetime | None
    bundle_version: int | None
    bundle_issued_at: datetime | None
    bundle_age_seconds: int | None
    bundle_held: int | None
    bundle_held_reported_at: datetime | None
    last_event: LastEventView | None
    drain: LastDrainView | None


class NodePage(View):
    items: list[NodeView]
    next_page_token: str | None


class DrainView(View):
    """One drain of a node. `at` is its notice, or its end where it had none; times are the node's own."""

    drain_id: UUID
    instance_id: str
    outcome: Outcome
    cause: Cause
    counts_in_ledger: bool
    region: str
    hall: str
    pool_id: str
    partition_id: str
    workload_id: str
    at: datetime
    notice_id: UUID | None
    notice_at: datetime | None
    deadline: datetime | None
    signalled_at: datetime | None
    signalled_after_seconds: float | None
    ended_at: datetime | None
    seconds_to_spare: float | None
    path: str | None
    updated_at: datetime


class DrainPage(View):
    items: list[DrainView]
    next_page_token: str | None


class DrainLineView(View):
    """One step. `seconds` counts from the notice by the node's steady clock, `at` is its wall clock."""

    seconds: float | None
    at: datetime
    type: EventType
    text: str


class DrainStoryView(DrainView):
    """A drain explained: whose fault it was in one sentence, what happened when, and what is not known."""

    fault: Fault
    sentence: str
    lines: list[DrainLineView]
    gaps: list[str]


@router.get("/nodes")
async def list_nodes(query: Annotated[NodesQuery, Query()], deps: Uses, tenant_id: Tenant) -> NodePage:
    """Live nodes with their bundle, their last event and their newest drain, a page at a time."""
    wanted = NodeFilter(query.hall, query.workload_id, query.draining)
    listing = listing_key("nodes", wanted)
    after = after_of(query.page_token, listing)
    async with deps.engine.connect() as connection:
        found = await live_nodes.live_nodes(
            connection, tenant_id, wanted, after=after, limit=query.page_size + 1
        )
    page, token = cut(found, query, listing, lambda row: str(row["instance_id"]))
    now = deps.now()
    return NodePage(items=[node_view(row, now) for row in page], next_page_token=token)


def node_view(row: sa.RowMapping, now: datetime) -> NodeView:
    """A node from its row; ages are as of `now`."""
    issued, told, drained = row["bundle_issued_at"], row["last_event"], row["drain_id"]
    plain = set(NodeView.model_fields) - {"bundle_age_seconds", "last_event", "drain"}
    return NodeView(
        **{name: row[name] for name in plain},
        bundle_age_seconds=None if issued is None else max(0, int((now - issued).total_seconds())),
        last_event=None if told is None else LastEventView(type=told, occurred_at=row["last_event_at"]),
        drain=None
        if drained is None
        else LastDrainView(
            drain_id=drained,
            outcome=row["drain_outcome"],
            at=row["drain_at"],
            deadline=row["drain_deadline"],
        ),
    )


@router.get("/drains")
async def list_drains(query: Annotated[DrainsQuery, Query()], deps: Uses, tenant_id: Tenant) -> DrainPage:
    """Drains of nodes, newest first, a page at a time."""
    wanted = DrainFilter(query.outcome, query.cause, query.hall, query.instance_id, query.since)
    listing = listing_key("drains", wanted)
    before = _before(after_of(query.page_token, listing))
    async with deps.engine.connect() as connection:
        found = await node_drains.drains_before(
            connection, tenant_id, wanted, before=before, limit=query.page_size + 1
        )
    page, token = cut(found, query, listing, _place)
    return DrainPage(items=[drain_view(row) for row in page], next_page_token=token)


def _place(row: sa.RowMapping) -> str:
    return f"{row['at'].isoformat()} {row['instance_id']} {row['drain_id']}"


def _before(after: str) -> tuple[datetime, str, UUID] | None:
    if not after:
        return None
    try:
        at, instance_id, drain_id = after.split(" ")
        return datetime.fromisoformat(at).astimezone(UTC), instance_id, UUID(drain_id)
    except (ValueError, OverflowError):
        raise Problem(problems.BAD_PAGE_TOKEN, "the pageToken is not one of ours") from None


def drain_view(row: sa.RowMapping) -> DrainView:
    return DrainView(**_facts(row))


def _facts(row: sa.RowMapping) -> dict[str, Any]:
    names = set(DrainView.model_fields) - {"counts_in_ledger"}
    return {name: row[name] for name in names} | {"counts_in_ledger": counts_in_ledger(Cause(row["cause"]))}


@router.get("/drains/{instanceId}")
async def explain_drain(
    instance_id: InstancePath, query: Annotated[ExplainQuery, Query()], deps: Uses, tenant_id: Tenant
) -> DrainStoryView:
    """What happened when a node drained: second by second, with whose fault it was and what is missing."""
    async with deps.snapshot() as connection:
        return await story_view(connection, tenant_id, instance_id, query.drain_id)


async def story_view(
    connection: Connection, tenant_id: str, instance_id: str, drain_id: UUID | None
) -> DrainStoryView:
    row = await node_drains.find_drain(connection, tenant_id, instance_id, drain_id)
    events = (await lifecycle.events_of(connection, [instance_id])).get(instance_id, [])
    found = _find(fold(instance_id, events).episodes, row)
    told = tell(found, (one.sequence for one in events))
    return DrainStoryView(
        **_facts(row),
        fault=told.fault,
        sentence=told.sentence,
        lines=[DrainLineView(**line._asdict()) for line in told.lines],
        gaps=_gaps(told, found),
    )


def _find(episodes: Sequence[Episode], row: sa.RowMapping) -> Episode:
    """The drain in the events; its row alone where they are no longer kept."""
    for one in episodes:
        if one.drain.drain_id == row["drain_id"]:
            return one
    facts = {name: row[name] for name in Drain._fields if name not in ("outcome", "cause")}
    return Episode(Drain(outcome=Outcome(row["outcome"]), cause=Cause(row["cause"]), **facts), ())


def _gaps(told: Story, found: Episode) -> list[str]:
    if found.events:
        return list(told.gaps)
    return ["Its events are no longer kept."]
