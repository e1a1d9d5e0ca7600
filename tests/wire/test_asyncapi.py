"""The committed description of the events is that of the code, whole in itself, and its examples hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator, Draft202012Validator, ValidationError

from tests.wire.cloud_events import SCHEMA
from wire import asyncapi
from wire.events import schema_urn
from wire.payloads import BY_TOPIC, PAYLOADS, Payload

COMMITTED = Path(__file__).parents[2] / "docs" / "reference" / "asyncapi.yaml"
DOCUMENT: dict[str, Any] = yaml.safe_load(COMMITTED.read_text(encoding="utf-8"))
MESSAGES: dict[str, dict[str, Any]] = DOCUMENT["components"]["messages"]


def test_the_committed_description_is_that_of_the_code() -> None:
    assert COMMITTED.read_text(encoding="utf-8") == asyncapi.document(), "run: make asyncapi"
    assert asyncapi.description() == DOCUMENT


def test_the_program_writes_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "deep" / "asyncapi.yaml"
    assert asyncapi.main([str(target)]) == 0
    assert target.read_text(encoding="utf-8") == asyncapi.document()
    assert asyncapi.main([]) == 2
    assert "usage" in capsys.readouterr().err


def references(part: object) -> Iterator[str]:
    if isinstance(part, dict):
        if "$ref" in part:
            assert set(part) == {"$ref"}, "what stands beside a reference is not read"
            yield part["$ref"]
        for one in part.values():
            yield from references(one)
    elif isinstance(part, list):
        for one in part:
            yield from references(one)


def resolved(reference: str) -> Any:
    assert reference.startswith("#/")
    part: Any = DOCUMENT
    for name in reference.removeprefix("#/").split("/"):
        part = part[name]
    return part


def test_every_reference_leads_somewhere() -> None:
    found = list(references(DOCUMENT))
    assert len(found) >= 6 * len(PAYLOADS)
    for reference in found:
        assert isinstance(resolved(reference), dict), reference


def test_it_has_the_parts_that_the_specification_asks_for() -> None:
    assert DOCUMENT["asyncapi"] == "3.0.0"
    assert {"title", "version"} <= set(DOCUMENT["info"])
    for server in DOCUMENT["servers"].values():
        assert {"host", "protocol"} <= set(server)
        for name, variable in server["variables"].items():
            assert f"{{{name}}}" in server["host"]
            assert variable["default"]


def test_every_topic_is_a_channel_with_one_message_that_is_sent() -> None:
    channels = DOCUMENT["channels"]
    assert {one["address"] for one in channels.values()} == set(BY_TOPIC)
    told = []
    for operation in DOCUMENT["operations"].values():
        assert operation["action"] == "send"
        channel = operation["channel"]["$ref"].removeprefix("#/channels/")
        ((name, message),) = channels[channel]["messages"].items()
        assert [one["$ref"] for one in operation["messages"]] == [f"#/channels/{channel}/messages/{name}"]
        assert resolved(message["$ref"])["name"] == BY_TOPIC[channels[channel]["address"]].__name__
        told.append(channel)
    assert sorted(told) == sorted(channels)


@pytest.mark.parametrize("name", DOCUMENT["components"]["schemas"])
def test_every_schema_is_one_of_both_drafts(name: str) -> None:
    """The newest draft, and the one that AsyncAPI reads."""
    schema = DOCUMENT["components"]["schemas"][name]
    Draft202012Validator.check_schema(schema)
    Draft7Validator.check_schema(schema)


def whole(name: str) -> Draft202012Validator:
    """A validator of one event, with the references of the document."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    return Draft202012Validator(schema)


@pytest.mark.parametrize("name", MESSAGES)
def test_the_examples_hold(name: str) -> None:
    message = MESSAGES[name]
    for shown in message["examples"]:
        whole(name).validate(shown["payload"])
        whole("Headers").validate(shown["headers"])
        Draft202012Validator(SCHEMA).validate(shown["payload"])
        assert shown["headers"]["Content-Type"] == message["contentType"]


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda one: one.__name__)
def test_an_event_names_the_schema_of_its_data(payload: type[Payload]) -> None:
    schema = DOCUMENT["components"]["schemas"][f"{payload.__name__}Data"]
    assert schema["$id"] == schema_urn(payload.topic)
    shown = MESSAGES[payload.__name__]["examples"][0]["payload"]
    assert shown["dataschema"] == schema["$id"]
    Draft202012Validator(schema).validate(shown["data"])
    for field in schema["required"]:
        with pytest.raises(ValidationError):
            Draft202012Validator(schema).validate(
                {name: value for name, value in shown["data"].items() if name != field}
            )


@pytest.mark.parametrize("name", MESSAGES)
def test_what_is_added_later_breaks_no_reader(name: str) -> None:
    shown = MESSAGES[name]["examples"][0]["payload"]
    whole(name).validate(shown | {"later": "x", "data": shown["data"] | {"addedLater": 1}})


@pytest.mark.parametrize("attribute", ["id", "tenantid", "partitionkey", "sequence", "subject", "data"])
def test_an_event_without_what_readers_need_is_refused(attribute: str) -> None:
    for name, message in MESSAGES.items():
        shown = dict(message["examples"][0]["payload"])
        del shown[attribute]
        assert not whole(name).is_valid(shown), name
