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


class Level(Frozen):
    """How full one quota is. A limit of None is unlimited; `pending` is asked for and not counted yet."""

    resource: QuotaResource
    limit: Count | None
    used: Count
    pending: Count
    alarm: bool

    @property
    def left(self) -> int | None:
        """What is left once everything pending runs; None is unlimited."""
        return None if self.limit is None else max(0, self.limit - self.used - self.pending)

    @property
    def share_left(self) -> Decimal | None:
        """The share of the limit that is left; of a limit of zero nothing is left."""
        return None if self.left is None else _share(self.left, self.limit)


class Headroom(Frozen):
    """What a quota leaves. None means unlimited.

    `instances` is how many more of one size fit, `share_left` the smallest share left of any
    limited resource, `binding` the resource that allows the fewest instances.
    """

    instances: Count | None
    share_left: Annotated[Decimal, Field(ge=0, le=1)] | None
    binding: QuotaResource | None
    alarm: bool


def levels(
    usage: QuotaUsage, launching: Iterable[Launching] = (), *, alarm_share: CapShare = _ALARM_SHARE
) -> tuple[Level, ...]:
    """Every quota in the order of `QuotaResource`; its alarm sounds when `alarm_share` or less is left."""
    waiting = tuple(launching)
    return tuple(_level(resource, usage.of(resource), waiting, alarm_share) for resource in QuotaResource)


def share_left(found: Iterable[Level]) -> Decimal | None:
    """The smallest share that is left of any limited resource; None when nothing is limited."""
    shares = [one.share_left for one in found if one.share_left is not None]
    return min(shares, default=None)


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
    found = levels(usage, launching, alarm_share=alarm_share)
    fits = {one.resource: one.left // size.takes(one.resource) for one in found if one.left is not None}
    if not fits:
        return Headroom(instances=None, share_left=None, binding=None, alarm=False)
    binding = min(fits, key=lambda resource: fits[resource])
    return Headroom(
        instances=fits[binding],
        share_left=share_left(found),
        binding=binding,
        alarm=any(one.alarm for one in found),
    )


def _level(
    resource: QuotaResource, usage: Usage, launching: Iterable[Launching], alarm_share: CapShare
) -> Level:
    pending = sum(each.uncounted * each.size.takes(resource) for each in launching)
    left = None if usage.limit is None else usage.limit - usage.used - pending
    alarm = left is not None and _share(left, usage.limit) <= alarm_share
    return Level(resource=resource, limit=usage.limit, used=usage.used, pending=pending, alarm=alarm)


def _share(left: int, limit: int | None) -> Decimal:
    return Decimal(left) / limit if limit else Decimal(0)
