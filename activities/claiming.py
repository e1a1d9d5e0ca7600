"""The hand that takes a claim: what a list says becomes the newest claim of its workload."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from domain.claim import Demand
from domain.claim_scaling import scaled
from domain.intake import Intake
from store import claims, workloads
from store.engine import Connection

ENTRIES_KEPT = 100
ZERO_NOTE = "nothing in the list waits for a node: the claim becomes 0 units and its capacity is given back"


class NothingToScale(LookupError):
    """The workload has no claim whose shapes could be scaled."""


class NothingPending(LookupError):
    """The list holds no demand of the workload, and no earlier claim says what 0 units of it would be."""


class Claimed(NamedTuple):
    """A claim as it stands, or as it would stand; `version` is None where nothing was stored."""

    workload_id: str
    partition_id: str
    demand: Demand
    version: int | None
    notes: tuple[str, ...]


async def claim_from_list(
    connection: Connection, tenant_id: str, workload_id: str, intake: Intake, *, dry_run: bool = False
) -> Claimed:
    """Make what `intake` counts for the workload its newest claim.

    A list without pending work scales to 0 units and keeps the shapes. An entry that could not be read
    is never taken for an absent one: then, and without an earlier claim, it is `NothingPending`.
    """
    workload = await workloads.find_workload(connection, tenant_id, workload_id)
    demand, notes = intake.workloads.get(workload_id), intake.notes
    if demand is None:
        if intake.unreadable:
            raise NothingPending("none of its entries that name this workload could be read")
        demand = await _of_size(connection, tenant_id, workload_id, 0)
        if demand is None:
            raise NothingPending("nothing in it waits for a node on behalf of this workload")
        notes = (*notes, ZERO_NOTE)
    version = None
    if not dry_run:
        version, _ = await workloads.add_claim(
            connection,
            tenant_id=tenant_id,
            workload_id=workload_id,
            demand=demand,
            source=intake.source,
            intake=_kept(intake, notes),
        )
    return Claimed(workload_id, workload["partition_id"], demand, version, notes)


async def scale_claim(connection: Connection, tenant_id: str, workload_id: str, units: int) -> Claimed:
    """Make `units` in the proportions that were last submitted the newest claim of a workload."""
    workload = await workloads.find_workload(connection, tenant_id, workload_id)
    demand = await _of_size(connection, tenant_id, workload_id, units)
    if demand is None:
        raise NothingToScale(f"workload {workload_id!r} has no claim yet, so no shapes to scale")
    version, _ = await workloads.add_claim(
        connection,
        tenant_id=tenant_id,
        workload_id=workload_id,
        demand=demand,
        source=claims.SCALED,
        intake={"units": units},
    )
    return Claimed(workload_id, workload["partition_id"], demand, version, ())


async def _of_size(connection: Connection, tenant_id: str, workload_id: str, units: int) -> Demand | None:
    submitted = await claims.claim_to_scale(connection, tenant_id, workload_id)
    return None if submitted is None else scaled(Demand.model_validate(submitted["demand"]), units)


def _kept(intake: Intake, notes: tuple[str, ...]) -> dict[str, Any]:
    """What is remembered of a reading: counts of everything, and the first entries by name."""
    return {
        "left_out": dict(Counter(entry.reason.value for entry in intake.left_out)),
        "unreadable": len(intake.unreadable),
        "first_unreadable": [entry.model_dump(mode="json") for entry in intake.unreadable[:ENTRIES_KEPT]],
        "notes": list(notes),
    }
