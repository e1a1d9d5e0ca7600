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
ZERO_NOTE = "nothing in the list waits for a node: the claim is 0 units"
OWN_FORMAT = "sco"


class NothingToScale(LookupError):
    """The workload has no claim whose shapes could be scaled."""


class NothingPending(LookupError):
    """The list holds no demand of the workload, and no earlier claim says what 0 units of it would be."""


class WouldShrink(ValueError):
    """A scheduler's list has fewer pending units than the claim in force, whose capacity is in use."""

    def __init__(self, pending_units: int, claim_units: int) -> None:
        super().__init__(
            f"the list has {pending_units} pending units, the claim in force has {claim_units}:"
            " a list shows what waits and not what runs, so it gives no capacity back"
        )
        self.pending_units = pending_units
        self.claim_units = claim_units


class Claimed(NamedTuple):
    """A claim as it stands, or as it would stand; `version` is None where nothing was stored."""

    workload_id: str
    partition_id: str
    demand: Demand
    version: int | None
    notes: tuple[str, ...]


async def claim_from_list(
    connection: Connection,
    tenant_id: str,
    workload_id: str,
    intake: Intake,
    *,
    allow_shrink: bool = False,
    dry_run: bool = False,
) -> Claimed:
    """Make what `intake` counts for the workload its newest claim.

    What a scheduler lists is what waits: with fewer units than the newest claim it is `WouldShrink`, in a
    dry run a note, unless `allow_shrink`. A list without pending work keeps the shapes. An entry that could
    not be read is never taken for an absent one: then, and without an earlier claim, it is `NothingPending`.
    """
    workload = await workloads.find_workload(connection, tenant_id, workload_id)
    if not dry_run:
        # Another claim that is on its way must be in force before it is compared with.
        await workloads.lock_workload(connection, tenant_id, workload_id)
    demand, notes = await _listed(connection, tenant_id, workload_id, intake)
    if not allow_shrink:
        shrinking = await _shrinking(connection, tenant_id, workload_id, intake, demand)
        if shrinking is not None and not dry_run:
            raise shrinking
        if shrinking is not None:
            notes = (*notes, f"{shrinking}; it is refused without allowShrink")
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


async def _listed(
    connection: Connection, tenant_id: str, workload_id: str, intake: Intake
) -> tuple[Demand, tuple[str, ...]]:
    """What waits according to the list, with its notes; 0 units of the known shapes where nothing does."""
    demand = intake.workloads.get(workload_id)
    if demand is not None:
        return demand, intake.notes
    if intake.unreadable:
        raise NothingPending("none of its entries that name this workload could be read")
    # A file of ours states what is wanted: that it does not name a workload says nothing about it.
    nothing = None if intake.source == OWN_FORMAT else await _of_size(connection, tenant_id, workload_id, 0)
    if nothing is None:
        raise NothingPending("nothing in it waits for a node on behalf of this workload")
    return nothing, (*intake.notes, ZERO_NOTE)


async def _shrinking(
    connection: Connection, tenant_id: str, workload_id: str, intake: Intake, demand: Demand
) -> WouldShrink | None:
    """Why the list must not become the newest claim, or None."""
    if intake.source == OWN_FORMAT:
        return None
    in_force = await claims.newest_units(connection, tenant_id, workload_id)
    return WouldShrink(demand.units, in_force) if in_force > demand.units else None


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
