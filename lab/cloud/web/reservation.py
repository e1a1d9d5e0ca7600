"""Blazar v1: leases with `flavor:instance` and `virtual:instance` reservations, and the calendar."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lab.cloud.errors import CloudError
from lab.cloud.estate import stable_id
from lab.cloud.lease_desk import create_lease, update_lease
from lab.cloud.leases import Lease, LeaseStatus, Reservation
from lab.cloud.region import Region
from lab.cloud.reserved import shown_by_blazar
from lab.cloud.web.respond import Handler, blazar_error, body_of, json, route

_RESERVATION_STATUS = {
    LeaseStatus.PENDING: "pending",
    LeaseStatus.ACTIVE: "active",
    LeaseStatus.TERMINATED: "deleted",
}


@dataclass(frozen=True, slots=True)
class ReservationApi:
    """The leases of one region. `url` is the address of version 1."""

    region: Region
    url: str

    def routes(self) -> list[BaseRoute]:
        one = "/v1/leases/{lease_id}"
        table: tuple[tuple[str, Handler, str], ...] = (
            ("/", self.versions, "GET"),
            ("/v1", self.versions, "GET"),
            ("/v1/", self.versions, "GET"),
            ("/v1/leases", self.list_leases, "GET"),
            ("/v1/leases", self.create, "POST"),
            (one, self.show, "GET"),
            (one, self.update, "PUT"),
            (one, self.delete, "DELETE"),
            ("/v1/os-hosts", self.list_hosts, "GET"),
            ("/v1/os-hosts/allocations", self.list_allocations, "GET"),
        )
        return [route(path, handler, method, blazar_error) for path, handler, method in table]

    def versions(self, request: Request) -> Response:
        version = {
            "id": "v1.0",
            "status": "CURRENT",
            "links": [{"href": self.url, "rel": "self"}],
            "min_version": "1.0",
            "max_version": "1.0",
        }
        return json({"versions": [version]}, 300)

    def list_leases(self, request: Request) -> Response:
        return json({"leases": [_lease(self.region, lease) for lease in self.region.leases.all()]})

    def create(self, request: Request) -> Response:
        return json({"lease": _lease(self.region, create_lease(self.region, body_of(request)))}, 201)

    def show(self, request: Request) -> Response:
        return json({"lease": _lease(self.region, self._lease(request))})

    def update(self, request: Request) -> Response:
        lease = self._lease(request)
        update_lease(self.region, lease, body_of(request))
        return json({"lease": _lease(self.region, lease)})

    def delete(self, request: Request) -> Response:
        self.region.drop_lease(self._lease(request))
        return Response(status_code=204)

    def list_hosts(self, request: Request) -> Response:
        """The hosts that can be leased: one entry for each committed host group."""
        hosts = [
            {
                "id": group.id,
                "hypervisor_hostname": group.name,
                "availability_zone": group.plan.hall,
                "vcpus": group.reservable * group.flavor.vcpus,
                "memory_mb": group.reservable * group.flavor.ram_mib,
                "local_gb": group.reservable * group.flavor.disk_gib,
                "reservable": group.plan.hall not in self.region.lost_halls,
                "disabled": False,
                "sku": group.plan.sku,
                "instances": group.reservable,
            }
            for group in self.region.committed_groups()
        ]
        return json({"hosts": hosts})

    def list_allocations(self, request: Request) -> Response:
        """The calendar: which reservation holds which host, from when to when."""
        return json(
            {
                "allocations": [
                    {
                        "resource_id": group.id,
                        "reservations": [
                            _allocation(lease, reservation)
                            for lease in self.region.leases.all()
                            for reservation in lease.reservations
                            if reservation.group == group.name and lease.status is not LeaseStatus.TERMINATED
                        ],
                    }
                    for group in self.region.committed_groups()
                ]
            }
        )

    def _lease(self, request: Request) -> Lease:
        lease = self.region.leases.get(request.path_params["lease_id"])
        if lease is None:
            raise CloudError(404, f"Object with lease_id: {request.path_params['lease_id']} not found")
        return lease


def _lease(region: Region, lease: Lease) -> dict[str, Any]:
    return {
        "id": lease.id,
        "name": lease.name,
        "start_date": _precise(lease.start_at),
        "end_date": _precise(lease.end_at),
        "status": str(lease.status),
        "degraded": False,
        "user_id": lease.user_id,
        "project_id": lease.project_id,
        "trust_id": stable_id("trust", lease.id).replace("-", ""),
        "created_at": _plain(lease.created_at),
        "updated_at": _plain(lease.updated_at),
        "reservations": [_reservation(region, lease, each) for each in lease.reservations],
        "events": _events(lease),
    }


def _reservation(region: Region, lease: Lease, reservation: Reservation) -> dict[str, Any]:
    return {
        **reservation.asked,
        **shown_by_blazar(reservation, region.groups[reservation.group].flavor),
        "id": reservation.id,
        "lease_id": lease.id,
        "status": _RESERVATION_STATUS[lease.status],
        "missing_resources": False,
        "resources_changed": False,
        "resource_id": stable_id("resource", reservation.id),
        "resource_type": reservation.resource_type,
        "amount": reservation.amount,
        "host_group": reservation.group,
        "created_at": _plain(lease.created_at),
        "updated_at": _plain(lease.updated_at),
    }


def _events(lease: Lease) -> list[dict[str, Any]]:
    done = {
        "start_lease": lease.status is not LeaseStatus.PENDING,
        "before_end_lease": lease.status is LeaseStatus.TERMINATED,
        "end_lease": lease.status is LeaseStatus.TERMINATED,
    }
    times = {
        "start_lease": lease.start_at,
        "before_end_lease": lease.before_end_at,
        "end_lease": lease.end_at,
    }
    return [
        {
            "id": stable_id("event", lease.id, kind),
            "lease_id": lease.id,
            "event_type": kind,
            "time": _precise(time),
            "status": "DONE" if done[kind] else "UNDONE",
            "created_at": _plain(lease.created_at),
            "updated_at": _plain(lease.updated_at),
        }
        for kind, time in times.items()
        if time is not None
    ]


def _allocation(lease: Lease, reservation: Reservation) -> dict[str, Any]:
    return {
        "id": reservation.id,
        "lease_id": lease.id,
        "amount": reservation.amount,
        "start_date": _precise(lease.start_at),
        "end_date": _precise(lease.end_at),
    }


def _precise(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")


def _plain(moment: datetime | None) -> str | None:
    return moment.strftime("%Y-%m-%d %H:%M:%S") if moment is not None else None
