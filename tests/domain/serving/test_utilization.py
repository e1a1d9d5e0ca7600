"""The rule of utilization reports: what a report may say, which one counts, and when a pool is stale."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from domain.serving.utilization import (
    MAX_MODELS,
    UtilizationReport,
    UtilizationTerms,
    counted_at,
    is_stale,
    newest_of,
    refusal_of_time,
)

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
TERMS = UtilizationTerms()
MOMENTS = st.integers(-300, 300).map(lambda seconds: NOW + timedelta(seconds=seconds))
LLAMA: dict[str, Any] = {"model": "llama3.3:70b", "vram_gb": 40, "last_used_at": NOW}


def report(pool_id: str = "gpu-1", at: datetime = NOW, **changes: Any) -> UtilizationReport:
    said = {"pool_id": pool_id, "utilization": Decimal("0.5"), "queue_depth": 3, "reported_at": at}
    return UtilizationReport.model_validate(said | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"utilization": "1.0001"},
        {"utilization": "-0.1"},
        {"utilization": "NaN"},
        {"utilization": "Infinity"},
        {"queue_depth": -1},
        {"queue_depth": 2**31},
        {"pool_id": "No such id"},
        {"reported_at": datetime(2030, 1, 1, 12)},  # noqa: DTZ001 - without a zone on purpose
        {"models": [LLAMA, LLAMA]},
        {"models": [LLAMA | {"model": "llama"}, LLAMA | {"model": "llama:latest"}]},
        {"models": [LLAMA | {"vram_gb": 0}]},
        {"models": [LLAMA | {"model": "two\nlines"}]},
        {"models": [LLAMA | {"model": f"m{number}"} for number in range(MAX_MODELS + 1)]},
        {"boundary": "shared"},
    ],
    ids=str,
)
def test_a_report_that_says_the_impossible_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        report(**changes)


def test_the_edges_are_allowed() -> None:
    for share in ("0", "1", "0.30000000000000004"):
        assert report(utilization=share).utilization == Decimal(share)
    assert len(report(models=[LLAMA | {"model": f"m{n}"} for n in range(MAX_MODELS)]).models) == MAX_MODELS


def test_a_report_from_the_future_is_refused_beyond_the_skew() -> None:
    assert refusal_of_time(NOW + timedelta(seconds=60), NOW, TERMS) is None
    refused = refusal_of_time(NOW + timedelta(seconds=61), NOW, TERMS)
    assert refused is not None
    assert "61 s ahead" in refused
    assert "60 s" in refused


@given(MOMENTS, st.integers(0, 600))
def test_no_report_that_counts_keeps_a_pool_fresh_for_longer_than_the_window(
    reported_at: datetime, later_seconds: int
) -> None:
    """However wrong the agent's clock is, and however far in the future it is allowed to be."""
    if refusal_of_time(reported_at, NOW, TERMS) is not None:
        return
    kept = counted_at(reported_at, NOW)
    assert kept <= NOW
    later = NOW + timedelta(seconds=later_seconds)
    if later_seconds > TERMS.staleness_seconds:
        assert is_stale(kept, later, TERMS)


def test_a_pool_is_stale_after_its_window_and_before_its_first_report() -> None:
    assert is_stale(None, NOW, TERMS)
    assert not is_stale(NOW - timedelta(seconds=120), NOW, TERMS)
    assert is_stale(NOW - timedelta(seconds=120, milliseconds=1), NOW, TERMS)


@given(st.lists(st.builds(report, st.sampled_from(["gpu-1", "gpu-2", "gpu-3"]), MOMENTS), max_size=12))
def test_of_each_pool_the_newest_report_counts(reports: list[UtilizationReport]) -> None:
    kept = newest_of(reports)
    assert [one.pool_id for one in kept] == sorted({one.pool_id for one in reports})
    for one in kept:
        assert one.reported_at == max(each.reported_at for each in reports if each.pool_id == one.pool_id)
