from __future__ import annotations

from decimal import ROUND_CEILING, Context, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.intake.quantities import NANO, mib, milli, quantity_nano, whole
from domain.intake.words import Unclear

SUFFIXES = {
    **{suffix: Decimal(10) ** power for suffix, power in zip("num", (-9, -6, -3), strict=True)},
    "": Decimal(1),
    **{suffix: Decimal(10) ** (3 * n) for n, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Decimal(2) ** (10 * n) for n, suffix in enumerate("KMGTPE", 1)},
}
EXACT = Context(prec=200)


def as_decimal(number: str, factor: Decimal) -> int:
    value = EXACT.multiply(EXACT.multiply(Decimal(number), factor), Decimal(NANO))
    return int(value.to_integral_value(rounding=ROUND_CEILING, context=EXACT))


@given(
    whole_part=st.integers(0, 10**18),
    fraction=st.one_of(st.none(), st.text("0123456789", max_size=18)),
    suffix=st.sampled_from(sorted(SUFFIXES)),
    sign=st.sampled_from(["", "+"]),
)
def test_a_quantity_is_exact_down_to_billionths_and_rounds_up_below(
    whole_part: int, fraction: str | None, suffix: str, sign: str
) -> None:
    number = f"{whole_part}" if fraction is None else f"{whole_part}.{fraction}"
    assert quantity_nano(f"{sign}{number}{suffix}") == as_decimal(number, SUFFIXES[suffix])


@given(st.decimals(0, 10**9, places=6), st.integers(-12, 12), st.sampled_from("eE"))
def test_exponents_shift_the_decimal_point(number: Decimal, exponent: int, letter: str) -> None:
    text = f"{number:f}"
    assert quantity_nano(f"{text}{letter}{exponent}") == as_decimal(text, Decimal(10) ** exponent)


@given(st.integers(0, 10**30))
def test_plain_numbers_and_their_texts_are_the_same(value: int) -> None:
    assert quantity_nano(value) == quantity_nano(str(value)) == value * NANO


@given(st.floats(1e-20, 1e12))
def test_floats_are_read_as_they_are_written(value: float) -> None:
    assert quantity_nano(value) == as_decimal(repr(value), Decimal(1))


@pytest.mark.parametrize(
    ("quantity", "thousandths"),
    [
        ("500m", 500),
        ("1", 1000),
        (2, 2000),
        (0.1, 100),
        (Decimal("0.5"), 500),
        ("1n", 1),
        ("0", 0),
        ("1e3", 10**6),
    ],
)
def test_vcpus_in_thousandths(quantity: object, thousandths: int) -> None:
    assert milli(quantity_nano(quantity)) == thousandths


@pytest.mark.parametrize(
    ("quantity", "mebibytes"),
    [
        ("2Gi", 2048), ("2G", 1908), ("64M", 62), ("64Mi", 64), ("1073741824", 1024), (1073741825, 1025),
        ("1e9", 954), ("128974848000m", 123), ("400m", 1), (".5Gi", 512), ("1.Gi", 1024),
        ("1E", 953674316407),
    ],
)  # fmt: skip
def test_memory_in_mebibytes_rounds_up(quantity: object, mebibytes: int) -> None:
    assert mib(quantity_nano(quantity)) == mebibytes


NO_QUANTITIES: list[object] = [
    *("", " ", "1 Gi", "64GB", "1K", "1ki", "Gi", "1e", "1e1.5", "1e31", "--1", "-1", "1.2.3", ".", "0x10"),
    *("1,5", "\u0663", "1_000", "9" * 65, None, True, [], {}, float("nan"), float("inf"), -1, -0.5),
    *(10**65, Decimal("NaN"), Decimal("1e40")),
]


@pytest.mark.parametrize("quantity", NO_QUANTITIES)
def test_what_is_no_quantity_is_refused_with_the_value_and_the_rule(quantity: object) -> None:
    with pytest.raises(Unclear, match=r"^quantity .*(allowed is|beyond)"):
        quantity_nano(quantity)


def test_devices_come_in_whole_pieces() -> None:
    assert whole(quantity_nano("4"), "nvidia.com/gpu") == 4
    assert whole(quantity_nano("1k"), "nvidia.com/gpu") == 1000
    with pytest.raises(Unclear, match=r"nvidia\.com/gpu is not a whole number"):
        whole(quantity_nano("500m"), "nvidia.com/gpu")


def test_a_number_too_long_to_print_is_described() -> None:
    with pytest.raises(Unclear, match="a number of 16610 bits"):
        quantity_nano(10**5000)
