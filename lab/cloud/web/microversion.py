"""Nova's microversions: which one a request asks for, and the headers that answer it."""

from __future__ import annotations

import re
from enum import IntEnum

from starlette.datastructures import Headers
from starlette.responses import Response

from lab.cloud.errors import CloudError

MINIMUM = 1
MAXIMUM = 100
"""Minor numbers of version 2: 2.1 to 2.100."""


class Since(IntEnum):
    """The minor microversion at which Nova changed something that is simulated here."""

    LOCKED = 9
    DESCRIPTION = 19
    ACTIONS_OF_DELETED = 21
    TAGS = 26
    NETWORKS_REQUIRED = 37
    STATUS_CHECKED = 38
    FLAVOR_EMBEDDED = 47
    TAGS_AT_CREATE = 52
    FLAVOR_DESCRIPTION = 55
    FLAVOR_EXTRA_SPECS = 61
    TRUSTED_CERTIFICATES = 63
    SERVER_GROUPS = 71
    LOCKED_REASON = 73
    UNKNOWN_REFUSED = 75
    MEMBER_FILTERS = 83
    HOSTNAME = 90
    PINNED_ZONE = 96
    IMAGE_PROPERTIES = 98
    SCHEDULER_HINTS = 100


_MODERN = "OpenStack-API-Version"
_LEGACY = "X-OpenStack-Nova-API-Version"


def asked_for(headers: Headers) -> int:
    """The minor microversion of a request; 400 for nonsense, 406 outside the supported range."""
    wanted = _wanted(headers)
    if wanted is None:
        return MINIMUM
    if wanted == "latest":
        return MAXIMUM
    match = re.fullmatch(r"[1-9]\d*\.([1-9]\d*|0)", wanted)
    if match is None:
        raise CloudError(
            400, f"API Version String {wanted} is of invalid format. Must be of format MajorNum.MinorNum."
        )
    minor = int(match[1])
    if not wanted.startswith("2.") or not MINIMUM <= minor <= MAXIMUM:
        raise CloudError(
            406,
            f"Version {wanted} is not supported by the API."
            f" Minimum is 2.{MINIMUM} and maximum is 2.{MAXIMUM}.",
        )
    return minor


def stamp(response: Response, minor: int) -> None:
    response.headers[_MODERN] = f"compute 2.{minor}"
    response.headers[_LEGACY] = f"2.{minor}"
    response.headers["Vary"] = f"{_MODERN}, {_LEGACY}"


def _wanted(headers: Headers) -> str | None:
    for part in headers.get(_MODERN, "").split(","):
        service, _, version = part.strip().partition(" ")
        if service.lower() == "compute":
            return version.strip()
    return headers.get(_LEGACY)
