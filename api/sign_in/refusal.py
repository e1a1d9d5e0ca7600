"""Why a token is refused: told to the log and the metrics, never to the caller."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """The label of `sco_sign_in_refused_total`."""

    MISSING = "missing"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    HEADER = "header"
    ALGORITHM = "algorithm"
    UNKNOWN_KEY = "unknown_key"
    SIGNATURE = "signature"
    CLAIMS = "claims"
    ISSUER = "issuer"
    AUDIENCE = "audience"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    SESSION = "session"
    NOT_ALLOWED = "not_allowed"


class TokenRefused(Exception):
    """A token that proves nothing. The reason holds no part of the token."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason
