from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from domain.claim import MAX_GPUS, MAX_RAM_MIB, MAX_SHAPES, MAX_VCPU_MILLI
from domain.intake.shaping import Shaping, Size, shape_units

SIZES = st.builds(
    Size,
    st.one_of(st.integers(1, 64_000), st.integers(1, MAX_VCPU_MILLI)),
    st.one_of(st.integers(1, 262_144), st.integers(1, MAX_RAM_MIB)),
    st.one_of(st.just(0), st.integers(0, MAX_GPUS)),
)
CLAIMS = st.dictionaries(SIZES, st.integers(1, 1000), min_size=1, max_size=150)


def total(shaping: Shaping, axis: str) -> int:
    return sum(group.units * int(getattr(group.shape, axis)) for group in shaping.shapes)


@given(CLAIMS)
def test_no_more_shapes_than_allowed_and_every_unit_still_there(units: dict[Size, int]) -> None:
    shaping = shape_units(units)
    assert 1 <= len(shaping.shapes) <= MAX_SHAPES
    assert sum(group.units for group in shaping.shapes) == sum(units.values())


@given(CLAIMS)
def test_rounded_shapes_hold_the_units_and_few_sizes_stay_exact(units: dict[Size, int]) -> None:
    """Some shape holds each unit, and at every size there are as many places as units that need them."""
    places = Counter(
        {Size(g.shape.vcpu_milli, g.shape.ram_mib, g.shape.gpus): g.units for g in shape_units(units).shapes}
    )
    if len(units) <= MAX_SHAPES:
        assert places == Counter(units)
    for size in units:
        assert any(all(a >= b for a, b in zip(place, size, strict=True)) for place in places)
    for axis in range(3):
        for least in {size[axis] for size in units}:
            needed = sum(count for size, count in units.items() if size[axis] >= least)
            offered = sum(count for place, count in places.items() if place[axis] >= least)
            assert offered >= needed


@given(CLAIMS)
def test_waste_is_what_the_shapes_hold_beyond_the_units(units: dict[Size, int]) -> None:
    shaping = shape_units(units)
    for axis, name, extra in (
        (0, "vcpu_milli", shaping.extra_vcpu_milli),
        (1, "ram_mib", shaping.extra_ram_mib),
        (2, "gpus", shaping.extra_gpus),
    ):
        asked = sum(size[axis] * count for size, count in units.items())
        assert total(shaping, name) - asked == extra >= 0


@given(CLAIMS, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(units: dict[Size, int], chance: Random) -> None:
    entries = list(units.items())
    chance.shuffle(entries)
    assert shape_units(dict(entries)) == shape_units(units)


@given(CLAIMS)
def test_units_without_gpus_get_none_and_no_shape_outgrows_the_largest_unit(units: dict[Size, int]) -> None:
    shaping = shape_units(units)
    without = sum(count for size, count in units.items() if size.gpus == 0)
    assert sum(group.units for group in shaping.shapes if group.shape.gpus == 0) == without
    for axis, name in enumerate(("vcpu_milli", "ram_mib", "gpus")):
        assert max(getattr(group.shape, name) for group in shaping.shapes) == max(
            size[axis] for size in units
        )


@given(CLAIMS)
def test_largest_first_by_vcpu_then_memory_then_gpus(units: dict[Size, int]) -> None:
    keys = [(g.shape.vcpu_milli, g.shape.ram_mib, g.shape.gpus) for g in shape_units(units).shapes]
    assert keys == sorted(keys, reverse=True)


def test_few_sizes_stay_exact() -> None:
    units = {Size(1000 + n, 1024, 0): 3 for n in range(MAX_SHAPES)}
    shaping = shape_units(units)
    assert len(shaping.shapes) == MAX_SHAPES
    assert (shaping.extra_vcpu_milli, shaping.extra_ram_mib, shaping.extra_gpus) == (0, 0, 0)


def test_near_sizes_are_joined_before_far_ones() -> None:
    near = {Size(1000 + n, 4096, 0): 1 for n in range(40)}
    shaping = shape_units({**near, Size(32_000, 131_072, 0): 1})
    assert shaping.extra_vcpu_milli <= sum(size.vcpu_milli for size in near) // 30
    assert shaping.shapes[0].shape.vcpu_milli == 32_000
    assert shaping.shapes[0].units == 1


def test_the_coarsest_grid_suffices_for_the_worst_spread() -> None:
    axes = product((1, 2, 3, 70, 4_096_000), (1, 2, 900, 100_000_000), range(MAX_GPUS + 1))
    shaping = shape_units({Size(*axis): 1 for axis in axes})
    assert len(shaping.shapes) <= MAX_SHAPES
