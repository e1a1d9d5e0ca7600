"""The rules of CloudEvents 1.0 for events in structured JSON, as a JSON Schema."""

from __future__ import annotations

from typing import Any

TEXT = {"type": "string", "minLength": 1}
# RFC 3339, of which `time` is a timestamp; RFC 3986, of which `source` is a reference and `dataschema` a URI.
TIMESTAMP = r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$"
URI_CHARACTERS = r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]"
MEDIA_TYPE = r"^[\w.+-]+/[\w.+-]+(\s*;.*)?$"

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["id", "source", "specversion", "type"],
    "properties": {
        "id": TEXT,
        "source": TEXT | {"pattern": f"^{URI_CHARACTERS}+$"},
        "specversion": {"const": "1.0"},
        "type": TEXT,
        "datacontenttype": TEXT | {"pattern": MEDIA_TYPE},
        "dataschema": TEXT | {"pattern": f"^[A-Za-z][A-Za-z0-9+.-]*:{URI_CHARACTERS}+$"},
        "subject": TEXT,
        "time": TEXT | {"pattern": TIMESTAMP},
        "data": {},
        "data_base64": TEXT,
    },
    # Attributes are named with lower-case letters and digits, 20 at most, and are no structures.
    "propertyNames": {"anyOf": [{"pattern": "^[a-z0-9]{1,20}$"}, {"const": "data_base64"}]},
    "additionalProperties": {"type": ["string", "integer", "boolean"]},
    "not": {"required": ["data", "data_base64"]},
}
