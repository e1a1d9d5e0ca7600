"""What the screens remember of a person: a principal in a cookie that only this service can read or write."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from http.cookies import CookieError
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from joserfc import jwe
from joserfc.errors import JoseError
from joserfc.jwk import OctKey
from starlette.requests import Request
from starlette.responses import Response

from api.sign_in.addresses import is_loopback
from api.sign_in.principal import Principal, Role, Scope
from api.sign_in.refusal import Reason, TokenRefused

KEY_BYTES = 32
MAX_SEALED = 4096
_HEADER = {"alg": "dir", "enc": "A256GCM"}
_ALGORITHMS = ["dir", "A256GCM"]


class Seal:
    """Encrypts and authenticates documents for one purpose: what is sealed for one opens for no other."""

    def __init__(self, secret: bytes, purpose: str) -> None:
        derived = HKDF(SHA256(), KEY_BYTES, salt=None, info=f"sco/{purpose}".encode()).derive(secret)
        self._key = OctKey.import_key(derived)

    def close(self, document: dict[str, Any]) -> str:
        return jwe.encrypt_compact(_HEADER, json.dumps(document), self._key, algorithms=_ALGORITHMS)

    def open(self, sealed: str) -> dict[str, Any] | None:
        """The document, or None where somebody else wrote this."""
        if len(sealed) > MAX_SEALED:
            return None
        try:
            plain = jwe.decrypt_compact(sealed, self._key, algorithms=_ALGORITHMS).plaintext
            document = json.loads(plain or b"")
        except (JoseError, ValueError, TypeError):
            return None
        return document if isinstance(document, dict) else None


class Place(NamedTuple):
    """How a browser reached us: over TLS, except on this machine's own loopback."""

    origin: str
    secure: bool

    def cookie(self, name: str) -> str:
        """The prefix makes a browser keep the cookie to this one host, and to TLS."""
        return f"__Host-{name}" if self.secure else name


def place_of(request: Request) -> Place:
    """Host names were checked at the gate, so that nobody is sent elsewhere by a header."""
    name, port = request.url.hostname or "", request.url.port
    secure = not is_loopback(name)
    shown = f"[{name}]" if ":" in name else name
    return Place(f"{'https' if secure else 'http'}://{shown}{f':{port}' if port else ''}", secure)


class Cookie:
    """One sealed cookie. `now` gives aware UTC."""

    def __init__(self, name: str, secret: bytes, now: Callable[[], datetime]) -> None:
        self._name = name
        self._seal = Seal(secret, name)
        self._now = now

    def is_given(self, request: Request) -> bool:
        return bool(self._value(request))

    def read(self, request: Request) -> dict[str, Any] | None:
        """What is in it, or None where it is missing, forged or over."""
        document = self._seal.open(self._value(request))
        if document is None or document["exp"] <= self._now().timestamp():
            return None
        return document

    def write(self, request: Request, response: Response, document: dict[str, Any], until: datetime) -> None:
        place = place_of(request)
        seconds = int((until - self._now()).total_seconds())
        response.set_cookie(
            place.cookie(self._name),
            self._seal.close(document | {"exp": until.timestamp()}),
            max_age=max(seconds, 0),
            path="/",
            secure=place.secure,
            httponly=True,
            samesite="lax",
        )

    def remove(self, request: Request, response: Response) -> None:
        place = place_of(request)
        response.delete_cookie(
            place.cookie(self._name), path="/", secure=place.secure, httponly=True, samesite="lax"
        )

    def _value(self, request: Request) -> str:
        try:
            return request.cookies.get(place_of(request).cookie(self._name), "")
        except CookieError:
            return ""


class Sessions:
    """Who is signed in at the screens, in a cookie that ends with the token that it came from."""

    def __init__(self, secret: bytes, now: Callable[[], datetime]) -> None:
        self._cookie = Cookie("sco-session", secret, now)

    def is_given(self, request: Request) -> bool:
        return self._cookie.is_given(request)

    def principal(self, request: Request) -> Principal:
        """Raises `TokenRefused` where the session is forged or over."""
        found = self._cookie.read(request)
        if found is None:
            raise TokenRefused(Reason.SESSION)
        return Principal(
            subject=found["sub"],
            tenant_id=found["tenant"],
            scopes=frozenset(scope for scope in Scope if scope in found["scopes"]),
            roles=frozenset(role for role in Role if role in found["roles"]),
            expires_at=datetime.fromtimestamp(found["exp"], UTC),
        )

    def begin(self, request: Request, response: Response, principal: Principal) -> None:
        document = {
            "sub": principal.subject,
            "tenant": principal.tenant_id,
            "scopes": sorted(principal.scopes),
            "roles": sorted(principal.roles),
        }
        self._cookie.write(request, response, document, principal.expires_at)

    def end(self, request: Request, response: Response) -> None:
        self._cookie.remove(request, response)
