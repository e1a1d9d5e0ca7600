"""Signatures of requests to an S3-compatible store (AWS Signature Version 4), by the standard library."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote

ALGORITHM = "AWS4-HMAC-SHA256"
SERVICE = "s3"


class S3Credentials(NamedTuple):
    """What a request is signed with; `token` comes with credentials that end."""

    access_key: str
    secret_key: str
    token: str | None = None

    def __repr__(self) -> str:
        return f"S3Credentials(access_key={self.access_key!r})"


class SignedRequest(NamedTuple):
    """`target` is path and query as they are sent."""

    target: str
    headers: dict[str, str]


def sign(
    method: str,
    host: str,
    path: str,
    *,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes,
    region: str,
    credentials: S3Credentials,
    now: datetime,
) -> SignedRequest:
    """The request with its signature over method, path, query, headers and body. `path` is not yet quoted."""
    quoted_path = quote(path, safe="/-_.~")
    quoted_query = "&".join(f"{_quoted(k)}={_quoted(v)}" for k, v in sorted(query.items()))
    moment = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(body).hexdigest()
    sent = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": moment}
    sent |= {name.lower(): " ".join(value.split()) for name, value in headers.items()}
    if credentials.token is not None:
        sent["x-amz-security-token"] = credentials.token
    names = ";".join(sorted(sent))
    lines = "".join(f"{name}:{sent[name]}\n" for name in sorted(sent))
    request = "\n".join((method, quoted_path, quoted_query, lines, names, digest))
    scope = f"{moment[:8]}/{region}/{SERVICE}/aws4_request"
    to_sign = "\n".join((ALGORITHM, moment, scope, hashlib.sha256(request.encode()).hexdigest()))
    signature = hmac.new(_key(credentials, moment[:8], region), to_sign.encode(), hashlib.sha256).hexdigest()
    sent["authorization"] = (
        f"{ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={names}, "
        f"Signature={signature}"
    )
    return SignedRequest(f"{quoted_path}?{quoted_query}" if quoted_query else quoted_path, sent)


def _key(credentials: S3Credentials, day: str, region: str) -> bytes:
    key = f"AWS4{credentials.secret_key}".encode()
    for part in (day, region, SERVICE, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def _quoted(text: str) -> str:
    return quote(text, safe="-_.~")
