"""What a region offers, promises and charges: Nova, Blazar, and the provider's own rates API.

The rates API belongs to the team that runs the cloud. It names its hosts by host group, one for
each pool, which Nova's aggregates list as their hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from activities.openstack.flavors import SKU_SPEC, FlavorBook
from activities.openstack.session import Connections
from activities.openstack.settings import CloudSettings
from activities.ports import PoolObservation, QuotaState, RegionCatalog
from domain.pool import PurchaseModel

RESERVATION_SERVICE = "reservation"
RATE_CARD, FORWARD_CAPACITY, HALLS = "/rate-card", "/forward-capacity", "/halls"
GROUP_KEY = "sco:group"
_UNLIMITED = -1

Price = Annotated[Decimal, Field(ge=0, max_digits=18, decimal_places=6)]
Count = Annotated[int, Field(ge=0)]


class _Answer(BaseModel):
    """A part of an answer that we read; what we do not read may change."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Place(_Answer):
    hall: str
    flavor: str
    purchase_model: PurchaseModel
    host_group: str


class _Rate(_Place):
    price_per_hour: Price
    guaranteed_price_per_hour: Price


class _RateCard(_Answer):
    currency: Literal["USD"]
    rates: tuple[_Rate, ...]


class _Capacity(_Place):
    total: Count
    free: Count
    min_free: Count


class _ForwardCapacity(_Answer):
    hours: Literal[24]
    capacity: tuple[_Capacity, ...]


class _Hall(_Answer):
    hall: str
    status: Literal["up", "lost"]


class _Halls(_Answer):
    halls: tuple[_Hall, ...]


class _Reservation(_Answer):
    id: str
    status: str
    host_group: str | None = None
    flavor_id: str | None = None


class _Lease(_Answer):
    status: str
    end_date: str
    reservations: tuple[_Reservation, ...]


class _Leases(_Answer):
    leases: tuple[_Lease, ...]


@dataclass(frozen=True, slots=True)
class _Aggregate:
    """A Nova aggregate: the correlation group of its hosts, and the hall they stand in."""

    group: str
    hall: str
    hosts: frozenset[str]


class OpenStackCatalog:
    """The port `Catalog`. Safe to share between threads."""

    def __init__(self, settings: CloudSettings, connections: Connections, flavors: FlavorBook) -> None:
        self._rates = settings.rates_service_type
        self._connections = connections
        self._flavors = flavors

    def catalog(self, region: str) -> RegionCatalog:
        """Flavors, halls and correlation groups of a region, asked for anew."""
        flavors = self._flavors.read(region)
        with self._connections.calling(region, "read the aggregates, halls and rate card") as client:
            aggregates = _aggregates(client.connection.compute.aggregates())
            halls = sorted(each.name for each in client.connection.compute.availability_zones())
            card = _RateCard.model_validate(client.read(self._rates, RATE_CARD))
        group_of_host = {host: each.group for each in aggregates for host in sorted(each.hosts)}
        group_of = {}
        for rate in card.rates:
            flavor, group = flavors.get(rate.flavor), group_of_host.get(rate.host_group)
            if flavor is not None and group is not None and SKU_SPEC in flavor.facts.extra_specs:
                group_of[rate.hall, flavor.facts.extra_specs[SKU_SPEC]] = group
        facts = sorted((each.facts for each in flavors.values()), key=lambda flavor: flavor.name)
        return RegionCatalog(region, tuple(facts), tuple(halls), group_of)

    def observe(self, region: str) -> Sequence[PoolObservation]:
        """Price and capacity of every pool; one that is not in both answers was not observed."""
        with self._connections.calling(region, "read the rate card and the forward capacity") as client:
            card = _RateCard.model_validate(client.read(self._rates, RATE_CARD))
            forward = _ForwardCapacity.model_validate(client.read(self._rates, FORWARD_CAPACITY))
        capacity = {each.host_group: each for each in forward.capacity}
        return [
            _observation(region, rate, capacity[rate.host_group])
            for rate in sorted(card.rates, key=lambda rate: rate.host_group)
            if rate.host_group in capacity
        ]

    def quota(self, region: str) -> QuotaState:
        """Limits and use of our project, building and errored servers included."""
        with self._connections.calling(region, "read the quota") as client:
            found = client.connection.compute.get_limits().absolute
            return QuotaState(
                cores_limit=_limit(found.total_cores),
                cores_used=int(found.total_cores_used),
                ram_mib_limit=_limit(found.total_ram),
                ram_mib_used=int(found.total_ram_used),
                instances_limit=_limit(found.instances),
                instances_used=int(found.instances_used),
            )

    def lost_halls(self, region: str) -> frozenset[str]:
        """Halls that the provider declares lost.

        A zone that Nova calls unavailable is not enough: that is also how a broken control plane
        looks while every server runs.
        """
        with self._connections.calling(region, "read the state of the halls") as client:
            answer = _Halls.model_validate(client.read(self._rates, HALLS))
        return frozenset(each.hall for each in answer.halls if each.status == "lost")

    def committed_reservations(self, region: str) -> dict[tuple[str, str], str]:
        """Reservation ids of active leases by (hall, flavor); of several the one that lasts longest."""
        names = {flavor.flavor_id: name for name, flavor in self._flavors.known(region).items()}
        with self._connections.calling(region, "read the leases") as client:
            answer = _Leases.model_validate(client.read(RESERVATION_SERVICE, "/leases"))
            aggregates = _aggregates(client.connection.compute.aggregates())
        hall_of_host = {host: each.hall for each in aggregates for host in each.hosts}
        active = [
            (lease.end_date, reservation.id, reservation)
            for lease in answer.leases
            if lease.status == "ACTIVE"
            for reservation in lease.reservations
            if reservation.status == "active"
        ]
        found = {}
        for _, reservation_id, reservation in sorted(active, key=lambda each: each[:2]):
            hall, flavor = (
                hall_of_host.get(reservation.host_group or ""),
                names.get(reservation.flavor_id or ""),
            )
            if hall is not None and flavor is not None:
                found[hall, flavor] = reservation_id
        return found


def _aggregates(listed: Any) -> list[_Aggregate]:
    """Aggregates that stand for a correlation group, by name; others group hosts for other reasons."""
    return [
        _Aggregate(each.metadata[GROUP_KEY], str(each.availability_zone), frozenset(each.hosts or ()))
        for each in sorted(listed, key=lambda aggregate: str(aggregate.name))
        if GROUP_KEY in (each.metadata or {})
    ]


def _observation(region: str, rate: _Rate, capacity: _Capacity) -> PoolObservation:
    return PoolObservation(
        region=region,
        hall=rate.hall,
        flavor=rate.flavor,
        purchase_model=str(rate.purchase_model),
        total_instances=capacity.total,
        free_instances=capacity.free,
        free_24h_instances=capacity.min_free,
        price_per_hour_usd=str(rate.price_per_hour),
        guaranteed_price_per_hour_usd=str(rate.guaranteed_price_per_hour),
    )


def _limit(value: Any) -> int | None:
    return None if int(value) == _UNLIMITED else int(value)
