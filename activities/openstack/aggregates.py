"""Nova's aggregates: the correlation groups of hosts, and the halls that they stand in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from activities.openstack.session import RegionClient

GROUP_KEY = "sco:group"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate. `group` and `hall` are None where it groups hosts for another reason."""

    name: str
    group: str | None
    hall: str | None
    hosts: frozenset[str]


def read_aggregates(client: RegionClient) -> list[Aggregate]:
    """Every aggregate of the region, by name."""
    listed = client.connection.compute.aggregates()
    return [
        Aggregate(
            name=str(each.name),
            group=(each.metadata or {}).get(GROUP_KEY),
            hall=str(each.availability_zone) if GROUP_KEY in (each.metadata or {}) else None,
            hosts=frozenset(each.hosts or ()),
        )
        for each in sorted(listed, key=lambda aggregate: str(aggregate.name))
    ]


def group_of_host(aggregates: Sequence[Aggregate]) -> dict[str, str]:
    return {host: each.group for each in aggregates for host in sorted(each.hosts) if each.group is not None}


def hall_of_host(aggregates: Sequence[Aggregate]) -> dict[str, str]:
    return {host: each.hall for each in aggregates for host in sorted(each.hosts) if each.hall is not None}
