"""The rule of cold starts: no single load moves it far, size matters, and too little seen says nothing."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.serving.cold_start import ColdStartTerms, Load, learned, learned_for, size_class

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
TERMS = ColdStartTerms(least_loads=3, loads_per_class=20, least_seconds=1, most_seconds=600)
SECONDS = st.integers(0, 2_000_000).map(lambda thousandths: Decimal(thousandths) / 1000)
LOADS = st.lists(
    st.builds(
        Load, st.integers(1, 200), SECONDS, st.integers(0, 10**6).map(lambda s: NOW - timedelta(seconds=s))
    ),
    max_size=40,
)
ALIKE = st.lists(SECONDS, min_size=5, max_size=20)


def loads(*seconds: float | Decimal | str, vram_gb: int = 40) -> list[Load]:
    """Loads of one size, the last of them the newest."""
    return [
        Load(vram_gb, Decimal(str(each)), NOW + timedelta(seconds=number))
        for number, each in enumerate(seconds)
    ]


def test_it_is_the_upper_quartile_rounded_up() -> None:
    assert learned(loads(10, 20, 30, 40), TERMS) == 30
    assert learned(loads(10, 20, "30.001", 40), TERMS) == 31


def test_too_few_loads_say_nothing() -> None:
    assert learned([], TERMS) is None
    assert learned(loads(10, 20), TERMS) is None
    assert learned(loads(10, 20, 30), TERMS) == 30


def test_only_the_newest_loads_of_a_size_count() -> None:
    assert learned(loads(*[500] * 20, *[10] * 20), TERMS) == 10


def test_each_size_has_its_own_figure() -> None:
    seen = loads(5, 5, 5, vram_gb=8) + loads(90, 90, 90, vram_gb=70)
    assert learned_for(seen, 8, TERMS) == 5
    assert learned_for(seen, 100, TERMS) == 90


def test_a_size_that_was_not_seen_is_scaled_by_its_memory() -> None:
    assert learned_for(loads(20, 20, 20, vram_gb=10), 40, TERMS) == 80


@pytest.mark.parametrize(("small", "large", "alike"), [(33, 64, True), (64, 65, False), (1, 1, True)])
def test_sizes_up_to_the_same_power_of_two_are_alike(small: int, large: int, alike: bool) -> None:
    assert (size_class(small) == size_class(large)) is alike


@given(LOADS, st.integers(1, 200))
def test_an_estimate_lies_within_its_bounds(seen: list[Load], vram_gb: int) -> None:
    for estimate in (learned(seen, TERMS), learned_for(seen, vram_gb, TERMS)):
        assert estimate is None or TERMS.least_seconds <= estimate <= TERMS.most_seconds
        assert (estimate is None) is (len(seen) < TERMS.least_loads)


@given(LOADS, st.integers(1, 200), st.integers())
def test_the_order_in_which_loads_are_read_decides_nothing(seen: list[Load], vram_gb: int, seed: int) -> None:
    shuffled = random.Random(seed).sample(seen, len(seen))
    assert learned_for(shuffled, vram_gb, TERMS) == learned_for(seen, vram_gb, TERMS)


@given(ALIKE, SECONDS, st.integers(0, 4))
def test_no_single_load_moves_it_beyond_the_others(
    seconds: list[Decimal], outlier: Decimal, place: int
) -> None:
    """Whatever one load did, the estimate stays between the least and the most of the rest."""
    changed = [*seconds[:place], outlier, *seconds[place + 1 :]]
    rest = [*seconds[:place], *seconds[place + 1 :]]
    lowest, highest = learned(loads(*[min(rest)] * 3), TERMS), learned(loads(*[max(rest)] * 3), TERMS)
    estimate = learned(loads(*changed), TERMS)
    assert lowest is not None
    assert highest is not None
    assert estimate is not None
    assert lowest <= estimate <= highest


@given(ALIKE, st.integers(1, 5))
def test_slower_loads_never_lower_it(seconds: list[Decimal], factor: int) -> None:
    before, slower = (
        learned(loads(*seconds), TERMS),
        learned(loads(*(one * factor for one in seconds)), TERMS),
    )
    assert before is not None
    assert slower is not None
    assert slower >= before


@given(LOADS)
def test_the_figure_of_a_pool_is_that_of_its_usual_size(seen: list[Load]) -> None:
    sizes = sorted(one.vram_gb for one in seen)
    usual = sizes[(len(sizes) - 1) // 2] if sizes else 1
    assert learned(seen, TERMS) == learned_for(seen, usual, TERMS)
