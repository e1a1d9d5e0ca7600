"""How a person signs in: the authorization code flow of OpenID Connect, with PKCE, state and nonce.

What must be the same at both ends of it (state, nonce, the verifier of the code) waits in a sealed cookie,
so that only the browser which began a sign-in can end it. Who the person is says the access token, verified
as every token is; the identity token binds it to this very sign-in.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

import httpx2
import structlog
from pydantic import SecretStr

from api.sign_in.claims import Claims
from api.sign_in.discovery import Discovery, IssuerProblem, IssuerRefused, client_for, post_form
from api.sign_in.principal import Principal, Scope
from api.sign_in.tokens import TokenVerifier
from api.web.render import is_own_page

SCOPES = " ".join(("openid", *Scope))
_RANDOM_BYTES = 32
log = structlog.get_logger("api")


class SignInFailed(Exception):
    """A sign-in that cannot be completed; its text is for the person."""


@dataclass(frozen=True, slots=True)
class Client:
    """This service as the issuer knows it. A public client has no secret."""

    client_id: str
    secret: SecretStr | None
    audience: str


@dataclass(frozen=True, slots=True)
class Begun:
    """Where to send the browser, and what to keep for its return."""

    url: str
    kept: dict[str, Any]


class CodeFlow:
    """Signs people in with one issuer. `identity` verifies tokens that are made out for the client."""

    def __init__(
        self, client: Client, discovery: Discovery, *, access: TokenVerifier, identity: TokenVerifier
    ) -> None:
        self._client = client
        self._discovery = discovery
        self._access = access
        self._identity = identity

    async def begin(self, callback: str, wanted: str) -> Begun:
        """Raises `IssuerProblem`."""
        endpoint = (await self._discovery.provider()).authorization_endpoint
        if endpoint is None:
            raise IssuerProblem("its discovery document has no authorization_endpoint")
        state, nonce, verifier = (secrets.token_urlsafe(_RANDOM_BYTES) for _ in range(3))
        asked = {
            "response_type": "code",
            "client_id": self._client.client_id,
            "redirect_uri": callback,
            "scope": SCOPES,
            "audience": self._client.audience,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge_of(verifier),
            "code_challenge_method": "S256",
        }
        kept = {"state": state, "nonce": nonce, "verifier": verifier, "next": own_page(wanted)}
        return Begun(f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(asked)}", kept)

    async def complete(self, said: Mapping[str, str], kept: Mapping[str, Any], callback: str) -> Principal:
        """Whom the issuer vouches for. Raises `SignInFailed`, `IssuerProblem`, `TokenRefused` and others."""
        if not _same(said.get("state", ""), kept["state"]):
            raise SignInFailed("this is the end of another sign-in than the one that this browser began last")
        if said.get("iss", self._discovery.issuer) != self._discovery.issuer:
            raise SignInFailed("another issuer answered")
        if "code" not in said:
            raise SignInFailed("the issuer did not let you in")
        tokens = await self._tokens(said["code"], kept["verifier"], callback)
        principal = await self._access.verify(_text(tokens, "access_token"))
        self._require_bound(await self._identity.claims_of(_text(tokens, "id_token")), kept, principal)
        return principal

    async def _tokens(self, code: str, verifier: str, callback: str) -> Any:
        endpoint = (await self._discovery.provider()).token_endpoint
        if endpoint is None:
            raise IssuerProblem("its discovery document has no token_endpoint")
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": callback,
            "client_id": self._client.client_id,
            "code_verifier": verifier,
        }
        try:
            async with client_for(self._discovery.issuer) as http:
                return await post_form(http, endpoint, form, self._credential())
        except IssuerRefused as refused:
            log.warning("sign_in_code_refused", problem=str(refused))
            raise SignInFailed("the issuer gave no token: it took too long, or was done before") from None

    def _credential(self) -> httpx2.BasicAuth | None:
        """RFC 6749, section 2.3.1: both halves are encoded as forms are."""
        secret = self._client.secret
        if secret is None:
            return None
        return httpx2.BasicAuth(quote_plus(self._client.client_id), quote_plus(secret.get_secret_value()))

    def _require_bound(self, identity: Claims, kept: Mapping[str, Any], principal: Principal) -> None:
        """The tokens are of one person, for this client, and of this sign-in."""
        nonce, party = identity.others.get("nonce"), identity.others.get("azp", self._client.client_id)
        if not isinstance(nonce, str) or not _same(nonce, kept["nonce"]):
            raise SignInFailed("the issuer answered another sign-in than this one")
        if party != self._client.client_id or identity.subject != principal.subject:
            raise SignInFailed("the issuer's tokens are not of one person for this service")


def challenge_of(verifier: str) -> str:
    """The S256 challenge of PKCE (RFC 7636)."""
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def own_page(wanted: str) -> str:
    """Where to go after the sign-in: a page of ours, or the overview where anything else was asked for."""
    try:
        parts = urlsplit(wanted)
    except ValueError:
        return "/"
    ours = wanted.startswith("/") and not parts.scheme and not parts.netloc and is_own_page(parts.path)
    return wanted if ours and wanted.isprintable() and "\\" not in wanted else "/"


def _same(given: str, kept: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), kept.encode())


def _text(tokens: Any, name: str) -> str:
    value = tokens.get(name) if isinstance(tokens, dict) else None
    if not isinstance(value, str):
        raise IssuerProblem(f"its answer has no {name}")
    return value
