"""What the development issuer gives out: access tokens, identity tokens and codes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from joserfc import jwt

from lab.issuer.accounts import PEOPLE, Account, Client, load_clients
from lab.issuer.keyring import Keyring

AUDIENCE = "sco-api"
TOKEN_SECONDS = 3600
CODE_SECONDS = 60
MAX_CODES = 1000


@dataclass(frozen=True, slots=True)
class Asked:
    """An authorization request that a person said yes to."""

    client_id: str
    redirect_uri: str
    challenge: str
    nonce: str | None
    person: Account
    until: float


class Issuer:
    """Everything but the wire. `now` is in seconds since 1970."""

    def __init__(
        self,
        url: str,
        data_dir: Path | None = None,
        *,
        audience: str = AUDIENCE,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.url = url
        self.audience = audience
        self.keyring = Keyring(data_dir)
        self.clients = load_clients(data_dir)
        self.people = {one.name: one for one in PEOPLE}
        self._now = now
        self._codes: dict[str, Asked] = {}

    def token_for(self, name: str, *, algorithm: str = "RS256", **changed: Any) -> str:
        """An access token of a person or client by name; `changed` are claims to say otherwise."""
        account = self.people.get(name) or self.clients[name].account
        assert account is not None, f"{name} has no account of its own"
        return self.access_token(account, algorithm=algorithm, **changed)

    def access_token(self, account: Account, *, algorithm: str = "RS256", **changed: Any) -> str:
        claims = {
            "aud": self.audience,
            "jti": uuid4().hex,
            "tenant_id": account.tenant_id,
            "roles": list(account.roles),
            "scope": " ".join(account.scopes),
        }
        return self._signed("at+jwt", account.name, claims | changed, algorithm)

    def identity_token(self, asked: Asked) -> str:
        claims: dict[str, Any] = {"aud": asked.client_id}
        if asked.nonce is not None:
            claims["nonce"] = asked.nonce
        return self._signed("JWT", asked.person.name, claims, "RS256")

    def client_of(self, client_id: str, secret: str) -> Client | None:
        """The client that knows its secret."""
        client = self.clients.get(client_id)
        known = client is not None and hmac.compare_digest(client.secret.encode(), secret.encode())
        return client if known else None

    def code_for(self, asked: Asked) -> str:
        """A code that is good once, for a minute."""
        while len(self._codes) >= MAX_CODES:
            self._codes.pop(next(iter(self._codes)))
        code = secrets.token_urlsafe(32)
        self._codes[code] = asked
        return code

    def redeem(self, code: str, client: Client, redirect_uri: str, verifier: str) -> Asked | None:
        """What a code was given for, if it is this client's and not over. It is spent either way."""
        asked = self._codes.pop(code, None)
        good = (
            asked is not None
            and asked.client_id == client.client_id
            and asked.redirect_uri == redirect_uri
            and asked.until > self._now()
            and hmac.compare_digest(asked.challenge.encode(), _challenge_of(verifier).encode())
        )
        return asked if good else None

    def code_end(self) -> float:
        return self._now() + CODE_SECONDS

    def _signed(self, kind: str, subject: str, claims: dict[str, Any], algorithm: str) -> str:
        now = int(self._now())
        said = {"iss": self.url, "sub": subject, "iat": now, "exp": now + TOKEN_SECONDS} | claims
        key = self.keyring.signing(algorithm)
        head = {"alg": algorithm, "kid": key.kid, "typ": kind}
        return jwt.encode(head, said, key, algorithms=[algorithm])


def _challenge_of(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
