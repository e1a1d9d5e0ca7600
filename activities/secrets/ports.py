"""The secrets port: the credential of one pool's endpoint, good for minutes."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from pydantic import SecretStr

from domain.model import Frozen


class Credential(Frozen):
    """What requests to an endpoint are signed with, until `expires_at`; ask again then."""

    token: SecretStr
    expires_at: datetime


class SecretsUnavailable(Exception):
    """No credential can be had now. The text holds no secret."""


class NoCredential(SecretsUnavailable):
    """The secrets service answers, and has none for this pool."""


class Secrets(Protocol):
    """Answers within two seconds, or raises `SecretsUnavailable` within them."""

    async def endpoint_credential(self, tenant_id: str, pool_id: str) -> Credential: ...
