"""A bearer token in, the principal that it proves out.

The header of a token is its bearer's word: it may choose among the algorithms and the issuer's keys that are
allowed here, and nothing else in it is believed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NoReturn

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwa import EdDSAAlgorithm, ESAlgorithm, JWSAlgModel, RSAAlgorithm, RSAPSSAlgorithm
from joserfc.util import urlsafe_b64decode

from api.sign_in.claims import Claims, principal_of
from api.sign_in.keys import Key, Keys
from api.sign_in.principal import Principal
from api.sign_in.refusal import Reason, TokenRefused

MAX_TOKEN_BYTES = 8192
LEEWAY = timedelta(seconds=60)
ALGORITHMS: dict[str, JWSAlgModel] = {
    "RS256": RSAAlgorithm(256),
    "PS256": RSAPSSAlgorithm(256),
    "ES256": ESAlgorithm("ES256", "P-256", 256),
    "EdDSA": EdDSAAlgorithm(),
}
TYPES = frozenset({"at+jwt", "application/at+jwt", "jwt"})
# Headers that bring their own key or ask for a rule of their own.
FORBIDDEN_HEADERS = frozenset({"jku", "jwk", "x5u", "x5c", "crit", "b64", "cty", "zip", "enc"})
MAX_KID = 256
# Tokens whose signatures need not be verified again: a caller sends its own with each request.
MAX_PROVEN = 1024
_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Trust:
    """Whom to believe, and for whom a token must be made out."""

    issuer: str
    audience: str
    tenant_claim: str = "tenant_id"
    leeway: timedelta = LEEWAY


class TokenVerifier:
    """Verifies tokens of one issuer. `now` gives aware UTC."""

    def __init__(self, trust: Trust, keys: Keys, now: Callable[[], datetime]) -> None:
        self._trust = trust
        self._keys = keys
        self._now = now
        self._proven = _Proven()

    async def verify(self, token: str) -> Principal:
        """The principal of a token. Raises `TokenRefused`, or `KeysUnavailable` where no key is at hand."""
        claims = await self.claims_of(token)
        return principal_of(claims, self._trust.tenant_claim)

    async def claims_of(self, token: str) -> Claims:
        """What a token says, once its signature, issuer, audience and times are verified."""
        header = _header_of(token)
        key = await self._key_for(header)
        claims = self._proven.claims_of(token, key)
        self._check(claims)
        return claims

    async def _key_for(self, header: dict[str, Any]) -> Key:
        algorithm, kid = header["alg"], header.get("kid")
        known = await self._keys.named(kid)
        if not known:
            raise TokenRefused(Reason.UNKNOWN_KEY)
        key_type = ALGORITHMS[algorithm].key_type
        for key, only in known:
            if key.key_type == key_type and only in (None, algorithm):
                return key
        raise TokenRefused(Reason.ALGORITHM)

    def _check(self, claims: Claims) -> None:
        now, leeway = self._now(), self._trust.leeway
        if claims.issuer != self._trust.issuer:
            raise TokenRefused(Reason.ISSUER)
        if self._trust.audience not in claims.audiences:
            raise TokenRefused(Reason.AUDIENCE)
        if claims.expires_at <= now - leeway:
            raise TokenRefused(Reason.EXPIRED)
        if any(moment > now + leeway for moment in (claims.issued_at, claims.not_before) if moment):
            raise TokenRefused(Reason.NOT_YET_VALID)


class _Proven:
    """What tokens say whose signatures were verified: a caller sends its own with each request.

    That a key signed a token stays true; whether the key is still the issuer's, and the token still good, is
    asked each time. Tokens are known by their digests, so that none is kept, and a refusal is not remembered.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Key, Claims]] = {}

    def claims_of(self, token: str, key: Key) -> Claims:
        digest = hashlib.sha256(token.encode()).digest()
        proved_by, claims = self._known.get(digest, (None, None))
        if claims is None or proved_by is not key:
            claims = Claims.read(_document(_payload(token, key)))
            self._known[digest] = (key, claims)
            if len(self._known) > MAX_PROVEN:
                del self._known[next(iter(self._known))]
        return claims


class _OnlyOurs(jws.JWSRegistry):
    """The library's checks of a token, with our algorithms instead of all that it has registered."""

    max_header_length = MAX_TOKEN_BYTES
    max_payload_length = MAX_TOKEN_BYTES

    def get_alg(self, name: str) -> JWSAlgModel:
        return ALGORITHMS[name]


_REGISTRY = _OnlyOurs(strict_check_header=False)


def _header_of(token: str) -> dict[str, Any]:
    """The header of a compact token, found fit to look for a key with."""
    if len(token) > MAX_TOKEN_BYTES:
        raise TokenRefused(Reason.TOO_LARGE)
    if not _COMPACT.fullmatch(token):
        raise TokenRefused(Reason.MALFORMED)
    try:
        header = _document(urlsafe_b64decode(token.partition(".")[0].encode()))
    except ValueError:
        raise TokenRefused(Reason.MALFORMED) from None
    if not FORBIDDEN_HEADERS.isdisjoint(header):
        raise TokenRefused(Reason.HEADER)
    algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenRefused(Reason.ALGORITHM)
    if "kid" in header and not (isinstance(kid, str) and 0 < len(kid) <= MAX_KID):
        raise TokenRefused(Reason.UNKNOWN_KEY)
    if not isinstance(kind, str) or kind.lower() not in TYPES:
        raise TokenRefused(Reason.HEADER)
    return header


def _payload(token: str, key: Key) -> bytes:
    """What was signed with the key."""
    try:
        return jws.deserialize_compact(token, key, registry=_REGISTRY).payload
    except (JoseError, ValueError, TypeError):
        raise TokenRefused(Reason.SIGNATURE) from None


def _document(content: bytes) -> dict[str, Any]:
    """A JSON object that every reader reads in the same way: UTF-8, no name twice, no NaN."""
    try:
        document = json.loads(content.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise TokenRefused(Reason.MALFORMED) from None
    if not isinstance(document, dict):
        raise TokenRefused(Reason.MALFORMED)
    return document


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a name stands twice")
    return document


def _no_constant(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is no JSON")
