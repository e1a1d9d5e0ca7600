"""Small worlds for the auditor: slots with their servers, to be spoilt by a test."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from domain.acquisition import ServerStatus, SlotState
from domain.audit import CountFact, Facts, PlanFact, ServerFact, SlotFact
from domain.tags import server_tags

NOW = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
WORKLOAD, PARTITION, POOL, REGION = "orders", "k8s-eu-north", "eu-north-h1-gp-m", "eu-north"
MODEL, SHAPE = "reclaimable", "4000m-16384Mi"


def slot(number: int, batch: str = "b-1", **changes: Any) -> SlotFact:
    """An active slot with the server of its number."""
    plain = SlotFact(
        slot_key=f"{batch}-{number:03d}",
        batch_key=batch,
        workload_id=WORKLOAD,
        partition_id=PARTITION,
        pool_id=POOL,
        region=REGION,
        purchase_model=MODEL,
        state=SlotState.ACTIVE,
        server_id=f"s-{number}",
        asked_at=NOW,
    )
    return plain._replace(**changes)


def server(number: int, batch: str | None = "b-1", **changes: Any) -> ServerFact:
    """The server of an active slot."""
    plain = ServerFact(
        server_id=f"s-{number}",
        region=REGION,
        status=ServerStatus.ACTIVE,
        tags=frozenset(server_tags(PARTITION, WORKLOAD, MODEL)),
        batch_key=batch,
        pool_id=POOL,
        workload_id=WORKLOAD,
        partition_id=PARTITION,
    )
    return plain._replace(**changes)


def plan(**changes: Any) -> PlanFact:
    """A workload of three units on two instances, all of which run."""
    plain = PlanFact(
        workload_id=WORKLOAD,
        region=REGION,
        phase="placed",
        newer_claim=False,
        claimed=3,
        placed=3,
        missing=0,
        why_missing=None,
        meant=2,
        active=2,
        open=0,
    )
    return plain._replace(**changes)


def world(**changes: Any) -> Facts:
    """Two slots of one batch with their servers, booked as they should be."""
    sound = Facts(
        at=NOW,
        slots=(slot(1), slot(2)),
        servers=(server(1), server(2)),
        workloads=frozenset({WORKLOAD}),
        batch_slots={"b-1": 2},
        launched=frozenset({"b-1"}),
        counts=(
            CountFact(POOL, 2, 2, capacity=10),
            CountFact(POOL, 2, 2, workload_id=WORKLOAD, shape_key=SHAPE),
        ),
        plans=(plan(),),
    )
    return replace(sound, **changes)
