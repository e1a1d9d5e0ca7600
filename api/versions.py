"""Versions in headers: the strong ETag of what was read, and the If-Match of who changes it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from fastapi import Header

MAX_DIGITS = 18  # fits a bigint

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=64,
        description='The ETag of what is changed, such as "3", or * for any version. Without it: 428.',
    ),
]


class Matching(StrEnum):
    """What an If-Match says besides a version."""

    MISSING = "missing"
    ANY = "*"
    NO_TAG = "no_tag"


def etag(version: int) -> str:
    """The strong tag of a version."""
    return f'"{version}"'


def matched(header: str | None) -> int | Matching:
    """The version that an If-Match names; weak tags and lists of tags name none."""
    tag = (header or "").strip()
    if not tag:
        return Matching.MISSING
    if tag == Matching.ANY:
        return Matching.ANY
    number = tag[1:-1] if len(tag) > len('""') and tag[0] == tag[-1] == '"' else ""
    if number.isascii() and number.isdigit() and len(number) <= MAX_DIGITS:
        return int(number)
    return Matching.NO_TAG
