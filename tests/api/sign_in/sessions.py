"""Sessions of the screens, as the service itself gives them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from pydantic import SecretStr

from api.sign_in.keys import FixedKeys, IssuerKeys, Keys
from api.sign_in.session import Seal
from api.sign_in.setup import Screens, SignIn, screens_of
from api.sign_in.tokens import TokenVerifier, Trust
from lab.issuer import IssuerHandle
from lab.issuer.accounts import SCREENS
from lab.issuer.issuer import AUDIENCE
from tests.api.sign_in.minting import TRUST, key_set

SESSION_KEY = "0123456789abcdef0123456789abcdef"
COOKIE = "sco-session"
Now = Callable[[], datetime]


def screens_with(
    trust: Trust, keys: Keys, now: Now, *, secret: str | None, key: str = SESSION_KEY
) -> Screens:
    return screens_of(
        trust,
        keys,
        client_id=SCREENS,
        client_secret=None if secret is None else SecretStr(secret),
        session_key=SecretStr(key),
        now=now,
    )


def sign_in_at(issuer: IssuerHandle, now: Now, *, key: str = SESSION_KEY) -> SignIn:
    """Sign-in with a development issuer that runs."""
    trust, keys = Trust(issuer.url, AUDIENCE), IssuerKeys(issuer.url)
    secret = issuer.issuer.clients[SCREENS].secret
    screens = screens_with(trust, keys, now, secret=secret, key=key)
    return SignIn(TokenVerifier(trust, keys, now), screens)


def sign_in_over(now: Now) -> SignIn:
    """Sign-in with tokens that tests mint; people have their session already."""
    keys = FixedKeys(key_set())
    return SignIn(TokenVerifier(TRUST, keys, now), screens_with(TRUST, keys, now, secret=None))


def session_until(moment: datetime, **changed: Any) -> str:
    """The value of the cookie of ada, a PlatformAdmin of the tenant `platform`, or of somebody else."""
    said = {
        "sub": "ada",
        "tenant": "platform",
        "scopes": ["factory.compute.read", "factory.compute.admin"],
        "roles": ["PlatformAdmin"],
        "exp": moment.timestamp(),
    }
    return Seal(SESSION_KEY.encode(), COOKIE).close(said | changed)
