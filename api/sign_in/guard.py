"""Nobody gets past without being known: authentication before a route, and what the route needs at it.

Both stand in one place each. Nothing but the open paths is reached without a principal, and every route
asks the table in `needs`, which an application without a line for each of its routes does not pass.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

import structlog
from fastapi import Request
from prometheus_client import CollectorRegistry, Counter
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from api import problems
from api.gate import SAFE_METHODS
from api.problems import Problem
from api.refusals import answer, problem_of
from api.sign_in.keys import KeysUnavailable
from api.sign_in.needs import CALLERS, Caller, caller_at, is_open, need_of
from api.sign_in.node_door import NodeDoor
from api.sign_in.principal import Principal, lacking
from api.sign_in.refusal import Reason, TokenRefused
from api.sign_in.session import Sessions
from api.sign_in.tokens import TokenVerifier

CHALLENGE = "WWW-Authenticate"
# RFC 6455: the policy of this side refuses it.
NOT_FOR_SOCKETS = 1008
_BEARER = re.compile(r"bearer +(\S+)", re.IGNORECASE)
log = structlog.get_logger("api")


class SignInMetrics:
    """Counts refusals by reason. One for a process, whatever it serves."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._refused = Counter(
            "sco_sign_in_refused_total",
            "Requests refused for who asked",
            ["reason"],
            registry=registry,
        )
        for reason in Reason:
            self._refused.labels(reason.value)

    def refused(self, reason: Reason) -> None:
        self._refused.labels(reason.value).inc()


@dataclass(frozen=True, slots=True)
class Doorkeeper:
    """What tells one caller from another. Without `sessions` nobody signs in at the screens."""

    verifier: TokenVerifier
    sessions: Sessions | None = None

    async def principal_of(self, request: Request) -> Principal:
        """Raises `TokenRefused` or `KeysUnavailable`. A token counts, whatever a cookie beside it says."""
        given = request.headers.getlist("authorization")
        if given:
            return await self.verifier.verify(_token_of(given))
        if self.sessions is not None and self.sessions.is_given(request):
            return self.sessions.principal(request)
        raise TokenRefused(Reason.MISSING)


class Guard:
    """Lets through whom the doorkeeper knows, as `request.state.principal`."""

    def __init__(self, app: ASGIApp, doorkeeper: Doorkeeper, metrics: SignInMetrics, nodes: NodeDoor) -> None:
        self._app = app
        self._doorkeeper = doorkeeper
        self._metrics = metrics
        self._nodes = nodes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": NOT_FOR_SOCKETS})
            return
        if scope["type"] == "http" and not is_open(scope["path"]):
            caller, instance_id = caller_at(scope["method"], scope["path"])
            scope.setdefault("state", {})["caller"] = caller
            if caller is not Caller.TOKEN:
                await self._admit_node(caller, instance_id, scope, receive, send)
                return
            refusal = await self._refusal(Request(scope))
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _admit_node(
        self, caller: Caller, instance_id: str | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            receive = await self._nodes.admit(caller, instance_id, Request(scope, receive))
        except Exception as error:
            problem = problem_of(error)
            if problem.kind is problems.BROKEN:
                raise
            await answer(Request(scope), problem)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _refusal(self, request: Request) -> Response | None:
        """The answer to a request of nobody known; None once its principal is in the request's state."""
        try:
            principal = await self._doorkeeper.principal_of(request)
        except TokenRefused as refused:
            return self._refused(request, refused.reason)
        except KeysUnavailable:
            return answer(request, issuer_away())
        if "authorization" not in request.headers and _is_unplaced_write(request):
            return answer(request, Problem(problems.FOREIGN_ORIGIN, _UNPLACED))
        request.state.principal = principal
        return None

    def _refused(self, request: Request, reason: Reason) -> Response:
        self._metrics.refused(reason)
        log.info("sign_in_refused", reason=reason.value, request_id=request.state.request_id)
        if "authorization" in request.headers or not _is_for_a_person(request):
            return problems.respond(request, unknown_caller(reason))
        if request.method in ("GET", "HEAD"):
            return to_sign_in(request)
        return answer(request, session_over(reason))


async def authorize(request: Request) -> None:
    """Refuse a principal that lacks what the route needs. A dependency of every route there is."""
    template = request.scope["route"].path
    if is_open(template):
        return
    caller = CALLERS.get((request.method, template), Caller.TOKEN)
    if caller is not request.state.caller:
        raise Problem(problems.NOT_ALLOWED, f"{request.method} {template} was asked for in another way")
    if caller is not Caller.TOKEN:
        return
    need = need_of(request.method, template)
    if need is None:
        raise Problem(problems.NOT_ALLOWED, f"nothing says whom {request.method} {template} is for")
    principal: Principal = request.state.principal
    if principal.allows(need):
        return
    metrics: SignInMetrics = request.app.state.sign_in_metrics
    metrics.refused(Reason.NOT_ALLOWED)
    raise Problem(
        problems.NOT_ALLOWED,
        f"{request.method} {template} is not for this caller: {lacking(principal, need)}",
        headers={CHALLENGE: f'Bearer error="insufficient_scope", scope="{" ".join(need.scopes)}"'},
    )


def unknown_caller(reason: Reason) -> Problem:
    """What a caller is told: that no token came, or that it is worth nothing, never why."""
    if reason is Reason.MISSING:
        return Problem(
            problems.NOT_SIGNED_IN, "no token came with the request", headers={CHALLENGE: "Bearer"}
        )
    return Problem(
        problems.INVALID_TOKEN,
        "what came with the request does not prove who sent it",
        headers={CHALLENGE: 'Bearer error="invalid_token"'},
    )


def session_over(reason: Reason) -> Problem:
    """The same for a person who sends a form: sent to sign in, they would believe that it was done."""
    problem = unknown_caller(reason)
    problem.detail = "you are not signed in any more, and nothing was done"
    problem.what_to_do = "Sign in again, and then do it once more."
    return problem


def issuer_away() -> Problem:
    return Problem(problems.NOT_READY, "the issuer of tokens cannot be reached", headers={"Retry-After": "2"})


def to_sign_in(request: Request) -> Response:
    """Send a person to sign in, and back to the page that they asked for."""
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(
        f"/sign-in?next={quote(wanted, safe='')}", status_code=303, headers={"Cache-Control": "no-store"}
    )


_UNPLACED = "a session of the screens changes something from their own pages only, and this names no page"


def _is_for_a_person(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def _is_unplaced_write(request: Request) -> bool:
    """Every browser says where a change comes from; the gate has checked what it says."""
    said = "origin" in request.headers or "sec-fetch-site" in request.headers
    return request.method not in SAFE_METHODS and not said


def _token_of(given: list[str]) -> str:
    found = _BEARER.fullmatch(given[0]) if len(given) == 1 else None
    if found is None:
        raise TokenRefused(Reason.MALFORMED)
    return found[1]
