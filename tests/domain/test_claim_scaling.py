"""Scaling a claim: units add up, proportions hold, shapes stay."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.claim import MAX_SHAPES, MAX_UNITS, Demand, Requirements, Shape, ShapeCount
from domain.claim_scaling import apportion, scaled

WEIGHTS = st.lists(st.integers(0, MAX_UNITS), min_size=1, max_size=MAX_SHAPES)
UNITS = st.integers(0, MAX_UNITS)


def demand(*units: int) -> Demand:
    return Demand(
        shapes=tuple(
            ShapeCount(shape=Shape(vcpu_milli=1000 * (len(units) - place), ram_mib=1024), units=each)
            for place, each in enumerate(units)
        ),
        requirements=Requirements(nvme=True),
    )


@given(WEIGHTS, UNITS)
def test_shares_add_up_and_none_is_negative(weights: list[int], units: int) -> None:
    shares = apportion(weights, units)
    assert sum(shares) == units
    assert len(shares) == len(weights)
    assert min(shares) >= 0


@given(WEIGHTS, UNITS)
def test_every_share_is_its_proportion_rounded_up_or_down(weights: list[int], units: int) -> None:
    total = sum(weights)
    parts = weights if total else [1] * len(weights)
    for weight, share in zip(parts, apportion(weights, units), strict=True):
        assert abs(share - Fraction(weight * units, sum(parts))) < 1


@given(WEIGHTS, UNITS)
def test_a_larger_shape_never_gets_less(weights: list[int], units: int) -> None:
    shares = apportion(weights, units)
    for one, first in enumerate(weights):
        for other, second in enumerate(weights):
            if first > second:
                assert shares[one] >= shares[other]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=MAX_SHAPES), st.integers(1, 50))
def test_a_whole_multiple_is_exact(weights: list[int], factor: int) -> None:
    if sum(weights):
        assert apportion(weights, factor * sum(weights)) == [factor * weight for weight in weights]


@given(WEIGHTS, UNITS)
def test_shapes_and_requirements_stay(weights: list[int], units: int) -> None:
    before = demand(*weights)
    after = scaled(before, units)
    assert [group.shape for group in after.shapes] == [group.shape for group in before.shapes]
    assert after.requirements == before.requirements
    assert after.units == units


@pytest.mark.parametrize(
    ("weights", "units", "shares"),
    [
        ([4, 8], 3, [1, 2]),
        ([1, 1], 3, [2, 1]),
        ([0, 0, 0], 4, [2, 1, 1]),
        ([7], 0, [0]),
        ([1, 99], 10, [0, 10]),
    ],
)
def test_remainders_go_to_the_largest_then_to_the_first(
    weights: list[int], units: int, shares: list[int]
) -> None:
    assert apportion(weights, units) == shares


def test_a_claim_without_shapes_cannot_grow() -> None:
    with pytest.raises(ValueError, match="without shapes"):
        scaled(Demand(shapes=()), 3)
