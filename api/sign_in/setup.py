"""Sign-in as a process has it: put together from what it was told, and handed to the application."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import Response

from api.gate import LOOPBACK_NAMES
from api.sign_in.code_flow import Client, CodeFlow
from api.sign_in.discovery import Discovery
from api.sign_in.guard import Doorkeeper
from api.sign_in.keys import IssuerKeys, Keys
from api.sign_in.session import Cookie, Sessions
from api.sign_in.tokens import TokenVerifier, Trust

# How long a person may take at the issuer.
SIGN_IN_TIME = timedelta(minutes=10)


class Screens:
    """How people sign in, and what is remembered of them meanwhile and afterwards."""

    def __init__(self, flow: CodeFlow, secret: bytes, now: Callable[[], datetime]) -> None:
        self.flow = flow
        self.sessions = Sessions(secret, now)
        self._begun = Cookie("sco-sign-in", secret, now)
        self._now = now

    def keep(self, request: Request, response: Response, begun: dict[str, Any]) -> None:
        self._begun.write(request, response, begun, self._now() + SIGN_IN_TIME)

    def kept(self, request: Request) -> dict[str, Any] | None:
        return self._begun.read(request)

    def forget(self, request: Request, response: Response) -> None:
        self._begun.remove(request, response)


@dataclass(frozen=True, slots=True)
class SignIn:
    """Who is let in, and under which host names. The gRPC server shares the verifier."""

    verifier: TokenVerifier
    screens: Screens | None = None
    names: frozenset[str] = field(default=LOOPBACK_NAMES)

    @property
    def doorkeeper(self) -> Doorkeeper:
        return Doorkeeper(self.verifier, self.screens.sessions if self.screens else None)


def verifier_of(trust: Trust, now: Callable[[], datetime]) -> TokenVerifier:
    """A verifier that reads the issuer's keys when it needs them."""
    return TokenVerifier(trust, IssuerKeys(trust.issuer), now)


def screens_of(
    trust: Trust,
    keys: Keys,
    *,
    client_id: str,
    client_secret: SecretStr | None,
    session_key: SecretStr,
    now: Callable[[], datetime],
) -> Screens:
    """Sign-in of people with the issuer that tokens come from, whose keys are shared."""
    flow = CodeFlow(
        Client(client_id, client_secret, trust.audience),
        Discovery(trust.issuer),
        access=TokenVerifier(trust, keys, now),
        identity=TokenVerifier(replace(trust, audience=client_id), keys, now),
    )
    return Screens(flow, session_key.get_secret_value().encode(), now)
