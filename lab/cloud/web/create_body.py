"""Reading the body of a server create, refusing what Nova refuses."""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from typing import Any

from lab.cloud.errors import CloudError
from lab.cloud.estate import Flavor
from lab.cloud.launch import Launch
from lab.cloud.region import Region
from lab.cloud.reserved import is_offered
from lab.cloud.web.microversion import Since

MAX_USER_DATA = 65_535
MAX_METADATA = 128
MAX_TAGS = 50
MAX_TAG_LENGTH = 60
MAX_TEXT = 255
NO_IMAGE = uuid.UUID(int=0)

_HINTS = ("os:scheduler_hints", "OS-SCH-HNT:scheduler_hints")
_PROPERTIES: dict[str, int] = {
    "name": 1,
    "flavorRef": 1,
    "imageRef": 1,
    "metadata": 1,
    "networks": 1,
    "availability_zone": 1,
    "user_data": 1,
    "key_name": 1,
    "config_drive": 1,
    "security_groups": 1,
    "min_count": 1,
    "max_count": 1,
    "return_reservation_id": 1,
    "OS-DCF:diskConfig": 1,
    "adminPass": 1,
    "accessIPv4": 1,
    "accessIPv6": 1,
    "block_device_mapping_v2": 1,
    "description": Since.DESCRIPTION,
    "tags": Since.TAGS_AT_CREATE,
    "hostname": Since.HOSTNAME,
}
"""Properties of a create and the minor microversion each appeared in."""


def read_create(body: dict[str, Any], region: Region, minor: int, owner: tuple[str, str, str]) -> Launch:
    """The launch that `body` asks for; `owner` is project, user and request id. 400 when invalid."""
    asked = body.get("server")
    if not isinstance(asked, dict):
        raise _invalid("server", asked, "'server' is a required property")
    _check_properties(asked, minor)
    low, high = _counts(asked)
    project_id, user_id, request_id = owner
    hints: object = next((body[name] for name in _HINTS if name in body), {})
    return Launch(
        name=_text(asked, "name", MAX_TEXT).strip(),
        flavor=_flavor(asked, region, project_id),
        image_id=_image(asked),
        project_id=project_id,
        user_id=user_id,
        request_id=request_id,
        min_count=low,
        max_count=high,
        zone=_optional_text(asked, "availability_zone", MAX_TEXT),
        metadata=read_metadata(asked.get("metadata", {})),
        tags=read_tags(asked.get("tags", [])),
        user_data=_user_data(asked.get("user_data")),
        hints=hints if isinstance(hints, dict) else {},
        description=_optional_text(asked, "description", MAX_TEXT),
        hostname=_optional_text(asked, "hostname", MAX_TEXT),
        key_name=_optional_text(asked, "key_name", MAX_TEXT),
        networked=asked.get("networks", "none") not in ("none", []),
    )


def read_metadata(value: object) -> dict[str, str]:
    """Up to 128 entries of text, keys of 1 to 255 characters and values of up to 255."""
    if not isinstance(value, dict):
        raise _invalid("metadata", value, f"{value!r} is not of type 'object'")
    if len(value) > MAX_METADATA:
        raise CloudError(403, f"Maximum number of metadata items exceeds {MAX_METADATA}")
    for key, text in value.items():
        if not re.fullmatch(r"[a-zA-Z0-9-_:. ]{1,255}", key):
            raise _invalid("metadata", key, f"{key!r} does not match any of the regexes")
        if not isinstance(text, str) or len(text) > MAX_TEXT:
            raise _invalid(key, text, f"{text!r} is not of type 'string' of at most {MAX_TEXT} characters")
    return dict(value)


def read_tags(value: object) -> tuple[str, ...]:
    """Up to 50 tags; one that is given twice counts once."""
    if not isinstance(value, list):
        raise _invalid("tags", value, f"{value!r} is not of type 'array'")
    if len(value) > MAX_TAGS:
        raise _invalid("tags", value, f"{value!r} is too long")
    for tag in value:
        check_tag(tag)
    return tuple(dict.fromkeys(value))


def check_tag(tag: object) -> None:
    if not isinstance(tag, str) or not 1 <= len(tag) <= MAX_TAG_LENGTH or not re.fullmatch(r"[^,/]+", tag):
        raise _invalid("0", tag, f"{tag!r} must have 1 to {MAX_TAG_LENGTH} characters without '/' and ','")


def _check_properties(asked: dict[str, Any], minor: int) -> None:
    for name in asked:
        if _PROPERTIES.get(name, minor + 1) > minor:
            raise _invalid("server", name, f"Additional properties are not allowed ({name!r} was unexpected)")
    required = ["name", "flavorRef"] + (["networks"] if minor >= Since.NETWORKS_REQUIRED else [])
    for name in required:
        if name not in asked:
            raise _invalid("server", sorted(asked), f"{name!r} is a required property")


def _counts(asked: dict[str, Any]) -> tuple[int, int]:
    low = _count(asked, "min_count", 1)
    high = _count(asked, "max_count", low)
    if low > high:
        raise CloudError(400, "min_count must be <= max_count")
    return low, high


def _count(asked: dict[str, Any], name: str, default: int) -> int:
    value = asked.get(name, default)
    if isinstance(value, bool) or not re.fullmatch(r"[1-9]\d{0,9}", str(value)):
        raise _invalid(name, value, f"{value!r} is not a positive integer")
    return int(value)


def _flavor(asked: dict[str, Any], region: Region, project_id: str) -> Flavor:
    reference = str(asked["flavorRef"]).rstrip("/").rsplit("/", 1)[-1]
    found = region.flavors.get(reference)
    if found is None or not is_offered(region.leases, found, project_id):
        raise CloudError(400, f"Flavor {reference} could not be found.")
    return found


def _image(asked: dict[str, Any]) -> str:
    """Any UUID but the nil one counts as an image: there is no image service here."""
    image = str(asked.get("imageRef", "") or "")
    if not image:
        raise CloudError(400, "Missing imageRef attribute")
    try:
        found = uuid.UUID(image.rsplit("/", 1)[-1])
    except ValueError as error:
        problem = f"{image!r} is not valid under any of the given schemas"
        raise _invalid("imageRef", image, problem) from error
    if found == NO_IMAGE:
        raise CloudError(400, "Can not find requested image")
    return str(found)


def _user_data(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > MAX_USER_DATA:
        raise _invalid("user_data", "...", f"'...' is too long: at most {MAX_USER_DATA} characters")
    try:
        base64.b64decode(value)
    except binascii.Error as error:
        raise _invalid("user_data", value, f"{value!r} is not a 'base64'") from error
    return value


def _text(asked: dict[str, Any], name: str, longest: int) -> str:
    value = asked[name]
    if not isinstance(value, str) or not 1 <= len(value.strip()) <= longest:
        raise _invalid(name, value, f"{value!r} must be text of 1 to {longest} characters")
    return value


def _optional_text(asked: dict[str, Any], name: str, longest: int) -> str | None:
    return _text(asked, name, longest) if asked.get(name) is not None else None


def _invalid(field: str, value: object, problem: str) -> CloudError:
    return CloudError(400, f"Invalid input for field/attribute {field}. Value: {value}. {problem}")
