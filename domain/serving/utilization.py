"""Utilization reports: what a pool's agent says of it, which reports count, and when a pool is stale."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, Field, field_validator

from domain.model import Frozen
from domain.pool import PoolId
from domain.serving.models import ModelName, plain_name

MAX_MODELS = 256
MAX_COUNT = 2_147_483_647


class UtilizationTerms(Frozen):
    """How reports are judged.

    A serving pool without a report younger than `staleness_seconds` takes no placements. Clocks of agents
    may be ahead of ours by `skew_seconds`.
    """

    staleness_seconds: Annotated[float, Field(ge=1, le=86_400)] = 120
    skew_seconds: Annotated[float, Field(ge=0, le=3600)] = 60


class ReportRefusal(StrEnum):
    """Why a report changes nothing and never will."""

    UNKNOWN_POOL = "unknown_pool"
    RETIRED = "retired"
    FUTURE = "future"


class ReportedModel(Frozen):
    """A model that the agent of a pool lists as loaded there."""

    model: ModelName
    vram_gb: Annotated[int, Field(ge=1, le=100_000)]
    last_used_at: AwareDatetime


class UtilizationReport(Frozen):
    """What the agent of one pool says of it. Utilization is a share, 0 to 1."""

    pool_id: PoolId
    utilization: Annotated[Decimal, Field(ge=0, le=1)]
    queue_depth: Annotated[int, Field(ge=0, le=MAX_COUNT)]
    models: Annotated[tuple[ReportedModel, ...], Field(max_length=MAX_MODELS)] = ()
    reported_at: AwareDatetime

    @field_validator("models")
    @classmethod
    def _each_once(cls, models: tuple[ReportedModel, ...]) -> tuple[ReportedModel, ...]:
        names = [plain_name(one.model) for one in models]
        if len(set(names)) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"{', '.join(twice)} is listed more than once")
        return models


def refusal_of_time(reported_at: datetime, now: datetime, terms: UtilizationTerms) -> str | None:
    """Why a report of this time is refused, in a sentence; None when it may count.

    One from the future would keep its pool fresh after its agent fell silent.
    """
    ahead = (reported_at - now).total_seconds()
    if ahead <= terms.skew_seconds:
        return None
    return (
        f"reportedAt {reported_at.isoformat()} is {ahead:.0f} s ahead of our clock; allowed are"
        f" {terms.skew_seconds:g} s: set the clock of the agent's host"
    )


def counted_at(reported_at: datetime, now: datetime) -> datetime:
    """The time under which a report is kept: its own, and never later than now."""
    return min(reported_at, now)


def newest_of(reports: Iterable[UtilizationReport]) -> list[UtilizationReport]:
    """The newest report of each pool, in the order of their ids."""
    newest: dict[str, UtilizationReport] = {}
    for one in reports:
        if one.pool_id not in newest or one.reported_at > newest[one.pool_id].reported_at:
            newest[one.pool_id] = one
    return [newest[pool_id] for pool_id in sorted(newest)]


def is_stale(reported_at: datetime | None, now: datetime, terms: UtilizationTerms) -> bool:
    """Whether a pool's last report is too old for it to take placements."""
    return reported_at is None or now - reported_at > timedelta(seconds=terms.staleness_seconds)
