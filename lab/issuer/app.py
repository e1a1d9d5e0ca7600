"""The development issuer on the wire: discovery, keys, tokens, and a page on which one picks who to be."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from html import escape
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from lab.issuer.accounts import ADMIN, READ, Account, Client
from lab.issuer.issuer import TOKEN_SECONDS, Asked, Issuer

WARNING = (
    "Development issuer: anybody who reaches it can be anybody. It is for laboratories on one machine only."
)
CALLBACK = "/sign-in/callback"
NOT_KEPT = {"Cache-Control": "no-store", "Pragma": "no-cache"}
MAX_FORM_FIELDS = 20
MAX_FORM_BYTES = 16 * 1024
ASKED = ("client_id", "redirect_uri", "state", "nonce", "code_challenge")


class Refused(Exception):
    """An OAuth error with its word and a sentence."""

    def __init__(self, error: str, said: str, status: int = 400) -> None:
        super().__init__(said)
        self.error = error
        self.status = status


class Sent(NamedTuple):
    """A client's credential as it came."""

    client_id: str
    secret: str


def build_app(issuer: Issuer) -> Starlette:
    """The issuer as an ASGI application. It answers to names of loopback only."""
    app = Starlette(
        routes=[
            Route("/.well-known/openid-configuration", discovery),
            Route("/jwks", keys),
            Route("/token", token, methods=["POST"]),
            Route("/authorize", ask_who),
            Route("/authorize", answer_who, methods=["POST"]),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])],
        exception_handlers={Refused: _refusal},
    )
    app.state.issuer = issuer
    return app


async def discovery(request: Request) -> Response:
    url = _issuer(request).url
    return JSONResponse(
        {
            "issuer": url,
            "authorization_endpoint": f"{url}/authorize",
            "token_endpoint": f"{url}/token",
            "jwks_uri": f"{url}/jwks",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "client_credentials"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "scopes_supported": ["openid", READ, ADMIN],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
    )


async def keys(request: Request) -> Response:
    return JSONResponse(_issuer(request).keyring.public())


async def token(request: Request) -> Response:
    """Both grants. Which client asks, its secret says."""
    issuer, form = _issuer(request), await _form(request)
    sent = _credential(request, form)
    client = issuer.client_of(sent.client_id, sent.secret)
    if client is None:
        raise Refused("invalid_client", "no such client, or another secret", 401)
    grant = form.get("grant_type")
    if grant == "client_credentials":
        return _tokens(_for_itself(issuer, client, form))
    if grant == "authorization_code":
        return _tokens(_for_a_person(issuer, client, form))
    raise Refused("unsupported_grant_type", "grant_type is authorization_code or client_credentials")


async def ask_who(request: Request) -> Response:
    """The page: one button for each person."""
    issuer, asked = _issuer(request), _checked(_issuer(request), request.query_params)
    hidden = "".join(
        f'<input type="hidden" name="{name}" value="{escape(asked[name])}">'
        for name in ASKED
        if name in asked
    )
    people = "".join(_choice(one) for one in issuer.people.values())
    return HTMLResponse(
        f'<!doctype html><html lang="en"><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>Who are you?</title>'
        f'<link rel="icon" href="data:,">'
        f'<main style="font: 18px/1.6 system-ui; max-width: 40rem; margin: 2rem auto; padding: 0 1rem">'
        f'<p role="note"><strong>{WARNING}</strong></p><h1>Who do you want to be?</h1>'
        f'<form method="post" action="/authorize">{hidden}<ul>{people}</ul></form></main></html>',
        headers=NOT_KEPT,
    )


async def answer_who(request: Request) -> Response:
    """Back to the client with a code of the person that was picked."""
    issuer, form = _issuer(request), await _form(request)
    asked = _checked(issuer, {**form, "response_type": "code", "code_challenge_method": "S256"})
    person = issuer.people.get(form.get("person", ""))
    if person is None:
        raise Refused("access_denied", "there is no such person", 403)
    code = issuer.code_for(
        Asked(
            client_id=asked["client_id"],
            redirect_uri=asked["redirect_uri"],
            challenge=asked["code_challenge"],
            nonce=asked.get("nonce"),
            person=person,
            until=issuer.code_end(),
        )
    )
    said = {"code": code, "state": asked.get("state", ""), "iss": issuer.url}
    return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(said)}", 303, headers=NOT_KEPT)


def _issuer(request: Request) -> Issuer:
    issuer: Issuer = request.app.state.issuer
    return issuer


async def _form(request: Request) -> dict[str, str]:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise Refused("invalid_request", f"a form has at most {MAX_FORM_BYTES:,} bytes", 413)
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS))
    except ValueError:
        raise Refused("invalid_request", "the body is no form") from None


def _credential(request: Request, form: Mapping[str, str]) -> Sent:
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return Sent(form.get("client_id", ""), form.get("client_secret", ""))
    try:
        client_id, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise Refused("invalid_client", "the credential is no Basic one", 401) from None
    return Sent(unquote_plus(client_id), unquote_plus(secret))


def _for_itself(issuer: Issuer, client: Client, form: Mapping[str, str]) -> dict[str, str]:
    if client.account is None:
        raise Refused("unauthorized_client", "this client signs people in and has no account of its own")
    wanted = set(form.get("scope", "").split())
    if not wanted <= set(client.account.scopes):
        raise Refused("invalid_scope", f"this client may have {' '.join(client.account.scopes)}")
    changed = {"scope": " ".join(sorted(wanted))} if wanted else {}
    return {"access_token": issuer.access_token(client.account, **changed)}


def _for_a_person(issuer: Issuer, client: Client, form: Mapping[str, str]) -> dict[str, str]:
    asked = issuer.redeem(
        form.get("code", ""), client, form.get("redirect_uri", ""), form.get("code_verifier", "")
    )
    if asked is None:
        raise Refused("invalid_grant", "the code is spent, over, or another's")
    return {
        "access_token": issuer.access_token(asked.person),
        "id_token": issuer.identity_token(asked),
    }


def _tokens(given: dict[str, str]) -> Response:
    return JSONResponse({**given, "token_type": "Bearer", "expires_in": TOKEN_SECONDS}, headers=NOT_KEPT)


def _checked(issuer: Issuer, asked: Mapping[str, str]) -> dict[str, str]:
    """An authorization request of a client that signs people in, back to its own callback, with PKCE."""
    client = issuer.clients.get(asked.get("client_id", ""))
    if client is None or client.account is not None:
        raise Refused("invalid_client", "no client of this name signs people in", 401)
    if not _is_callback(asked.get("redirect_uri", "")):
        raise Refused("invalid_request", f"redirect_uri is http://LOOPBACK[:PORT]{CALLBACK}")
    if asked.get("response_type") != "code":
        raise Refused("unsupported_response_type", "response_type is code")
    if not asked.get("code_challenge") or asked.get("code_challenge_method") != "S256":
        raise Refused("invalid_request", "PKCE is needed: code_challenge with code_challenge_method S256")
    return {name: asked[name] for name in ASKED if asked.get(name)}


def _is_callback(url: str) -> bool:
    try:
        parts = urlsplit(url)
        loopback = parts.hostname == "localhost" or ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False
    plain = not (parts.query or parts.fragment or parts.username or parts.password)
    return parts.scheme == "http" and loopback and parts.path == CALLBACK and plain


def _choice(one: Account) -> str:
    return (
        f'<li><button name="person" value="{escape(one.name)}" style="font: inherit; padding: 0.4rem 1rem">'
        f"{escape(one.name)}</button> {escape(', '.join(one.roles))} of {escape(one.tenant_id)}</li>"
    )


async def _refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return JSONResponse(
        {"error": error.error, "error_description": str(error)}, status_code=error.status, headers=NOT_KEPT
    )
