"""Booking leases on the simulated cloud, and launching on them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from lab.cloud.server import CloudHandle
from tests.lab.cloud_support import HALL, flavor_id, post_server

GROUP = f"{HALL}-gp-l-committed"


def at(cloud: CloudHandle, **later: float) -> str:
    moment = datetime.fromisoformat(cloud.admin.clock()["now"]) + timedelta(**later)
    return moment.strftime("%Y-%m-%d %H:%M")


def leases(connection: Any) -> dict[str, Any]:
    return {lease["name"]: lease for lease in connection.reservation.get("/leases").json()["leases"]}


def book(cloud: CloudHandle, connection: Any, **wanted: Any) -> Any:
    reservation = {
        "resource_type": "flavor:instance",
        "amount": 2,
        "flavor_id": flavor_id(connection, "gp.l"),
        "affinity": None,
        "resource_properties": f'["==", "$availability_zone", "{HALL}"]',
        **wanted.pop("reservation", {}),
    }
    body = {
        "name": "extra",
        "start_date": "now",
        "end_date": at(cloud, hours=2),
        "reservations": [reservation],
        "events": [],
        **wanted,
    }
    return connection.reservation.post("/leases", json=body)


def committed(connection: Any, reservation_id: str, count: int, **wanted: Any) -> Any:
    wanted = {"flavorRef": reservation_id, "min_count": count, "max_count": count, **wanted}
    return post_server(connection, **wanted)


def reserved_flavors(connection: Any) -> dict[str, Any]:
    """What the project sees of the flavors that Blazar made."""
    return {flavor.id: flavor for flavor in connection.compute.flavors() if not flavor.is_public}
