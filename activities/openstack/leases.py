"""Leases of committed capacity, through Blazar.

Blazar counts in whole minutes of UTC, and says "not enough hosts" as HTTP 500. What a reservation holds is
told in different ways: `flavor:instance` repeats the flavor it was made from in its properties and gives the
id of a private copy, `virtual:instance` gives a size and an expression such as
`["==", "$availability_zone", "eu-north-h1"]`. Where nothing names the hall, the hosts do: Blazar puts them
into an aggregate named after the reservation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from activities.errors import NO_VALID_HOST_TEXT
from activities.openstack.aggregates import Aggregate, hall_of_host, read_aggregates
from activities.openstack.answers import Answer
from activities.openstack.flavors import SKU_SPEC, Flavor, FlavorBook
from activities.openstack.session import Connections
from activities.ports import Lease, LeasedCapacity, ProviderError, ProviderErrorKind
from domain.pool import PurchaseModel

RESERVATION_SERVICE = "reservation"
END_FORMAT = "%Y-%m-%d %H:%M"
ACTIVE_LEASE, ACTIVE_RESERVATION = "ACTIVE", "active"
HALL_PROPERTY, SKU_PROPERTY = "availability_zone", "sku"
MODEL_SPEC = "sco:purchase_model"


class _Reservation(Answer):
    id: str
    status: str
    amount: int = 0
    host_group: str | None = None
    flavor_id: str | None = None
    vcpus: int | None = None
    memory_mb: int | None = None
    resource_properties: Any = None


class _Lease(Answer):
    id: str
    name: str
    status: str
    end_date: datetime
    project_id: str | None = None
    reservations: tuple[_Reservation, ...] = ()

    @property
    def ends_at(self) -> datetime:
        return self.end_date if self.end_date.tzinfo is not None else self.end_date.replace(tzinfo=UTC)


class _Leases(Answer):
    leases: tuple[_Lease, ...]


class _OneLease(Answer):
    lease: _Lease


class BlazarLeases:
    """The leases of our project in every region. Safe to share between threads."""

    def __init__(self, connections: Connections, flavors: FlavorBook) -> None:
        self._connections = connections
        self._flavors = flavors

    def read(self, region: str) -> list[Lease]:
        """Every lease of our project, by id. To an administrator Blazar lists those of all projects."""
        flavors = self._flavors.known(region)
        with self._connections.calling(region, "read the leases") as client:
            own = client.session.get_project_id()
            answer = _Leases.model_validate(client.read(RESERVATION_SERVICE, "/leases"))
            places = _Places(flavors, read_aggregates(client))
        return [
            Lease(
                lease_id=lease.id,
                name=lease.name,
                status=lease.status,
                ends_at=lease.ends_at,
                reservations=tuple(places.capacity(each) for each in lease.reservations),
            )
            for lease in sorted(answer.leases, key=lambda lease: lease.id)
            if lease.project_id in (None, own)
        ]

    def extend(self, region: str, lease_id: str, ends_at: datetime) -> None:
        """Let a lease end at `ends_at`. It is read first, so that a repeated call cannot shorten it."""
        if ends_at.tzinfo is None or ends_at.second or ends_at.microsecond:
            raise ProviderError(
                ProviderErrorKind.BAD_REQUEST,
                f"{region}: lease {lease_id} was not extended: {ends_at} is no whole minute with a time zone",
            )
        path = f"/leases/{quote(lease_id, safe='')}"
        where = {"service_type": RESERVATION_SERVICE, "interface": "public", "region_name": region}
        wanted = ends_at.astimezone(UTC).strftime(END_FORMAT)
        try:
            with self._connections.calling(region, f"extend lease {lease_id} to {wanted} UTC") as client:
                found = _OneLease.model_validate(client.read(RESERVATION_SERVICE, path))
                if found.lease.ends_at < ends_at:
                    client.session.put(path, endpoint_filter=where, json={"end_date": wanted})
        except ProviderError as error:
            if NO_VALID_HOST_TEXT.search(str(error)):
                raise ProviderError(ProviderErrorKind.NO_VALID_HOST, str(error)) from error
            raise


def active_reservations(leases: Sequence[Lease]) -> dict[tuple[str, str], str]:
    """Reservation ids of active leases by (hall, flavor); of several the one that lasts longest."""
    active = [
        (lease.ends_at, each.reservation_id, each)
        for lease in leases
        if lease.status == ACTIVE_LEASE
        for each in lease.reservations
        if each.status == ACTIVE_RESERVATION
    ]
    return {
        (each.hall, each.flavor): each.reservation_id
        for _, _, each in sorted(active, key=lambda one: one[:2])
        if each.hall is not None and each.flavor is not None
    }


@dataclass(frozen=True, slots=True)
class _Places:
    """What the hall and the flavor of a reservation are told by."""

    flavors: Mapping[str, Flavor]
    aggregates: Sequence[Aggregate]

    def capacity(self, reservation: _Reservation) -> LeasedCapacity:
        properties = _parsed(reservation.resource_properties)
        named = dict(_equalities(properties))
        return LeasedCapacity(
            reservation_id=reservation.id,
            status=reservation.status,
            hall=self._hall(reservation, named),
            flavor=self._flavor(reservation, properties, named),
            amount=reservation.amount,
        )

    def _hall(self, reservation: _Reservation, named: Mapping[str, str]) -> str | None:
        """The one hall that the host group, the expression or the reserved hosts name."""
        halls = hall_of_host(self.aggregates)
        if reservation.host_group in halls:
            return halls[reservation.host_group]
        if HALL_PROPERTY in named:
            return named[HALL_PROPERTY]
        reserved = [each.hosts for each in self.aggregates if each.name == reservation.id]
        found = {halls[host] for hosts in reserved for host in hosts if host in halls}
        return found.pop() if len(found) == 1 else None

    def _flavor(self, reservation: _Reservation, properties: object, named: Mapping[str, str]) -> str | None:
        """The flavor it was made from, or the only one of its size and family."""
        by_id = {each.flavor_id: name for name, each in self.flavors.items()}
        source = properties if isinstance(properties, dict) else {}
        for flavor_id in (source.get("id"), reservation.flavor_id):
            if flavor_id in by_id:
                return by_id[flavor_id]
        fitting = [
            name
            for name, each in sorted(self.flavors.items())
            if (each.facts.vcpus, each.facts.ram_mib) == (reservation.vcpus, reservation.memory_mb)
            and each.facts.extra_specs.get(MODEL_SPEC) != PurchaseModel.RECLAIMABLE
            and named.get(SKU_PROPERTY) in (None, each.facts.extra_specs.get(SKU_SPEC))
        ]
        return fitting[0] if len(fitting) == 1 else None


def _parsed(properties: object) -> object:
    """Properties come as JSON in a text. What cannot be read tells nothing."""
    if not isinstance(properties, str):
        return properties
    try:
        return json.loads(properties)
    except ValueError:
        return None


def _equalities(expression: object) -> Iterator[tuple[str, str]]:
    """What an expression demands outright: `["==", "$name", "value"]`, alone or below `and`."""
    match expression:
        case ["and", *parts]:
            for part in parts:
                yield from _equalities(part)
        case ["==" | "=", str(name), str(value)] if name.startswith("$"):
            yield name[1:], value
