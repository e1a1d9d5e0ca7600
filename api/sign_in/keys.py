"""The public keys of an issuer: fetched, kept, and fetched again without ever hammering it.

Keys are asked for by the `kid` of a token, which anybody can make up. So an unknown one causes at most one
fetch in `UNKNOWN_SECONDS`, whoever asks and however often, and all who wait share it. Keys that were once
read go on to serve while the issuer is away.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import structlog
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from api.sign_in.discovery import IssuerProblem, client_for, read_document, read_provider

# A key that the issuer has withdrawn is trusted for this long at most while the issuer answers: older keys
# are read again beside the request, keys older than the second figure before it.
REFRESH_SECONDS = 600.0
OLD_SECONDS = 1200.0
UNKNOWN_SECONDS = 30.0
# Without any key nobody can sign in, so a new attempt is made sooner.
EMPTY_SECONDS = 2.0
MAX_KEYS = 64
MIN_RSA_BITS = 2048
_RSA_CHARACTERS = MIN_RSA_BITS // 6
_FACTS = frozenset({"kty", "crv", "n", "e", "x", "y"})
log = structlog.get_logger("api")

Key = RSAKey | ECKey | OKPKey


class PublicKey(NamedTuple):
    """One key that may verify tokens; `algorithm` where the issuer names the only one it is for."""

    key: Key
    algorithm: str | None


KeyRing = Mapping[str, tuple[PublicKey, ...]]


class KeysUnavailable(Exception):
    """No key of the issuer was read yet and it cannot be reached: nobody can be verified now."""


class Keys(Protocol):
    async def named(self, kid: str | None) -> tuple[PublicKey, ...]:
        """The keys with this id, none if there is none; raises `KeysUnavailable`.

        A token need not name a key of an issuer that has only one (OpenID Connect Core, section 10.1).
        """
        ...


class FixedKeys:
    """Keys from a JSON Web Key Set at hand."""

    def __init__(self, key_set: object) -> None:
        self._ring = read_keys(key_set)

    async def named(self, kid: str | None) -> tuple[PublicKey, ...]:
        return _in_ring(self._ring, kid)


async def fetch_keys(issuer: str) -> KeyRing:
    """The keys that an issuer's discovery document leads to; raises `IssuerProblem`."""
    async with client_for(issuer) as http:
        provider = await read_provider(http, issuer)
        return read_keys(await read_document(http, provider.jwks_uri))


class IssuerKeys:
    """The keys of one issuer, as `fetch` reads them. `monotonic` is in seconds."""

    def __init__(
        self,
        issuer: str,
        *,
        fetch: Callable[[str], Any] = fetch_keys,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer = issuer
        self._fetch = fetch
        self._monotonic = monotonic
        self._ring: KeyRing = {}
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._refreshing: asyncio.Task[None] | None = None

    async def named(self, kid: str | None) -> tuple[PublicKey, ...]:
        await self._keep_fresh()
        if not _in_ring(self._ring, kid) and self._since(self._tried_at) >= UNKNOWN_SECONDS:
            await self._refreshed()
        return _in_ring(self._ring, kid)

    async def _keep_fresh(self) -> None:
        age, tried = self._since(self._read_at), self._since(self._tried_at)
        if self._read_at is None:
            if tried >= EMPTY_SECONDS or self._refreshing is not None:
                await self._refreshed()
            if self._read_at is None:
                raise KeysUnavailable("no key of the issuer could be read yet")
        elif tried >= UNKNOWN_SECONDS and age >= OLD_SECONDS:
            await self._refreshed()
        elif tried >= UNKNOWN_SECONDS and age >= REFRESH_SECONDS:
            self._refresh()

    def _since(self, moment: float | None) -> float:
        return float("inf") if moment is None else self._monotonic() - moment

    def _refresh(self) -> asyncio.Task[None]:
        """The fetch that is under way, or a new one."""
        if self._refreshing is None:
            self._tried_at = self._monotonic()
            self._refreshing = asyncio.create_task(self._read())
        return self._refreshing

    async def _refreshed(self) -> None:
        # Shielded: the caller who began the fetch may leave, and others wait for it.
        await asyncio.shield(self._refresh())

    async def _read(self) -> None:
        try:
            self._ring = await self._fetch(self._issuer)
            self._read_at = self._monotonic()
        except IssuerProblem as error:
            log.warning("issuer_keys_not_read", problem=str(error), keys_held=len(self._ring))
        finally:
            self._refreshing = None


def read_keys(document: object) -> KeyRing:
    """The keys of a set that may verify tokens, by id. Others are left out; none at all is a problem."""
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise IssuerProblem("its keys are no JSON Web Key Set")
    ring: dict[str, tuple[PublicKey, ...]] = {}
    for one in listed[:MAX_KEYS]:
        kid, key = _read_key(one)
        if kid is not None and key is not None:
            ring[kid] = (*ring.get(kid, ()), key)
    if not ring:
        raise IssuerProblem("it lists no key that may sign: RSA of 2048 bits or more, P-256 or Ed25519")
    return ring


def _in_ring(ring: KeyRing, kid: str | None) -> tuple[PublicKey, ...]:
    if kid is not None:
        return ring.get(kid, ())
    every = [key for keys in ring.values() for key in keys]
    return tuple(every) if len(every) == 1 else ()


def _read_key(one: object) -> tuple[str | None, PublicKey | None]:
    """A key and its id, or None where it cannot verify tokens. A private key that is shown is no secret."""
    if not isinstance(one, dict) or "d" in one or one.get("use", "sig") != "sig":
        return None, None
    kid, algorithm = one.get("kid"), one.get("alg")
    if not isinstance(kid, str) or not (algorithm is None or isinstance(algorithm, str)):
        return None, None
    try:
        key = _imported(one)
    except (JoseError, ValueError, TypeError, KeyError):
        return kid, None
    return kid, None if key is None else PublicKey(key, algorithm)


def _imported(one: dict[str, Any]) -> Key | None:
    plain = {name: value for name, value in one.items() if name in _FACTS}
    if plain.get("kty") == "RSA" and len(plain["n"]) >= _RSA_CHARACTERS:
        rsa = RSAKey.import_key(plain)
        return rsa if rsa.public_key.key_size >= MIN_RSA_BITS else None
    if plain.get("kty") == "EC" and plain["crv"] == "P-256":
        return ECKey.import_key(plain)
    if plain.get("kty") == "OKP" and plain["crv"] == "Ed25519":
        return OKPKey.import_key(plain)
    return None
