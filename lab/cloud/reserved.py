"""The private flavor that Blazar makes for each reservation: only its servers are on the lease."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson

from lab.cloud.estate import Flavor
from lab.cloud.leases import LeaseBook, LeaseStatus, Reservation

BY_FLAVOR, BY_SIZE = "flavor:instance", "virtual:instance"


def reserved_flavor(reservation: Reservation, source: Flavor) -> Flavor:
    """The flavor of a reservation on hosts for `source`, whose demands it repeats if made by flavor."""
    marks = {
        "aggregate_instance_extra_specs:reservation": reservation.id,
        f"resources:CUSTOM_RESERVATION_{reservation.id.upper().replace('-', '_')}": "1",
    }
    by_flavor = reservation.resource_type == BY_FLAVOR
    return replace(
        source,
        id=reservation.id,
        name=f"reservation:{reservation.id}",
        ephemeral_gib=source.ephemeral_gib if by_flavor else 0,
        extra_specs={**source.extra_specs, **marks} if by_flavor else marks,
        reservation_id=reservation.id,
    )


def shown_by_blazar(reservation: Reservation, source: Flavor) -> dict[str, Any]:
    """How Blazar tells of it: what it was made from is found in its properties, not in `flavor_id`."""
    if reservation.resource_type != BY_FLAVOR:
        return {"flavor_id": reservation.id}
    made_from = {
        "id": source.id,
        "name": source.name,
        "vcpus": source.vcpus,
        "ram": source.ram_mib,
        "disk": source.disk_gib,
        "OS-FLV-EXT-DATA:ephemeral": source.ephemeral_gib,
        "extra_specs": source.extra_specs,
    }
    return {
        "flavor_id": reservation.id,
        "vcpus": source.vcpus,
        "memory_mb": source.ram_mib,
        "disk_gb": source.disk_gib,
        "affinity": None,
        "resource_properties": orjson.dumps(made_from).decode(),
    }


def is_offered(leases: LeaseBook, flavor: Flavor, project_id: str) -> bool:
    """Whether a project may use a flavor: a reservation's only while its own lease is active."""
    if flavor.reservation_id is None:
        return True
    found = leases.reservation(flavor.reservation_id)
    return found is not None and found[0].status is LeaseStatus.ACTIVE and found[0].project_id == project_id
