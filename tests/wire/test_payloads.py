"""What events say: the fields that readers rely on, in the words of the rules, and nothing that is not."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from domain.cause import Cause
from domain.lifecycle import EventType, NoticeKind
from domain.pool import PoolKind, PoolState, PurchaseModel, SecurityBoundary
from domain.pool_life import EvictReason
from domain.reasons import ShortfallReason
from domain.serving.placing import PlacementOutcome
from store.pool_life import MAY_CHANGE
from store.tables import Phase
from tests.domain.worlds import facts
from wire import events, lifecycle
from wire.asyncapi import payload_schema
from wire.examples import EXAMPLES
from wire.payloads import (
    BY_TOPIC,
    PAYLOADS,
    ComputePoolChanged,
    ComputePoolRegistered,
    ComputePoolStateChanged,
    ModelEvicted,
    ModelWarmed,
    NodeDrained,
    NodeLifecycle,
    Payload,
    PlacementDecided,
    PlacementFinished,
)

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "events.md").read_text()
# What the service's own document promises of each event: the field, and whether it is always there.
PROMISED: dict[type[Payload], dict[str, bool]] = {
    ComputePoolRegistered: dict.fromkeys(("poolId", "tenantId", "kind", "region", "securityBoundary"), True),
    ComputePoolStateChanged: dict.fromkeys(("poolId", "tenantId", "fromState", "toState"), True),
    ModelWarmed: dict.fromkeys(("poolId", "tenantId", "model", "vramGb"), True),
    ModelEvicted: dict.fromkeys(("poolId", "tenantId", "model", "reason"), True),
    PlacementDecided: dict.fromkeys(("placementId", "tenantId", "deploymentId", "outcome"), True)
    | {"chosenPoolId": False},
}


def example(payload: type[Payload]) -> Payload:
    return next(one for one in EXAMPLES if type(one) is payload)


@pytest.mark.parametrize("payload", PROMISED)
def test_an_event_says_what_is_promised(payload: type[Payload]) -> None:
    properties = payload_schema(payload)["properties"]
    for name, always in PROMISED[payload].items():
        nullable = {"type": "null"} in properties[name].get("anyOf", ())
        assert nullable is not always, name
    assert set(PROMISED[payload]) <= set(example(payload).document())


@pytest.mark.parametrize(
    ("payload", "field", "words"),
    [
        (ComputePoolRegistered, "kind", PoolKind),
        (ComputePoolRegistered, "securityBoundary", SecurityBoundary),
        (ComputePoolRegistered, "purchaseModel", PurchaseModel),
        (ComputePoolRegistered, "state", PoolState),
        (ComputePoolStateChanged, "fromState", PoolState),
        (ComputePoolStateChanged, "toState", PoolState),
        (PlacementDecided, "outcome", PlacementOutcome),
        (PlacementFinished, "phase", Phase),
        (NodeDrained, "cause", Cause),
    ],
)
def test_the_words_are_those_of_the_rules(payload: type[Payload], field: str, words: type[StrEnum]) -> None:
    assert payload_schema(payload)["properties"][field]["enum"] == [word.value for word in words]


@pytest.mark.parametrize("payload", [one for one in PAYLOADS if issubclass(one, NodeLifecycle)])
def test_an_event_of_a_node_says_whether_its_notice_is_hard_or_advisory(payload: type[NodeLifecycle]) -> None:
    said = payload_schema(payload)["properties"]["noticeKind"]["anyOf"]
    assert [form.get("enum", form.get("type")) for form in said] == [
        [kind.value for kind in NoticeKind],
        "null",
    ]
    for kind in (*NoticeKind, None):
        told = payload.model_validate(example(payload).document() | {"noticeKind": kind})
        assert told.document()["noticeKind"] == kind
    with pytest.raises(ValidationError, match="noticeKind"):
        payload.model_validate(example(payload).document() | {"noticeKind": "withdrawal"})


@pytest.mark.parametrize("reason", [*EvictReason, *ShortfallReason])
def test_reasons_of_the_rules_can_be_said(reason: StrEnum) -> None:
    said = ModelEvicted(tenant_id="platform", pool_id="p-1", model="llama", reason=reason)
    assert said.document()["reason"] == reason.value


def test_a_change_names_what_may_change() -> None:
    change = payload_schema(ComputePoolChanged)["properties"]["changes"]["items"]
    camel = [re.sub(r"_(\w)", lambda found: found[1].upper(), name) for name in MAY_CHANGE]
    assert change["properties"]["name"]["enum"] == camel


def test_what_a_pool_is_fits_into_its_registration() -> None:
    pool = facts()
    said = ComputePoolRegistered(
        **{
            name: getattr(pool, name)
            for name in ComputePoolRegistered.model_fields
            if name in type(pool).model_fields
        }
    )
    assert said.document()["securityBoundary"] == pool.security_boundary.value
    assert said.key == pool.pool_id


def test_every_event_has_a_topic_of_its_own_in_the_stream() -> None:
    topics = {
        value
        for name, value in vars(events).items()
        if name.isupper() and re.search(r"\.v1\.[a-z]", str(value))
    }
    assert set(BY_TOPIC) == topics
    assert len(BY_TOPIC) == len(PAYLOADS) == len(EXAMPLES)
    prefixes = tuple(subject.removesuffix(">") for subject in events.STREAM_SUBJECTS)
    rooms = r"compute-pools\.(pools|cache|placement|nodes)|lifecycle\.nodes"
    for topic in topics:
        assert re.fullmatch(rf"({rooms})\.v1\.[a-z]+(-[a-z]+)*", topic)
        assert topic.startswith(prefixes)


def test_the_topics_of_nodes_are_those_that_their_own_letters_name() -> None:
    kinds = (EventType.NOTICE, EventType.DRAINED, EventType.OVERRUN, EventType.NO_NOTICE)
    told = {f"{lifecycle.TOPIC_PREFIX}.{kind.replace('_', '-')}" for kind in kinds}
    assert told == {one.topic for one in PAYLOADS if issubclass(one, NodeLifecycle)}


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_document_reads_back_as_what_it_was(payload: type[Payload]) -> None:
    said = example(payload)
    assert payload.model_validate(said.document()) == said
    assert said.key == str(getattr(said, payload.key_field))


@pytest.mark.parametrize(
    ("payload", "changed", "told"),
    [
        (ComputePoolStateChanged, {"toState": "gone"}, "toState"),
        (ComputePoolStateChanged, {"version": 0}, "version"),
        (ComputePoolChanged, {"changes": ()}, "changes"),
        (ModelWarmed, {"vramGb": 0}, "vramGb"),
        (ModelWarmed, {"model": "m" * 256}, "model"),
        (ModelWarmed, {"surprise": 1}, "surprise"),
        (ModelEvicted, {"reason": "It was idle."}, "reason"),
        (PlacementDecided, {"chosenPoolId": None}, "chosenPoolId"),
        (PlacementDecided, {"outcome": "no_capacity"}, "no_capacity"),
    ],
)
def test_what_readers_could_not_use_is_never_said(
    payload: type[Payload], changed: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValidationError, match=told):
        payload.model_validate(example(payload).document() | changed)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_the_page_lists_the_fields_of_every_event(payload: type[Payload]) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{payload.topic}` |"))
    fields = row.split("|")[3]
    listed = re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", fields))
    assert set(listed) == set(example(payload).document())


def test_the_page_lists_every_event_and_no_other() -> None:
    assert set(re.findall(r"^\| `((?:compute-pools|lifecycle)\.\S+)` \|", PAGE, re.MULTILINE)) == set(
        BY_TOPIC
    )
