"""What a region offers, promises and charges: Nova, Blazar, and the provider's own rates API.

The rates API belongs to the team that runs the cloud. It names its hosts by host group, one for
each pool, which Nova's aggregates list as their hosts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple

import structlog
from pydantic import Field

from activities.openstack.aggregates import group_of_host, read_aggregates
from activities.openstack.answers import Answer
from activities.openstack.bare_metal import IronicNodes, NodeCount, count_nodes, metal_class
from activities.openstack.flavors import SKU_SPEC, FlavorBook
from activities.openstack.leases import BlazarLeases, active_reservations
from activities.openstack.session import Connections
from activities.openstack.settings import CloudSettings
from activities.ports import Lease, PoolObservation, ProviderError, QuotaState, RegionCatalog
from domain.pool import PurchaseModel

RATE_CARD, FORWARD_CAPACITY, HALLS = "/rate-card", "/forward-capacity", "/halls"
_UNLIMITED = -1
log = structlog.get_logger("catalog")

Price = Annotated[Decimal, Field(ge=0, max_digits=18, decimal_places=6)]
Count = Annotated[int, Field(ge=0)]


class _Place(Answer):
    hall: str
    flavor: str
    purchase_model: PurchaseModel
    host_group: str


class _Rate(_Place):
    price_per_hour: Price
    guaranteed_price_per_hour: Price


class _RateCard(Answer):
    currency: Literal["USD"]
    rates: tuple[_Rate, ...]


class _Capacity(_Place):
    total: Count
    free: Count
    min_free: Count


class _ForwardCapacity(Answer):
    hours: Literal[24]
    capacity: tuple[_Capacity, ...]


class _Hall(Answer):
    hall: str
    status: Literal["up", "lost"]


class _Halls(Answer):
    halls: tuple[_Hall, ...]


class _Room(NamedTuple):
    """Instances of a pool: all, free now, and the least that is free within a day."""

    total: int
    free: int
    min_free: int


class OpenStackCatalog:
    """The port `Catalog`. Safe to share between threads."""

    def __init__(self, settings: CloudSettings, connections: Connections, flavors: FlavorBook) -> None:
        self._rates = settings.rates_service_type
        self._connections = connections
        self._flavors = flavors
        self._leases = BlazarLeases(connections, flavors)
        self._nodes = IronicNodes(connections)

    def catalog(self, region: str) -> RegionCatalog:
        """Flavors, halls and correlation groups of a region, asked for anew."""
        flavors = self._flavors.read(region)
        with self._connections.calling(region, "read the aggregates and the rate card") as client:
            aggregates = read_aggregates(client)
            card = _RateCard.model_validate(client.read(self._rates, RATE_CARD))
        # Nova's own list of zones names one that nobody made as soon as a host is in none.
        halls = sorted({each.hall for each in aggregates if each.hall is not None})
        hosts, group_of = group_of_host(aggregates), {}
        for rate in card.rates:
            flavor, group = flavors.get(rate.flavor), hosts.get(rate.host_group)
            if flavor is not None and group is not None and SKU_SPEC in flavor.facts.extra_specs:
                group_of[rate.hall, flavor.facts.extra_specs[SKU_SPEC]] = group
        facts = sorted((each.facts for each in flavors.values()), key=lambda flavor: flavor.name)
        return RegionCatalog(region, tuple(facts), tuple(halls), group_of)

    def observe(self, region: str) -> Sequence[PoolObservation]:
        """Price and capacity of every pool; one that is not in both answers was not observed.

        Bare metal is counted in nodes instead, where the cloud offers them.
        """
        with self._connections.calling(region, "read the rate card and the forward capacity") as client:
            card = _RateCard.model_validate(client.read(self._rates, RATE_CARD))
            forward = _ForwardCapacity.model_validate(client.read(self._rates, FORWARD_CAPACITY))
        rooms = {each.host_group: _Room(each.total, each.free, each.min_free) for each in forward.capacity}
        counted = self._with_nodes(region, card.rates, rooms)
        return [
            _observation(region, rate, counted[rate.host_group])
            for rate in sorted(card.rates, key=lambda rate: rate.host_group)
            if rate.host_group in counted
        ]

    def _with_nodes(
        self, region: str, rates: Sequence[_Rate], rooms: Mapping[str, _Room]
    ) -> Mapping[str, _Room]:
        """The rooms with those of bare-metal pools counted in nodes.

        When the nodes cannot be read, bare metal was not observed; nothing else suffers.
        """
        metal = self._metal(region, rates)
        if not metal:
            return rooms
        others = {name: room for name, room in rooms.items() if name not in metal}
        try:
            nodes = self._nodes.read(region)
        except ProviderError as error:
            log.warning("bare_metal_not_observed", region=region, pools=len(metal), problem=str(error))
            return others
        if nodes is None:
            return rooms
        counts = count_nodes(nodes)
        for name, place in metal.items():
            found = counts.get(place, NodeCount(0, 0))
            coming = rooms[name].min_free if name in rooms else found.free
            others[name] = _Room(found.total, found.free, min(found.free, coming))
        return others

    def _metal(self, region: str, rates: Sequence[_Rate]) -> dict[str, tuple[str, str]]:
        """Hall and resource class of each host group whose flavor asks for a node."""
        flavors = self._flavors.known(region)
        if any(rate.flavor not in flavors for rate in rates):
            flavors = self._flavors.read(region)
        found = {}
        for rate in rates:
            flavor = flavors.get(rate.flavor)
            wanted = metal_class(flavor.facts.extra_specs) if flavor is not None else None
            if wanted is not None:
                found[rate.host_group] = (rate.hall, wanted)
        return found

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
        return active_reservations(self._leases.read(region))

    def leases(self, region: str) -> Sequence[Lease]:
        """Every lease of our project, by id."""
        return self._leases.read(region)

    def extend_lease(self, region: str, lease_id: str, ends_at: datetime) -> None:
        """Let a lease end at `ends_at`; one that ends then or later is left as it is."""
        self._leases.extend(region, lease_id, ends_at)


def _observation(region: str, rate: _Rate, room: _Room) -> PoolObservation:
    return PoolObservation(
        region=region,
        hall=rate.hall,
        flavor=rate.flavor,
        purchase_model=str(rate.purchase_model),
        total_instances=room.total,
        free_instances=room.free,
        free_24h_instances=room.min_free,
        price_per_hour_usd=str(rate.price_per_hour),
        guaranteed_price_per_hour_usd=str(rate.guaranteed_price_per_hour),
    )


def _limit(value: Any) -> int | None:
    return None if int(value) == _UNLIMITED else int(value)
