"""Shares become whole units: caps are cut off, floors are rounded up."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.placement.caps import cap_units, caps_for, floor_units, pools_and_groups_needed
from tests.domain.strategies import QUICK
from tests.domain.worlds import terms

shares = st.decimals(min_value=0, max_value=1, places=6)
units = st.integers(1, 100_000)


@QUICK
@given(shares, units)
def test_a_cap_is_cut_off_but_never_below_one_unit(share: Decimal, total: int) -> None:
    assert cap_units(share, total) == max(1, floor(Fraction(share) * total))


@QUICK
@given(shares, units)
def test_a_floor_is_rounded_up(share: Decimal, total: int) -> None:
    assert floor_units(share, total) == ceil(Fraction(share) * total)


@pytest.mark.parametrize(
    ("share", "total", "cap"),
    [("0.15", 6, 1), ("0.15", 13, 1), ("0.15", 14, 2), ("0.15", 20, 3), ("0.30", 42, 12), ("0.05", 19, 1)],
)
def test_caps_of_small_claims(share: str, total: int, cap: int) -> None:
    assert cap_units(Decimal(share), total) == cap


@pytest.mark.parametrize(
    ("share", "total", "expected"), [("0.30", 42, 13), ("0.30", 10, 3), ("0.30", 1, 1), ("0", 9, 0)]
)
def test_floors_of_small_claims(share: str, total: int, expected: int) -> None:
    assert floor_units(Decimal(share), total) == expected


def test_the_worked_example() -> None:
    caps = caps_for(42, terms(floor="0.30"))
    assert (caps.units, caps.floor_units) == (42, 13)
    assert (caps.pool_units, caps.group_units, caps.probation_units) == (6, 12, 2)
    assert (caps.floor_halls, caps.floor_hall_units, caps.hall_units) == (3, 5, 12)


@pytest.mark.parametrize(
    ("floor", "pool", "group", "needed"),
    [
        ("0.30", "0.15", "0.30", (5, 3)),
        ("0", "0.15", "0.30", (7, 4)),
        ("0.10", "0.15", "0.30", (6, 3)),
        ("1", "0.15", "0.30", (0, 0)),
    ],
)
def test_pools_and_groups_that_a_large_claim_needs(
    floor: str, pool: str, group: str, needed: tuple[int, int]
) -> None:
    assert pools_and_groups_needed(terms(floor=floor, pool=pool, group=group)) == needed


@QUICK
@given(shares, st.decimals(min_value="0.01", max_value=1, places=2))
def test_one_pool_less_than_needed_cannot_hold_the_fill(floor_share: Decimal, cap: Decimal) -> None:
    pools, groups = pools_and_groups_needed(
        replace(terms(), floor_share=floor_share, pool_cap_share=cap, group_cap_share=cap)
    )
    assert pools == groups
    assert pools * cap >= 1 - floor_share
    assert pools == 0 or (pools - 1) * cap < 1 - floor_share


@QUICK
@given(st.integers(1, 500), st.integers(0, 500), st.sampled_from(("0", "0.1", "0.3", "0.305", "1")))
def test_a_growing_claim_never_has_a_smaller_cap_floor_or_fill(total: int, more: int, share: str) -> None:
    small, large = caps_for(total, terms(floor=share)), caps_for(total + more, terms(floor=share))
    assert large.pool_units >= small.pool_units
    assert large.group_units >= small.group_units
    assert large.floor_units >= small.floor_units
    assert large.units - large.floor_units >= small.units - small.floor_units
