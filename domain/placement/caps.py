"""How shares become whole units.

A share of `units` is cut off, never rounded up, because a cap that is rounded up is no cap; but a cap
is never less than one unit, or a small claim could not run at all. A floor is rounded up, because a
floor that is rounded down is no floor.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal


def cap_units(share: Decimal, units: int) -> int:
    """max(1, floor(share * units)): 15 % of 6 units is 0.9, so one unit."""
    return max(1, int((share * units).to_integral_value(ROUND_FLOOR)))


def floor_units(share: Decimal, units: int) -> int:
    """ceil(share * units): 30 % of 42 units is 12.6, so 13 units."""
    return int((share * units).to_integral_value(ROUND_CEILING))


@dataclass(frozen=True, slots=True)
class Terms:
    """The shares a claim is placed under, 0 to 1, from its contract and the placement policy."""

    floor_share: Decimal
    pool_cap_share: Decimal
    group_cap_share: Decimal
    probation_cap_share: Decimal
    floor_min_halls: int


@dataclass(frozen=True, slots=True)
class Caps:
    """What the terms mean for a claim of `units`: whole units, over the whole claim.

    Pool, group and probation caps bind reclaimable capacity. `hall_units` is a preference: the fill
    exceeds it only where it could not be met otherwise. In the same way the floor reaches `floor_halls`
    halls, one unit each at least, and takes no more than `floor_hall_units` in any.
    """

    units: int
    floor_units: int
    pool_units: int
    group_units: int
    probation_units: int
    hall_units: int
    floor_halls: int
    floor_hall_units: int


def caps_for(units: int, terms: Terms) -> Caps:
    floor = floor_units(terms.floor_share, units)
    group = cap_units(terms.group_cap_share, units)
    return Caps(
        units=units,
        floor_units=floor,
        pool_units=cap_units(terms.pool_cap_share, units),
        group_units=group,
        probation_units=cap_units(terms.probation_cap_share, units),
        hall_units=group,
        floor_halls=min(terms.floor_min_halls, floor),
        floor_hall_units=max(1, -(-floor // terms.floor_min_halls)),
    )


def pools_and_groups_needed(terms: Terms) -> tuple[int, int]:
    """How many pools and correlation groups a large claim needs at least under these terms.

    With a floor of 30 % and caps of 15 % and 30 %: five pools in three groups.
    """
    fill = 1 - terms.floor_share
    pools = (fill / terms.pool_cap_share).to_integral_value(ROUND_CEILING)
    groups = (fill / terms.group_cap_share).to_integral_value(ROUND_CEILING)
    return int(pools), int(groups)
