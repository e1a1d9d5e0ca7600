"""Booking, changing and ending leases, with Blazar's rules and words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from domain.pool import PurchaseModel
from lab.cloud.capacity import HostGroup
from lab.cloud.errors import CloudError
from lab.cloud.identity import PROJECT_ID, USER_ID
from lab.cloud.leases import Lease, LeaseStatus, Reservation
from lab.cloud.region import Region
from lab.cloud.reserved import BY_FLAVOR, BY_SIZE

DATE_FORMAT = "%Y-%m-%d %H:%M"
BEFORE_END = timedelta(hours=1)
NOT_ENOUGH = "Not enough hosts available"
_TYPES = (BY_FLAVOR, BY_SIZE)


def create_lease(region: Region, asked: dict[str, Any]) -> Lease:
    """Book a lease; 400 for bad input, 409 for a taken name, 500 when there are too few hosts."""
    for name in ("name", "start_date", "end_date"):
        if name not in asked:
            raise CloudError(400, f"Missing parameter {name}")
    now = this_minute(region)
    start = now if asked["start_date"] == "now" else _date(asked["start_date"])
    end = _date(asked["end_date"])
    if start < now:
        raise CloudError(400, "Start date must be later than current date")
    if end <= start:
        raise CloudError(400, "End date must be later than start date.")
    if any(lease.name == asked["name"] for lease in region.leases.all()):
        raise CloudError(409, f"The lease with name: {asked['name']} already exists")
    reservations = [_reservation(region, each, start, end) for each in asked.get("reservations") or []]
    lease = Lease(
        id=region.new_id(),
        name=str(asked["name"]),
        project_id=PROJECT_ID,
        user_id=USER_ID,
        start_at=start,
        end_at=end,
        created_at=region.now(),
        before_end_at=_date(asked["before_end_date"]) if asked.get("before_end_date") else end - BEFORE_END,
        reservations=reservations,
    )
    _check_room(region, lease)
    region.book(lease)
    region.settle()
    return lease


def update_lease(region: Region, lease: Lease, asked: dict[str, Any]) -> None:
    """Rename, prolong, shorten or resize a lease; nothing changes when any part is refused."""
    now = this_minute(region)
    start = _date(asked["start_date"]) if "start_date" in asked else lease.start_at
    end = _date(asked["end_date"]) if "end_date" in asked else lease.end_at
    amounts = _new_amounts(lease, asked)
    if set(asked) - {"name"}:
        _check_dates(lease, start, end, now)
        changed = [
            Reservation(each.id, each.group, each.resource_type, amounts[each.id])
            for each in lease.reservations
        ]
        if region.leases.full and end > lease.end_at:
            raise CloudError(500, NOT_ENOUGH)
        _check_room(
            region, Lease(**{**_booking(lease), "start_at": start, "end_at": end, "reservations": changed})
        )
    lease.name = str(asked.get("name", lease.name))
    lease.start_at, lease.end_at, lease.updated_at = start, end, region.now()
    lease.before_end_at = end - BEFORE_END
    for reservation in lease.reservations:
        reservation.amount = amounts[reservation.id]
    region.watch_lease(lease)
    region.refit(lease)


def this_minute(region: Region) -> datetime:
    """Blazar counts in whole minutes."""
    return region.now().replace(second=0, microsecond=0)


def _booking(lease: Lease) -> dict[str, Any]:
    return {
        "id": lease.id,
        "name": lease.name,
        "project_id": lease.project_id,
        "user_id": lease.user_id,
        "created_at": lease.created_at,
    }


def _check_dates(lease: Lease, start: datetime, end: datetime, now: datetime) -> None:
    if lease.status is LeaseStatus.TERMINATED:
        raise CloudError(400, "Terminated leases can only be renamed")
    if lease.status is LeaseStatus.ACTIVE and start != lease.start_at:
        raise CloudError(400, "Cannot modify the start date of already started leases")
    if lease.status is LeaseStatus.PENDING and start < now:
        raise CloudError(400, "Start date must be later than current date")
    if end < now or end < start:
        raise CloudError(400, "End date must be later than current and start date")


def _new_amounts(lease: Lease, asked: dict[str, Any]) -> dict[str, int]:
    amounts = {each.id: each.amount for each in lease.reservations}
    used = {each.id: each.used for each in lease.reservations}
    for change in asked.get("reservations") or []:
        reservation_id = change.get("id") if isinstance(change, dict) else None
        if reservation_id is None:
            raise CloudError(400, "Missing parameter reservation ID")
        if reservation_id not in amounts:
            raise CloudError(
                400,
                f"Please enter valid reservation IDs. Invalid reservation IDs are: {reservation_id}",
            )
        amounts[reservation_id] = _amount(change.get("amount", amounts[reservation_id]))
        if amounts[reservation_id] < used[reservation_id]:
            raise CloudError(409, "amount cannot be updated")
    return amounts


def _reservation(region: Region, asked: dict[str, Any], start: datetime, end: datetime) -> Reservation:
    kind = asked.get("resource_type")
    if kind is None:
        raise CloudError(400, "Missing parameter resource_type")
    if kind not in _TYPES:
        raise CloudError(400, f"The {kind} resource type is not supported")
    wanted = ("amount", "flavor_id") if kind == BY_FLAVOR else ("amount", "vcpus", "memory_mb")
    missing = [name for name in wanted if name not in asked]
    if missing:
        raise CloudError(400, f"Missing parameter {','.join(missing)}")
    amount = _amount(asked["amount"])
    group = _group(region, asked, amount, start, end)
    shown = {name: value for name, value in asked.items() if name not in ("amount", "resource_type")}
    return Reservation(region.new_id(), group.name, str(kind), amount, shown)


def _amount(value: object) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | str)
        or not str(value).isdigit()
        or int(value) < 1
    ):
        raise CloudError(400, f"Malformed parameter amount: {value!r} is not an integer of at least 1")
    return int(value)


def _group(region: Region, asked: dict[str, Any], amount: int, start: datetime, end: datetime) -> HostGroup:
    """The committed host group that serves a reservation: the roomiest one that fits what is asked."""
    properties = _properties(asked.get("resource_properties"))
    fitting = [
        group
        for group in region.groups.values()
        if group.plan.purchase_model is PurchaseModel.COMMITTED
        and properties.get("availability_zone") in (None, group.plan.hall)
        and properties.get("sku") in (None, group.plan.sku)
        and _is_size(asked, group)
    ]
    room = {each.name: each.reservable - region.leases.peak_amount(each.name, start, end) for each in fitting}
    best = max(fitting, key=lambda each: (room[each.name], each.name), default=None)
    if best is None or room[best.name] < amount:
        raise CloudError(500, NOT_ENOUGH)
    return best


def _is_size(asked: dict[str, Any], group: HostGroup) -> bool:
    if asked["resource_type"] == BY_FLAVOR:
        return bool(asked["flavor_id"] == group.flavor.id)
    return bool(asked["vcpus"] == group.flavor.vcpus and asked["memory_mb"] == group.flavor.ram_mib)


def _properties(expression: object) -> dict[str, str]:
    """The equalities of a Blazar expression such as `["==", "$availability_zone", "eu-north-h1"]`."""
    if expression in (None, ""):
        return {}
    try:
        return dict(_equalities(orjson.loads(expression) if isinstance(expression, str) else expression))
    except (orjson.JSONDecodeError, ValueError) as error:
        raise CloudError(400, f"Malformed requirements {expression}") from error


def _equalities(node: object) -> list[tuple[str, str]]:
    match node:
        case ["and", *parts]:
            return [pair for part in parts for pair in _equalities(part)]
        case ["==" | "=", str(name), str(value)] if name.startswith("$"):
            return [(name[1:], value)]
    raise ValueError(f"unsupported expression {node!r}")


def _check_room(region: Region, lease: Lease) -> None:
    """Refuse a lease that would take more of a group than it can hold, at any time."""
    for name in {each.group for each in lease.reservations}:
        wanted = sum(each.amount for each in lease.reservations if each.group == name)
        taken = region.leases.peak_amount(name, lease.start_at, lease.end_at, without=[lease.id])
        if taken + wanted > region.groups[name].reservable:
            raise CloudError(500, NOT_ENOUGH)


def _date(text: object) -> datetime:
    try:
        return datetime.strptime(str(text), DATE_FORMAT).replace(tzinfo=UTC)
    except ValueError as error:
        raise CloudError(400, f"{text} is an invalid date. Required format: {DATE_FORMAT}") from error
