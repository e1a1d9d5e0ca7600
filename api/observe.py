"""The outermost layer: a request id, one log line, two metrics, and an answer whatever happens inside."""

from __future__ import annotations

import re
import time
import traceback
from http import HTTPStatus
from pathlib import Path
from uuid import uuid4

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.refusals import answer, problem_of

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
QUIET_ROUTES = frozenset({"/healthz", "/readyz"})
# The provider asks at every poll of every agent: what goes well there is counted alone.
POLLED_ROUTES = frozenset({"/nodes/vendordata"})
UNMATCHED = "unmatched"
MAX_FRAMES = 12
BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SAFE_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self';"
        " base-uri 'none'; frame-ancestors 'none'"
    ),
}
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
log = structlog.get_logger("api")


class BrokenAnswer(Exception):
    """An answer that could not be completed after it had begun."""


class HttpMetrics:
    """Counts by route template, so that ids in paths do not become labels."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "sco_http_requests_total", "Answered requests", ["route", "method", "status"], registry=registry
        )
        self.seconds = Histogram(
            "sco_http_request_duration_seconds",
            "Time from the first byte in to the last byte out",
            ["route", "method"],
            buckets=BUCKETS_SECONDS,
            registry=registry,
        )


class Observe:
    """Wraps the whole application, so that nothing leaves it unanswered, uncounted or unlogged."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(Headers(scope=scope).get("x-request-id", ""))
        scope.setdefault("state", {})["request_id"] = request_id
        answered = _Answered(send, request_id)
        started = time.perf_counter()
        try:
            await self._app(scope, receive, answered.send)
        except Exception as error:
            log.error(
                "request_failed", request_id=request_id, error=type(error).__name__, where=frames_of(error)
            )
            if answered.status is None:
                await answer(Request(scope), problem_of(error))(scope, receive, answered.send)
            elif not answered.complete:
                # Half an answer is out: only a connection that breaks off tells the caller.
                raise BrokenAnswer(f"answer of request {request_id} broke off") from None
        finally:
            self._record(scope, answered.status, time.perf_counter() - started)

    def _record(self, scope: Scope, status: int | None, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", UNMATCHED)
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._metrics.requests.labels(route, method, str(status or 0)).inc()
        self._metrics.seconds.labels(route, method).observe(seconds)
        if route not in QUIET_ROUTES and not (route in POLLED_ROUTES and status == HTTPStatus.OK):
            log.info(
                "request",
                request_id=scope["state"]["request_id"],
                method=method,
                path=scope["path"],
                route=route,
                status=status,
                duration_ms=round(seconds * 1000, 1),
            )


class _Answered:
    """Sends on what the application answers, with our headers, and remembers the status."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self.status: int | None = None
        self.complete = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = int(message["status"])
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self._request_id
            for name, value in SAFE_HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.complete = True


def frames_of(error: BaseException) -> list[str]:
    """Where an error came from. Its text stays out: it may repeat what a body or an address holds."""
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    return [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]


def _request_id(given: str) -> str:
    """The caller's id where it is a plain one, else a new one."""
    return given if _REQUEST_ID.fullmatch(given) else uuid4().hex
