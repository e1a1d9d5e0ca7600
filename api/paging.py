"""Pages of a listing: opaque tokens that say where it goes on, bound to the filters they were made for."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from pydantic import Field

from api import problems
from api.problems import Problem
from api.shapes import Body

MAX_TOKEN = 512
T = TypeVar("T")


class PageQuery(Body):
    """Which page of a listing: its size, and the token that the page before it gave."""

    page_size: Annotated[int, Field(ge=1, le=1000)] = 200
    page_token: Annotated[str, Field(max_length=MAX_TOKEN)] | None = None


def listing_key(name: str, filters: object = "") -> str:
    """A short name for one listing with its filters."""
    return hashlib.sha256(f"{name}/{filters}".encode()).hexdigest()[:16]


def page_token(listing: str, after: str) -> str:
    """The token of the page that starts behind the id `after`."""
    text = json.dumps([listing, after], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def after_of(token: str | None, listing: str) -> str:
    """The id behind which a page starts; a problem for a token of another listing, or for none at all."""
    if token is None:
        return ""
    try:
        padded = token + "=" * (-len(token) % 4)
        made_for, after = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise _refused("is not one of ours") from None
    if made_for != listing:
        raise _refused("belongs to a listing with other filters or another path")
    if not isinstance(after, str) or not after.isprintable():
        raise _refused("is not one of ours")
    return after


def _refused(why: str) -> Problem:
    return Problem(problems.BAD_PAGE_TOKEN, f"the pageToken {why}")


def cut(
    found: Sequence[T], query: PageQuery, listing: str, id_of: Callable[[T], str]
) -> tuple[Sequence[T], str | None]:
    """One page of what was `found` from its start on, and the token of the next if there is more."""
    page = found[: query.page_size]
    return page, page_token(listing, id_of(page[-1])) if len(found) > query.page_size else None
