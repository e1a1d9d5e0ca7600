"""What a workload holds, added up by correlation group and hall against the caps of its claim."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import sqlalchemy as sa

from api.shapes import View
from domain.claim import Demand
from domain.ids import shape_key
from domain.placement.caps import Caps
from domain.pool import PurchaseModel

MILLI = 1000
MIB_PER_GIB = 1024
FOUR_PLACES = Decimal("0.0001")


class FleetRow(View):
    """What one pool holds for one shape. `share` is of the whole claim; `targetInstances` is the plan."""

    pool_id: str
    region: str
    hall: str
    group_id: str
    purchase_model: PurchaseModel
    shape: str
    units: int
    share: Decimal
    instances: int
    target_instances: int
    units_per_instance: int
    price_per_hour_usd: Decimal


class GroupRow(View):
    """Reclaimable units in one correlation group, against its cap."""

    group_id: str
    hall: str
    units: int
    share: Decimal
    cap_units: int


class HallRow(View):
    """Units in one hall. `capUnits` is what reclaimable units are spread within where pools allow it."""

    hall: str
    units: int
    share: Decimal
    cap_units: int
    reclaimable_units: int
    committed_units: int


class Waste(View):
    """What instances have beyond what their units ask for; `share` is of their vCPUs."""

    vcpu: float
    memory_gib: float
    share: Decimal


def share_of(units: int, whole: int) -> Decimal:
    """A share to four places; nothing of nothing is 0."""
    return (Decimal(units) / whole if whole else Decimal(0)).quantize(FOUR_PLACES)


def fleet_rows(fleet: Sequence[sa.RowMapping], whole: int) -> list[FleetRow]:
    """One row per pool and shape, as stored."""
    return [
        FleetRow(
            pool_id=row["pool_id"],
            region=row["region"],
            hall=row["hall"],
            group_id=row["group_id"],
            purchase_model=row["purchase_model"],
            shape=row["shape_key"],
            units=row["units"],
            share=share_of(row["units"], whole),
            instances=row["instances"],
            target_instances=row["target_instances"],
            units_per_instance=row["units_per_instance"],
            price_per_hour_usd=row["price_per_hour_usd"],
        )
        for row in fleet
    ]


def group_rows(rows: Sequence[FleetRow], caps: Caps) -> list[GroupRow]:
    """Correlation groups with reclaimable units, fullest first."""
    units: dict[tuple[str, str], int] = {}
    for row in rows:
        if row.purchase_model is PurchaseModel.RECLAIMABLE:
            units[row.group_id, row.hall] = units.get((row.group_id, row.hall), 0) + row.units
    ordered = sorted(units.items(), key=lambda one: (-one[1], one[0]))
    return [
        GroupRow(
            group_id=group_id,
            hall=hall,
            units=count,
            share=share_of(count, caps.units),
            cap_units=caps.group_units,
        )
        for (group_id, hall), count in ordered
    ]


def hall_rows(rows: Sequence[FleetRow], caps: Caps) -> list[HallRow]:
    """Halls in the order of their names."""
    by_hall: dict[str, dict[PurchaseModel, int]] = {}
    for row in rows:
        of_hall = by_hall.setdefault(row.hall, {})
        of_hall[row.purchase_model] = of_hall.get(row.purchase_model, 0) + row.units
    return [
        HallRow(
            hall=hall,
            units=sum(of_hall.values()),
            share=share_of(sum(of_hall.values()), caps.units),
            cap_units=caps.hall_units,
            reclaimable_units=of_hall.get(PurchaseModel.RECLAIMABLE, 0),
            committed_units=of_hall.get(PurchaseModel.COMMITTED, 0),
        )
        for hall, of_hall in sorted(by_hall.items())
    ]


def waste_of(fleet: Sequence[sa.RowMapping], demand: Demand) -> Waste:
    """What instances have beyond their units. Units of shapes that the claim has no more count as none."""
    shapes = {shape_key(group.shape): group.shape for group in demand.shapes}
    has_vcpu_milli = has_ram_mib = used_vcpu_milli = used_ram_mib = 0
    for row in fleet:
        has_vcpu_milli += row["instances"] * row["cpu_cores"] * MILLI
        has_ram_mib += row["instances"] * row["ram_gb"] * MIB_PER_GIB
        shape = shapes.get(row["shape_key"])
        if shape is not None:
            units = min(row["units"], row["instances"] * row["units_per_instance"])
            used_vcpu_milli += units * shape.vcpu_milli
            used_ram_mib += units * shape.ram_mib
    return Waste(
        vcpu=(has_vcpu_milli - used_vcpu_milli) / MILLI,
        memory_gib=(has_ram_mib - used_ram_mib) / MIB_PER_GIB,
        share=share_of(has_vcpu_milli - used_vcpu_milli, has_vcpu_milli),
    )
