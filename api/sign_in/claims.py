"""The claims of a verified token, each of the type that it must have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError

from api.sign_in.principal import Principal, Role, Scope
from api.sign_in.refusal import Reason, TokenRefused
from domain.pool import Name

MAX_SUBJECT = 255
# The last second that a `datetime` can hold.
MAX_SECONDS = 253_402_300_799
_TENANT: TypeAdapter[str] = TypeAdapter(Name)


@dataclass(frozen=True, slots=True)
class Claims:
    """The registered claims, and all others as they came."""

    issuer: str
    subject: str
    audiences: tuple[str, ...]
    expires_at: datetime
    issued_at: datetime
    not_before: datetime | None
    others: Mapping[str, Any]

    @classmethod
    def read(cls, document: dict[str, Any]) -> Claims:
        """Raises `TokenRefused` where one is missing or of another type."""
        audience = document.get("aud")
        return cls(
            issuer=_text(document.get("iss")),
            subject=_subject(document.get("sub")),
            audiences=(audience,) if isinstance(audience, str) else _words(audience),
            expires_at=_moment(document.get("exp")),
            issued_at=_moment(document.get("iat")),
            not_before=_moment(document["nbf"]) if "nbf" in document else None,
            others=document,
        )


def principal_of(claims: Claims, tenant_claim: str) -> Principal:
    """Whom the claims name. Raises `TokenRefused` where the tenant, scopes or roles are malformed."""
    words = claims.others
    scopes = _scopes(words["scope"]) if "scope" in words else _words(words.get("scp", []))
    roles = _words(words.get("roles", []))
    return Principal(
        subject=claims.subject,
        tenant_id=_tenant(words.get(tenant_claim)),
        scopes=frozenset(scope for scope in Scope if scope in scopes),
        roles=frozenset(role for role in Role if role in roles),
        expires_at=claims.expires_at,
    )


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TokenRefused(Reason.CLAIMS)
    return value


def _subject(value: object) -> str:
    subject = _text(value)
    if len(subject) > MAX_SUBJECT or not subject.isprintable():
        raise TokenRefused(Reason.CLAIMS)
    return subject


def _words(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TokenRefused(Reason.CLAIMS)
    return tuple(_text(word) for word in value)


def _scopes(value: object) -> tuple[str, ...]:
    """Words with one space between them (RFC 6749, section 3.3)."""
    return tuple(_text(word) for word in _text(value).split(" "))


def _moment(value: object) -> datetime:
    """A NumericDate. A bool is an int to Python, and a large number would not fit a `datetime`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TokenRefused(Reason.CLAIMS)
    if not (math.isfinite(value) if isinstance(value, float) else True) or not 0 <= value <= MAX_SECONDS:
        raise TokenRefused(Reason.CLAIMS)
    return datetime.fromtimestamp(value, UTC)


def _tenant(value: object) -> str:
    try:
        return _TENANT.validate_python(value, strict=True)
    except ValidationError:
        raise TokenRefused(Reason.CLAIMS) from None
