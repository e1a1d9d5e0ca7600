"""The pages of signing in and out. Everybody may open them."""

from __future__ import annotations

from typing import Annotated

import structlog
from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from api import problems
from api.problems import Problem
from api.sign_in.code_flow import SignInFailed
from api.sign_in.discovery import IssuerProblem
from api.sign_in.guard import issuer_away
from api.sign_in.keys import KeysUnavailable
from api.sign_in.refusal import TokenRefused
from api.sign_in.session import Sessions, place_of
from api.sign_in.setup import Screens
from api.web.render import page

router = APIRouter()
CALLBACK = "/sign-in/callback"
MAX_NEXT = 2000
NOT_KEPT = {"Cache-Control": "no-store"}
log = structlog.get_logger("api")


def _screens(request: Request) -> Screens:
    screens: Screens | None = request.app.state.sign_in_screens
    if screens is None:
        raise Problem(problems.NO_SIGN_IN, "this server knows callers by their tokens only")
    return screens


@router.get("/sign-in")
async def sign_in(request: Request, wanted: Annotated[str, Query(alias="next")] = "/") -> Response:
    """Send the browser to the issuer."""
    screens = _screens(request)
    try:
        begun = await screens.flow.begin(place_of(request).origin + CALLBACK, wanted[:MAX_NEXT])
    except IssuerProblem as error:
        raise _away(error) from None
    response = RedirectResponse(begun.url, status_code=303, headers=NOT_KEPT)
    screens.keep(request, response, begun.kept)
    return response


@router.get(CALLBACK)
async def complete_sign_in(request: Request) -> Response:
    """Back from the issuer: who it vouches for has a session from now on."""
    screens = _screens(request)
    kept = screens.kept(request)
    if kept is None:
        raise Problem(problems.SIGN_IN_FAILED, "this browser has begun no sign-in, or too long ago")
    try:
        principal = await screens.flow.complete(
            request.query_params, kept, place_of(request).origin + CALLBACK
        )
    except SignInFailed as failed:
        raise Problem(problems.SIGN_IN_FAILED, str(failed)) from None
    except TokenRefused as refused:
        log.warning("sign_in_token_refused", reason=refused.reason.value)
        raise Problem(
            problems.SIGN_IN_FAILED,
            "the issuer's token is not one that this service accepts",
            what_to_do="Tell whoever runs this service: its log says what the token lacks.",
        ) from None
    except (IssuerProblem, KeysUnavailable) as error:
        raise _away(error) from None
    response = RedirectResponse(kept["next"], status_code=303, headers=NOT_KEPT)
    screens.sessions.begin(request, response, principal)
    screens.forget(request, response)
    return response


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    """End the session of this browser."""
    sessions: Sessions = _screens(request).sessions
    response = page(request, "signed_out.html")
    sessions.end(request, response)
    return response


def _away(error: Exception) -> Problem:
    log.warning("issuer_not_usable", problem=str(error))
    return issuer_away()
