"""Every reason can be read by a person."""

from __future__ import annotations

from enum import StrEnum

import pytest

from domain.reasons import REASON_TEXT, SHORTFALL_TEXT, Reason, ShortfallReason


@pytest.mark.parametrize(("reasons", "texts"), [(Reason, REASON_TEXT), (ShortfallReason, SHORTFALL_TEXT)])
def test_every_reason_has_a_text_of_its_own(reasons: type[StrEnum], texts: dict[StrEnum, str]) -> None:
    assert set(texts) == set(reasons)
    assert len(set(texts.values())) == len(texts)
    assert all(text[0].islower() and not text.endswith(".") for text in texts.values())


@pytest.mark.parametrize("reason", [*Reason, *ShortfallReason])
def test_a_reason_reads_the_same_as_label_column_and_name(reason: StrEnum) -> None:
    assert reason.value == reason.name.lower()
