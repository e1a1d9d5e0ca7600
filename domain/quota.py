"""Quota headroom as arithmetic: how many more instances of one size a region's quota admits.

A provider counts every server it holds, building and errored ones included. What it does not count
yet are instances that a plan asks for and that it does not list. Each instance is counted once:
by the provider as soon as it lists the server, before that by us.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field

from domain.contract import CapShare
from domain.model import Frozen
from domain.policy import ScoringPolicy

Count = Annotated[int, Field(ge=0)]
_UNLIMITED = -1
_ALARM_SHARE = ScoringPolicy().quota_alarm_share


class QuotaResource(StrEnum):
    """What a quota limits. Memory is MiB."""

    INSTANCES = "instances"
    CORES = "cores"
    RAM_MIB = "ram_mib"


class InstanceSize(Frozen):
    """What one instance of a flavor takes from the quota."""

    cores: Annotated[int, Field(ge=1)]
    ram_mib: Annotated[int, Field(ge=1)]

    def takes(self, resource: QuotaResource) -> int:
        """How much of `resource` one instance takes."""
        match resource:
            case QuotaResource.INSTANCES:
                return 1
            case QuotaResource.CORES:
                return self.cores
            case QuotaResource.RAM_MIB:
                return self.ram_mib


def _none_when_unlimited(limit: object) -> object:
    return None if limit == _UNLIMITED else limit


class Usage(Frozen):
    """One limit and what the provider counts against it. A limit of None (or -1) is unlimited."""

    limit: Annotated[Count | None, BeforeValidator(_none_when_unlimited)]
    used: Count


class QuotaUsage(Frozen):
    """The limits of one project in one region."""

    instances: Usage
    cores: Usage
    ram_mib: Usage

    def of(self, resource: QuotaResource) -> Usage:
        """The limit and use of one resource."""
        match resource:
            case QuotaResource.INSTANCES:
                return self.instances
            case QuotaResource.CORES:
                return self.cores
            case QuotaResource.RAM_MIB:
                return self.ram_mib


class Launching(Frozen):
    """Instances of one size that plans ask for, and how many of them the provider lists.

    `listed` counts them whatever their status: an errored server uses quota until it is deleted.
    """

    size: InstanceSize
    asked: Count
    listed: Count

    @property
    def uncounted(self) -> int:
        """Instances that the provider's usage does not contain yet."""
        return max(0, self.asked - self.listed)


class Headroom(Frozen):
    """What a quota leaves. None means unlimited.

    `instances` is how many more of one size fit, `share_left` the smallest share left of any
    limited resource, `binding` the resource that allows the fewest instances.
    """

    instances: Count | None
    share_left: Annotated[Decimal, Field(ge=0, le=1)] | None
    binding: QuotaResource | None
    alarm: bool


def headroom(
    usage: QuotaUsage,
    size: InstanceSize,
    launching: Iterable[Launching] = (),
    *,
    alarm_share: CapShare = _ALARM_SHARE,
) -> Headroom:
    """How many more instances of `size` fit; the alarm sounds when `alarm_share` or less is left.

    On a tie of two resources the first in the order of `QuotaResource` is named as binding.
    """
    pending = tuple(launching)
    left = {
        resource: _left(
            usage.of(resource), sum(each.uncounted * each.size.takes(resource) for each in pending)
        )
        for resource in QuotaResource
    }
    limited = {resource: amount for resource, amount in left.items() if amount is not None}
    if not limited:
        return Headroom(instances=None, share_left=None, binding=None, alarm=False)
    fits = {resource: amount // size.takes(resource) for resource, amount in limited.items()}
    binding = min(fits, key=lambda resource: fits[resource])
    share = min(_share(amount, usage.of(resource)) for resource, amount in limited.items())
    return Headroom(instances=fits[binding], share_left=share, binding=binding, alarm=share <= alarm_share)


def _left(usage: Usage, pending: int) -> int | None:
    return None if usage.limit is None else max(0, usage.limit - usage.used - pending)


def _share(left: int, usage: Usage) -> Decimal:
    """The share of a limit that is left; of a limit of zero nothing is left."""
    return Decimal(left) / usage.limit if usage.limit else Decimal(0)
