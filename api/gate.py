"""What is refused before any handler runs: foreign hosts and pages, other media types, large bodies.

Every page in a browser can reach a service on its own machine or network, with the cookies of the person
who looks at it. So the Host must be a name that we are served under (or a page could rebind its own name to
us), and a request that may change something must not come from another site's page.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import problems
from api.problems import Problem
from api.refusals import answer
from wire.node_requests import MAX_BODY_BYTES

MIB = 1024 * 1024
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITE = frozenset({"same-origin", "none"})


class BodyRule(NamedTuple):
    """How large a body may be and which media types it may have."""

    max_bytes: int
    media_types: tuple[str, ...]


ORDINARY = BodyRule(MIB, ("application/json",))
CLAIM_LIST = BodyRule(64 * MIB, ("application/json", "application/yaml", "text/yaml"))
# What the screens' own forms send, and nothing else takes: other sites' forms would send the same.
FORM = BodyRule(MIB // 16, ("application/x-www-form-urlencoded",))
SCREENS = "/ui/"
# The provider repeats user-data and metadata of an instance; what nodes send is a few lines.
NODES = "/nodes/"
VENDORDATA = "/nodes/vendordata"
INSTANCE = BodyRule(MIB // 4, ("application/json",))
NODE = BodyRule(MAX_BODY_BYTES, ("application/json",))
_CLAIM_PATH = re.compile(r"/workloads/[^/]+/claims")


def body_rule(path: str) -> BodyRule:
    """Lists of pending work are large; every other body is a small document, or a form of the screens."""
    if path.startswith(SCREENS):
        return FORM
    if path.startswith(NODES):
        return INSTANCE if path == VENDORDATA else NODE
    return CLAIM_LIST if _CLAIM_PATH.fullmatch(path) else ORDINARY


class Gate:
    """Checks the head of every request, and counts its body while it is read."""

    def __init__(self, app: ASGIApp, names: frozenset[str] = LOOPBACK_NAMES) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        rule = body_rule(scope["path"])
        headers = Headers(scope=scope)
        refusal = _foreign_host(headers, self._names) or check_head(scope["method"], headers, rule)
        if refusal is not None:
            await answer(Request(scope), refusal)(scope, receive, send)
            return
        await self._app(scope, _counting(receive, rule.max_bytes), send)


def check_head(method: str, headers: Headers, rule: BodyRule) -> Problem | None:
    """Why a request is refused by its head alone, or None."""
    return (
        (None if method in SAFE_METHODS else _foreign_page(headers))
        or _wrong_media_type(headers, rule)
        or _too_large(headers, rule)
    )


def _host_of(authority: str) -> str | None:
    """The name in `name`, `name:port` or `[::1]:port`; None where it is no such thing."""
    try:
        return urlsplit(f"//{authority}").hostname
    except ValueError:
        return None


def _foreign_host(headers: Headers, names: frozenset[str]) -> Problem | None:
    if _host_of(headers.get("host", "")) in names:
        return None
    allowed = ", ".join(sorted(names))
    return Problem(problems.FOREIGN_HOST, f"the Host header names another host; allowed are {allowed}")


def _foreign_page(headers: Headers) -> Problem | None:
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    own = origin is None or origin.partition("://")[2] == headers.get("host")
    if own and (site is None or site in OWN_SITE):
        return None
    return Problem(
        problems.FOREIGN_ORIGIN, "a page of another site sent this; its Origin must be this service's own"
    )


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _wrong_media_type(headers: Headers, rule: BodyRule) -> Problem | None:
    if not _has_body(headers):
        return None
    given = headers.get("content-type", "").partition(";")[0].strip().lower()
    if given in rule.media_types:
        return None
    shown = f"{given[:80]!a}" if given else "missing"
    allowed = ", ".join(rule.media_types)
    return Problem(
        problems.WRONG_MEDIA_TYPE,
        f"the Content-Type is {shown}; allowed here are {allowed}",
        headers={"Accept-Post": allowed},
    )


def too_large(rule_bytes: int) -> Problem:
    return Problem(
        problems.TOO_LARGE, f"the body is larger than {rule_bytes:,} bytes, the limit of this path"
    )


def _too_large(headers: Headers, rule: BodyRule) -> Problem | None:
    declared = headers.get("content-length", "0")
    if not declared.isascii() or not declared.isdigit():
        return Problem(problems.UNREADABLE, "the Content-Length is not a whole number")
    return too_large(rule.max_bytes) if int(declared[:20]) > rule.max_bytes else None


def _counting(receive: Receive, max_bytes: int) -> Receive:
    """Bodies without a declared length are counted as they arrive."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > max_bytes:
                raise _BodyTooLarge(max_bytes)
        return message

    return counted


class _BodyTooLarge(problems.Refused):
    """Raised while a body is read, through whoever reads it."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(too_large(max_bytes))
