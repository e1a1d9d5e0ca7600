"""The committed description of the events: `python -m wire.asyncapi PATH` writes it from the code."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml

from wire.events import CONTENT_TYPE, SEQUENCE_DIGITS, SOURCE, STREAM, envelope, schema_urn
from wire.examples import EXAMPLES
from wire.payloads import PAYLOADS, Payload

USAGE = "usage: python -m wire.asyncapi PATH"
VERSION = "1.0.0"
HEADER = "# Written by `make asyncapi` from wire/payloads.py; edit that, not this.\n"
AT = datetime(2030, 1, 1, 12, tzinfo=UTC)
EVENT_ID = UUID("7e0d4c4e-8a53-5c55-8d0f-6a1f6c1d2b3a")
Schema = dict[str, Any]
DESCRIPTION = f"""\
Facts about compute pools, the models on them, placements, and nodes that are taken back. Each is written in
the transaction of what it tells of and published afterwards to the JetStream stream {STREAM}, at least once
and, for one partitionkey, in order. A consumer drops repeats by `id`, and leaves aside what it does not know.
"""


def document() -> str:
    """The AsyncAPI document as it is committed."""
    return HEADER + yaml.dump(description(), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def description() -> Schema:
    """The document as plain data: one channel, one operation and one message for each event."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Events of the compute pool service",
            "version": VERSION,
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": CONTENT_TYPE,
        "servers": {
            "nats": {
                "host": "{host}",
                "protocol": "nats",
                "description": f"NATS with JetStream; the stream is {STREAM}.",
                "variables": {
                    "host": {"default": "localhost:4222", "description": "as SCO_NATS_URL names it"}
                },
            }
        },
        "channels": {_lower(one): _channel(one) for one in PAYLOADS},
        "operations": {f"tell{one.__name__}": _operation(one) for one in PAYLOADS},
        "components": {
            "messages": {one.__name__: _message(one) for one in PAYLOADS},
            "schemas": {"CloudEvent": _cloud_event(), "Headers": _headers()}
            | {name: schema for one in PAYLOADS for name, schema in _schemas(one).items()},
        },
    }


def payload_schema(payload: type[Payload]) -> Schema:
    """The JSON Schema of a payload, whole in itself, and open to fields that are added later."""
    schema = payload.model_json_schema(by_alias=True, mode="serialization")
    opened: Schema = _opened(_inlined(schema, schema.pop("$defs", {})))
    return {"$id": schema_urn(payload.topic)} | opened


def example(payload: Payload, sequence: int) -> Schema:
    """One event as it stands in the stream."""
    return envelope(
        event_id=EVENT_ID,
        topic=payload.topic,
        key=payload.key,
        tenant_id=payload.tenant_id,
        sequence=sequence,
        payload=payload.document(),
        at=AT,
    )


def _channel(payload: type[Payload]) -> Schema:
    name = payload.__name__
    return {
        "address": payload.topic,
        "summary": payload.summary,
        "messages": {_lower(payload): {"$ref": f"#/components/messages/{name}"}},
    }


def _operation(payload: type[Payload]) -> Schema:
    channel = f"#/channels/{_lower(payload)}"
    return {
        "action": "send",
        "summary": payload.summary,
        "channel": {"$ref": channel},
        "messages": [{"$ref": f"{channel}/messages/{_lower(payload)}"}],
    }


def _message(payload: type[Payload]) -> Schema:
    name = payload.__name__
    shown = next(one for one in EXAMPLES if type(one) is payload)
    return {
        "name": name,
        "title": name,
        "summary": payload.summary,
        "contentType": CONTENT_TYPE,
        "headers": {"$ref": "#/components/schemas/Headers"},
        "payload": {"$ref": f"#/components/schemas/{name}"},
        "examples": [
            {
                "headers": {"Nats-Msg-Id": str(EVENT_ID), "Content-Type": CONTENT_TYPE},
                "payload": example(shown, 1 + EXAMPLES.index(shown)),
            }
        ],
    }


def _schemas(payload: type[Payload]) -> dict[str, Schema]:
    """The schema of the whole event, and that of its data."""
    name = payload.__name__
    properties: Schema = {
        "type": {"const": payload.topic},
        "subject": {"description": f"the {payload.key_field} of the event"},
        "dataschema": {"const": schema_urn(payload.topic)},
        "data": {"$ref": f"#/components/schemas/{name}Data"},
    }
    whole = {"allOf": [{"$ref": "#/components/schemas/CloudEvent"}, {"properties": properties}]}
    return {name: whole, f"{name}Data": payload_schema(payload)}


def _cloud_event() -> Schema:
    texts: Schema = {
        "specversion": {"type": "string", "const": "1.0"},
        "id": {"type": "string", "format": "uuid", "description": "of the event, however often it comes"},
        "source": {"type": "string", "format": "uri-reference", "const": SOURCE},
        "type": {"type": "string", "minLength": 1, "description": "the topic"},
        "subject": {"type": "string", "minLength": 1, "description": "id of what it is about, in its tenant"},
        "time": {"type": "string", "format": "date-time", "description": "when it was written, UTC"},
        "datacontenttype": {"type": "string", "const": "application/json"},
        "dataschema": {"type": "string", "format": "uri", "description": "$id of the schema of data"},
        "tenantid": {"type": "string", "minLength": 1},
        "partitionkey": {"type": "string", "description": "tenant and subject: events of one come in order"},
        "sequence": {
            "type": "string",
            "pattern": f"^[0-9]{{{SEQUENCE_DIGITS}}}$",
            "description": "place in the order of its partitionkey, compared as text; it has gaps",
        },
    }
    properties = texts | {"data": {"type": "object"}}
    return {"type": "object", "required": list(properties), "properties": properties}


def _headers() -> Schema:
    return {
        "type": "object",
        "required": ["Nats-Msg-Id", "Content-Type"],
        "properties": {
            "Nats-Msg-Id": {"type": "string", "format": "uuid", "description": "the id of the event"},
            "Content-Type": {"type": "string", "const": CONTENT_TYPE},
        },
    }


def _inlined(part: Any, definitions: Schema) -> Any:
    """The same schema with every reference replaced by what it refers to."""
    if isinstance(part, list):
        return [_inlined(one, definitions) for one in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _inlined(definitions[part["$ref"].rpartition("/")[2]], definitions)
    return {name: _inlined(one, definitions) for name, one in part.items()}


def _opened(part: Any) -> Any:
    """A schema without titles, which repeat names, and without a ban on fields that come later."""
    if isinstance(part, list):
        return [_opened(one) for one in part]
    if not isinstance(part, dict):
        return part
    left_out = {"additionalProperties"} | ({"title"} if isinstance(part.get("title"), str) else set())
    return {name: _opened(one) for name, one in part.items() if name not in left_out}


def _lower(payload: type[Payload]) -> str:
    return payload.__name__[0].lower() + payload.__name__[1:]


class _Dumper(yaml.SafeDumper):
    """Writes long texts as blocks, and every value where it stands."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, data: str) -> yaml.ScalarNode:
    """What begins like a number is quoted: readers of other YAML versions would take it for one."""
    style = "|" if "\n" in data else "'" if data[:1].isdigit() else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _text)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(USAGE, file=sys.stderr)
        return 2
    path = Path(arguments[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document(), encoding="utf-8")
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
