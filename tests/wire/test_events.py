"""Every event is a CloudEvent, with the extensions that order it and say whose it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from jsonschema import Draft202012Validator, ValidationError

from tests.wire.cloud_events import SCHEMA
from wire.events import envelope
from wire.examples import EXAMPLES
from wire.payloads import Payload

RULES = Draft202012Validator(SCHEMA)
EVENT_ID = UUID("7e0d4c4e-8a53-5c55-8d0f-6a1f6c1d2b3a")
AT = datetime(2030, 1, 1, 13, 0, 0, 250_000, tzinfo=timezone(timedelta(hours=1)))


def event(payload: Payload, sequence: int = 7) -> dict[str, Any]:
    return envelope(
        event_id=EVENT_ID,
        topic=payload.topic,
        key=payload.key,
        tenant_id=payload.tenant_id,
        sequence=sequence,
        payload=payload.document(),
        at=AT,
    )


@pytest.mark.parametrize("payload", EXAMPLES, ids=lambda one: type(one).__name__)
def test_every_event_is_a_cloud_event(payload: Payload) -> None:
    told = event(payload)
    RULES.validate(told)
    assert (told["type"], told["subject"], told["id"]) == (payload.topic, payload.key, str(EVENT_ID))
    assert told["dataschema"] == "urn:sco:events:" + payload.topic.replace(".", ":")
    assert told["partitionkey"] == f"{payload.tenant_id}/{payload.key}"
    assert told["tenantid"] == payload.tenant_id == told["data"]["tenantId"]


def test_the_time_is_in_utc() -> None:
    assert event(EXAMPLES[0])["time"] == "2030-01-01T12:00:00.250000Z"
    assert datetime.fromisoformat(event(EXAMPLES[0])["time"]) == AT.astimezone(UTC)


def test_sequences_compare_as_text() -> None:
    numbers = [1, 9, 10, 99, 100, 10**12, 2**63 - 1]
    told = [event(EXAMPLES[0], number)["sequence"] for number in numbers]
    assert told == sorted(told)
    assert [int(one) for one in told] == numbers
    assert len({len(one) for one in told}) == 1


@pytest.mark.parametrize(
    "broken",
    [
        {"id": ""},
        {"source": ""},
        {"specversion": "0.3"},
        {"type": ""},
        {"time": "yesterday"},
        {"time": "2030-01-01T12:00:00"},
        {"dataschema": "no-scheme"},
        {"datacontenttype": "json"},
        {"subject": ""},
        {"tenantId": "platform"},
        {"tenantid": {"name": "platform"}},
        {"data_base64": "aGk="},
    ],
)
def test_the_rules_notice_what_is_no_cloud_event(broken: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RULES.validate(event(EXAMPLES[0]) | broken)
