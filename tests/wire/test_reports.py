"""Letters of reports: whose they are stands in the subject, and no bytes whatever raise anything."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from domain.pool import Name, PoolId
from wire.reports import (
    MAX_BYTES,
    MAX_DETAIL,
    ModelLetter,
    ReportLetter,
    ReportRefusal,
    ReportRefusedAs,
    Sender,
    letter,
    read_report,
    report_subject,
    sender_of,
)

NOW = datetime(2030, 1, 31, 10, tzinfo=UTC)
TENANTS = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,62}", fullmatch=True)
POOLS = st.from_regex(r"[a-z0-9][a-z0-9-]{1,62}", fullmatch=True)
TENANT_NAME: TypeAdapter[str] = TypeAdapter(Name)
POOL_NAME: TypeAdapter[str] = TypeAdapter(PoolId)
WHOLE: dict[str, Any] = {
    "utilization": 0.42,
    "queueDepth": 3,
    "reportedAt": "2030-01-31T10:00:00Z",
    "models": [{"model": "llama3.3:70b", "vramGb": 40, "lastUsedAt": "2030-01-31T09:59:58Z"}],
}


@given(TENANTS, POOLS)
def test_every_name_has_one_subject_that_names_it(tenant: str, pool: str) -> None:
    subject = report_subject(TENANT_NAME.validate_python(tenant), POOL_NAME.validate_python(pool))
    assert subject.count(".") == 2
    assert not set(subject) & set(" *>\t")
    assert sender_of(subject) == Sender(tenant, pool)


@given(TENANTS, POOLS, TENANTS, POOLS)
def test_no_two_pools_share_a_subject(tenant: str, pool: str, other: str, another: str) -> None:
    same = (tenant, pool) == (other, another)
    assert (report_subject(tenant, pool) == report_subject(other, another)) is same


@pytest.mark.parametrize(
    "subject",
    [
        "pool-reports.platform",
        "pool-reports.platform.gpu-1.more",
        "pool-reports.Platform.gpu-1",
        "pool-reports.platform.x",
        "pool-reports..gpu-1",
        "compute-pools.platform.gpu-1",
        f"pool-reports.{'a' * 64}.gpu-1",
        "pool-reports.platform.gpu-1\n",
        "",
    ],
)
def test_a_subject_that_names_no_pool_is_nobodys(subject: str) -> None:
    assert sender_of(subject) is None


def test_a_letter_is_read_as_it_was_written() -> None:
    models = (ModelLetter(model="llama", vramGb=40, lastUsedAt=NOW),)
    body = letter(utilization=Decimal("0.425"), queue_depth=7, reported_at=NOW, models=models)
    read = read_report(body)
    assert isinstance(read, ReportLetter)
    assert (read.utilization, read.queue_depth, read.reported_at, read.models) == (
        Decimal("0.425"),
        7,
        NOW,
        models,
    )


def test_what_a_newer_agent_adds_is_left_aside() -> None:
    newer = WHOLE | {"tenantId": "somebody-else", "temperature": 71}
    assert read_report(json.dumps(newer).encode()) == read_report(json.dumps(WHOLE).encode())


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"utilization": 1.01}, "utilization"),
        ({"utilization": "NaN"}, "utilization"),
        ({"queueDepth": -1}, "queueDepth"),
        ({"queueDepth": 1.5}, "queueDepth"),
        ({"reportedAt": "2030-01-31T10:00:00"}, "reportedAt"),
        ({"reportedAt": None}, "reportedAt"),
        ({"models": [{"model": "llama"}]}, "models.0"),
        ({"models": "llama"}, "models"),
    ],
)
def test_a_letter_that_says_the_impossible_is_refused_by_name(changes: dict[str, Any], where: str) -> None:
    refused = read_report(json.dumps(WHOLE | changes).encode())
    assert isinstance(refused, ReportRefusal)
    assert refused.reason is ReportRefusedAs.BODY
    assert refused.detail.startswith(where)


def test_a_letter_that_is_too_large_is_not_read() -> None:
    refused = read_report(b" " * (MAX_BYTES + 1))
    assert isinstance(refused, ReportRefusal)
    assert refused.reason is ReportRefusedAs.TOO_LARGE


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_no_bytes_raise(body: bytes) -> None:
    read = read_report(body)
    assert isinstance(read, ReportRefusal)
    assert len(read.detail) <= MAX_DETAIL


@given(st.text(max_size=100))
def test_no_subject_raises(subject: str) -> None:
    sender = sender_of(subject)
    assert sender is None or report_subject(*sender) == subject
