"""Keystone's knowledge: one project, one user, one application credential, and tokens."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from lab.cloud.errors import CloudError
from lab.cloud.estate import stable_id

DOMAIN_ID = "default"
DOMAIN_NAME = "Default"
PROJECT_NAME = "sco"
USER_NAME = "sco-orchestrator"
PROJECT_ID = stable_id("project", PROJECT_NAME).replace("-", "")
USER_ID = stable_id("user", USER_NAME).replace("-", "")
APPLICATION_CREDENTIAL_ID = stable_id("application-credential", USER_NAME).replace("-", "")
APPLICATION_CREDENTIAL_NAME = "sco-orchestrator-lab"
ROLES = ("member", "reader")
UNAUTHORIZED = "The request you have made requires authentication."


@dataclass(frozen=True, slots=True)
class Secrets:
    """The passwords of one cloud. Never logged, and kept out of `repr`."""

    password: str
    application_credential_secret: str
    admin_token: str

    def __repr__(self) -> str:
        return "Secrets(hidden)"


@dataclass(frozen=True, slots=True)
class Token:
    """An issued token; scoped to the project unless `project_id` is None."""

    id: str
    method: str
    project_id: str | None
    issued_at: datetime
    expires_at: datetime

    def __repr__(self) -> str:
        return f"Token(hidden, expires_at={self.expires_at.isoformat()})"


class Identity:
    """Checks credentials and keeps tokens. Token times are real time, as clients see it."""

    def __init__(self, own: Secrets, token_seconds: int, wall_now: Callable[[], datetime]) -> None:
        self._secrets = own
        self._token_seconds = token_seconds
        self._wall_now = wall_now
        self._tokens: dict[str, Token] = {}

    def with_password(self, user: str, password: str, *, scoped: bool) -> Token:
        """A token for the user given by name or id; 401 when either is wrong."""
        known = user in (USER_NAME, USER_ID)
        right = secrets.compare_digest(password.encode(), self._secrets.password.encode())
        if not (known and right):
            raise CloudError(401, UNAUTHORIZED)
        return self._issue("password", PROJECT_ID if scoped else None)

    def with_application_credential(self, credential: str, secret: str) -> Token:
        """A project token for the credential given by name or id: 404 without one, 401 for its secret."""
        if credential not in (APPLICATION_CREDENTIAL_ID, APPLICATION_CREDENTIAL_NAME):
            raise CloudError(404, f"Could not find Application Credential: {credential}.")
        own = self._secrets.application_credential_secret
        if not secrets.compare_digest(secret.encode(), own.encode()):
            raise CloudError(401, UNAUTHORIZED)
        return self._issue("application_credential", PROJECT_ID)

    def with_token(self, token_id: str, *, scoped: bool) -> Token:
        """A new token in exchange for a valid one; it does not live longer than the first."""
        first = self.check(token_id)
        return self._issue("token", PROJECT_ID if scoped else None, first.expires_at)

    def check(self, token_id: str | None) -> Token:
        """The valid token with this id; 401 when it is unknown, revoked or expired."""
        token = self._tokens.get(token_id or "")
        if token is None or token.expires_at <= self._wall_now():
            raise CloudError(401, UNAUTHORIZED)
        return token

    def revoke(self, token_id: str) -> None:
        self._tokens.pop(token_id, None)

    def expire_all(self) -> int:
        """End every token at once; answers how many there were."""
        count = len(self._tokens)
        self._tokens.clear()
        return count

    def is_admin(self, token: str | None) -> bool:
        return secrets.compare_digest((token or "").encode(), self._secrets.admin_token.encode())

    def _issue(self, method: str, project_id: str | None, until: datetime | None = None) -> Token:
        now = self._wall_now()
        self._tokens = {each.id: each for each in self._tokens.values() if each.expires_at > now}
        expires_at = until or now + timedelta(seconds=self._token_seconds)
        token = Token(secrets.token_urlsafe(48), method, project_id, now, expires_at)
        self._tokens[token.id] = token
        return token
