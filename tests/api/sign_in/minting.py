"""Tokens as an issuer makes them, and as nobody should."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from joserfc import jws
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey
from joserfc.util import int_to_base64

from api.sign_in.keys import FixedKeys
from api.sign_in.tokens import ALGORITHMS, TokenVerifier, Trust

ISSUER = "https://issuer.example/realms/factory"
AUDIENCE = "sco-api"
TRUST = Trust(issuer=ISSUER, audience=AUDIENCE)
_PRIMES = (
    0xD90653D98CF91EE01C25451D3F073DE08D37B84D2D9FFE8A62558E3193125873,
    0xCD5DB7043D619D6885891B44FEE22894A7D1728B348533BF33EF85472EF7E903,
)
KIDS = {"RS256": "rsa-1", "PS256": "rsa-1", "ES256": "ec-1", "EdDSA": "ed-1"}


class _All(jws.JWSRegistry):
    """Signs with whatever is asked for."""

    max_header_length = 1_000_000

    def get_alg(self, name: str) -> Any:
        return ALGORITHMS.get(name) or self.algorithms[name]


_ALL = _All(strict_check_header=False)


@cache
def signing_keys() -> dict[str, Key]:
    """The issuer's own keys by id, made once for a run."""
    return {
        "rsa-1": RSAKey.generate_key(2048),
        "rsa-2": RSAKey.generate_key(2048),
        "ec-1": ECKey.generate_key("P-256"),
        "ed-1": OKPKey.generate_key("Ed25519"),
    }


@cache
def weak_rsa() -> dict[str, tuple[int, int]]:
    """Modulus and secret exponent of RSA keys that are too short."""
    prime, other = _PRIMES
    short = prime * other, pow(65537, -1, (prime - 1) * (other - 1))
    longer = rsa.generate_private_key(65537, 1024).private_numbers()
    return {"rsa-512": short, "rsa-1024": (longer.public_numbers.n, longer.d)}


def key_set(*kids: str) -> dict[str, Any]:
    """The public half of the issuer's keys, all where none is named, and the weak ones as well."""
    keys = signing_keys()
    listed = [keys[kid].as_dict(private=False, kid=kid, use="sig") for kid in kids or keys]
    weak = [
        {"kty": "RSA", "kid": kid, "e": "AQAB", "n": int_to_base64(modulus)}
        for kid, (modulus, _) in weak_rsa().items()
    ]
    return {"keys": [*listed, *weak]}


def verifier(now: Any, trust: Trust = TRUST) -> TokenVerifier:
    return TokenVerifier(trust, FixedKeys(key_set()), now)


def claims(now: datetime, **changed: Any) -> dict[str, Any]:
    """What a good token says; a claim that is changed to None is left out."""
    said: dict[str, Any] = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ada",
        "iat": int(now.timestamp()),
        "exp": int((now + timedelta(hours=1)).timestamp()),
        "tenant_id": "platform",
        "scope": "factory.compute.read factory.compute.admin",
        "roles": ["PlatformAdmin"],
    }
    said |= changed
    return {name: value for name, value in said.items() if value is not None}


def header(algorithm: str = "RS256", **changed: Any) -> dict[str, Any]:
    said: dict[str, Any] = {"alg": algorithm, "kid": KIDS.get(algorithm, "rsa-1"), "typ": "at+jwt"}
    said |= changed
    return {name: value for name, value in said.items() if value is not None}


def mint(payload: Mapping[str, Any] | bytes, head: Mapping[str, Any] | None = None, key: Any = None) -> str:
    """A signed token. The key is the issuer's own for the header's `kid`, unless another is given."""
    said = dict(head or header())
    content = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return jws.serialize_compact(said, content, key or signing_keys()[said["kid"]], registry=_ALL)


def segment(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
