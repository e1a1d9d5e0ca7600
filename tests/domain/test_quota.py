"""Quota headroom: never negative, each instance counted once, alarm at the policy's share."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.quota import (
    Headroom,
    InstanceSize,
    Launching,
    Level,
    QuotaResource,
    QuotaUsage,
    Usage,
    headroom,
    levels,
    share_left,
)

SIZE = InstanceSize(cores=8, ram_mib=32_768)
UNLIMITED = Usage(limit=None, used=7)

counts = st.integers(min_value=0, max_value=10_000)
amounts = st.integers(min_value=0, max_value=10**9)
usages = st.builds(Usage, limit=st.none() | amounts, used=amounts)
quotas = st.builds(QuotaUsage, instances=usages, cores=usages, ram_mib=usages)
sizes = st.builds(InstanceSize, cores=st.integers(1, 512), ram_mib=st.integers(1, 4_000_000))
launches = st.lists(st.builds(Launching, size=sizes, asked=counts, listed=counts), max_size=6)


def quota(instances: int | None = None, cores: int | None = None, used: int = 0) -> QuotaUsage:
    return QuotaUsage(
        instances=Usage(limit=instances, used=used),
        cores=Usage(limit=cores, used=used * 8),
        ram_mib=UNLIMITED,
    )


def taken_of(resource: QuotaResource, launching: list[Launching]) -> int:
    return sum(each.uncounted * each.size.takes(resource) for each in launching)


@given(quotas, sizes, launches)
def test_what_fits_stays_within_every_limit_and_one_more_does_not(
    usage: QuotaUsage, size: InstanceSize, launching: list[Launching]
) -> None:
    found = headroom(usage, size, launching)
    if found.instances is None:
        assert all(usage.of(resource).limit is None for resource in QuotaResource)
        return
    assert found.instances >= 0
    assert found.binding is not None
    for resource in QuotaResource:
        limit = usage.of(resource).limit
        if limit is not None and found.instances > 0:
            pending = taken_of(resource, launching)
            assert usage.of(resource).used + pending + found.instances * size.takes(resource) <= limit
    binding = usage.of(found.binding)
    assert binding.limit is not None
    one_more = (found.instances + 1) * size.takes(found.binding)
    assert binding.used + taken_of(found.binding, launching) + one_more > binding.limit


@given(quotas, sizes, launches, st.integers(0, 100))
def test_an_instance_counts_the_same_before_and_after_the_provider_lists_it(
    usage: QuotaUsage, size: InstanceSize, launching: list[Launching], newly_listed: int
) -> None:
    pending = Launching(size=size, asked=newly_listed, listed=0)
    listed = Launching(size=size, asked=newly_listed, listed=newly_listed)
    counted = QuotaUsage(
        **{
            str(resource): Usage(
                limit=usage.of(resource).limit,
                used=usage.of(resource).used + newly_listed * size.takes(resource),
            )
            for resource in QuotaResource
        }
    )
    assert headroom(usage, size, [*launching, pending]) == headroom(counted, size, [*launching, listed])


@given(quotas, sizes, launches, st.builds(Launching, size=sizes, asked=counts, listed=counts))
def test_more_launches_never_leave_more(
    usage: QuotaUsage, size: InstanceSize, launching: list[Launching], another: Launching
) -> None:
    before, after = headroom(usage, size, launching), headroom(usage, size, [*launching, another])
    if before.instances is None or before.share_left is None:
        assert after == before
    else:
        assert after.instances is not None
        assert after.share_left is not None
        assert after.instances <= before.instances
        assert after.share_left <= before.share_left


@pytest.mark.parametrize(
    ("used", "share_left", "alarm"),
    [
        (79, Decimal("0.21"), False),
        (80, Decimal("0.2"), True),
        (100, Decimal(0), True),
        (130, Decimal(0), True),
    ],
)
def test_the_alarm_sounds_at_a_fifth_left_not_before(used: int, share_left: Decimal, alarm: bool) -> None:
    found = headroom(quota(instances=100, used=used), SIZE)
    assert (found.share_left, found.alarm) == (share_left, alarm)
    assert found.instances == max(0, 100 - used)


def test_the_alarm_watches_a_resource_that_does_not_bind_this_size() -> None:
    usage = QuotaUsage(
        instances=Usage(limit=1_000, used=0),
        cores=Usage(limit=100, used=0),
        ram_mib=Usage(limit=10**7, used=9 * 10**6),
    )
    found = headroom(usage, InstanceSize(cores=50, ram_mib=1))
    assert found == Headroom(instances=2, share_left=Decimal("0.1"), binding=QuotaResource.CORES, alarm=True)


@pytest.mark.parametrize("limit", [-1, None])
def test_minus_one_and_none_are_unlimited(limit: int | None) -> None:
    assert Usage(limit=limit, used=5).limit is None
    found = headroom(quota(instances=limit), SIZE)
    assert found == Headroom(instances=None, share_left=None, binding=None, alarm=False)


def test_a_limit_below_minus_one_is_refused() -> None:
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        Usage(limit=-2, used=0)


def test_servers_in_error_use_quota_and_are_not_counted_again() -> None:
    errored = Launching(size=SIZE, asked=10, listed=10)
    late = Launching(size=SIZE, asked=10, listed=13)
    assert headroom(quota(instances=50, used=10), SIZE, [errored]).instances == 40
    assert headroom(quota(instances=50, used=13), SIZE, [late]).instances == 37


def test_a_limit_of_zero_leaves_nothing() -> None:
    found = headroom(quota(instances=0), SIZE)
    assert (found.instances, found.share_left, found.alarm) == (0, Decimal(0), True)


@given(quotas, sizes, launches)
def test_levels_and_headroom_say_the_same(
    usage: QuotaUsage, size: InstanceSize, launching: list[Launching]
) -> None:
    found, room = levels(usage, launching), headroom(usage, size, launching)
    assert [one.resource for one in found] == list(QuotaResource)
    assert share_left(found) == room.share_left
    assert any(one.alarm for one in found) == room.alarm
    for one in found:
        assert (one.left is None) == (one.share_left is None) == (one.limit is None)
        if one.left is not None and room.instances is not None:
            assert room.instances * size.takes(one.resource) <= one.left


def test_each_quota_has_an_alarm_of_its_own() -> None:
    usage = QuotaUsage(
        instances=Usage(limit=10, used=6), cores=Usage(limit=100, used=48), ram_mib=Usage(limit=-1, used=5)
    )
    asked = Launching(size=SIZE, asked=3, listed=1)
    assert levels(usage, [asked]) == (
        Level(resource=QuotaResource.INSTANCES, limit=10, used=6, pending=2, alarm=True),
        Level(resource=QuotaResource.CORES, limit=100, used=48, pending=16, alarm=False),
        Level(resource=QuotaResource.RAM_MIB, limit=None, used=5, pending=65_536, alarm=False),
    )
