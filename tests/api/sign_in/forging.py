"""How tokens are forged: by the header, by the claims, with keys that everybody has, by hand."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from joserfc import jwe, jws
from joserfc.jwk import RSAKey

from tests.api.sign_in.minting import claims, header, mint, segment, signing_keys, weak_rsa

# What stands before a SHA-256 digest in a signature (RFC 8017, section 9.2).
SHA256_INFO = bytes.fromhex("3031300d060960864801650304020105000420")


def signed_anyhow(head: dict[str, Any] | bytes, payload: bytes, sign: Callable[[bytes], bytes]) -> str:
    """A token of which every part is as its forger likes."""
    first = head if isinstance(head, bytes) else json.dumps(head).encode()
    signing_input = f"{segment(first)}.{segment(payload)}"
    return f"{signing_input}.{segment(sign(signing_input.encode()))}"


def unsigned(head: dict[str, Any]) -> Callable[[datetime], str]:
    return lambda now: signed_anyhow(head, json.dumps(claims(now)).encode(), lambda _: b"").rstrip(".") + "."


def signed_as(algorithm: str) -> Callable[[datetime], str]:
    """An RS256 signature under another name."""
    head = {"alg": algorithm, "kid": "rsa-1"}
    return lambda now: signed_anyhow(head, json.dumps(claims(now)).encode(), rs256)


def with_public_key(encode: Callable[[RSAKey], bytes], algorithm: str = "HS256") -> Callable[[datetime], str]:
    """The public key, which everybody has, used as the secret of a HMAC."""
    digest = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}[algorithm]

    def forge(now: datetime) -> str:
        key = signing_keys()["rsa-1"]
        assert isinstance(key, RSAKey)
        secret = encode(key)
        payload = json.dumps(claims(now)).encode()
        head = {"alg": algorithm, "kid": "rsa-1", "typ": "JWT"}
        return signed_anyhow(head, payload, lambda signing: hmac.new(secret, signing, digest).digest())

    return forge


def modulus(key: RSAKey) -> bytes:
    number = key.public_key.public_numbers().n
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def by_own_header(**changed: Any) -> Callable[[datetime], str]:
    """Signed by the issuer's key, with another header."""
    return lambda now: mint(claims(now), header(**changed))


def by_own_claims(**changed: Any) -> Callable[[datetime], str]:
    """Signed by the issuer's key, with other claims."""
    return lambda now: mint(claims(now, **changed))


def at(**seconds: float) -> Callable[[datetime], str]:
    """Claims of time, in seconds from now."""
    return lambda now: mint(
        claims(now, **{name: (now + timedelta(seconds=value)).timestamp() for name, value in seconds.items()})
    )


def raw_payload(text: bytes) -> Callable[[datetime], str]:
    return lambda _: mint(text)


def good(now: datetime) -> str:
    return mint(claims(now))


def changed_payload(now: datetime) -> str:
    head, _, signature = good(now).split(".")
    return (
        f"{head}.{segment(json.dumps(claims(now, roles=['PlatformAdmin'], sub='eve')).encode())}.{signature}"
    )


def small_rsa(kid: str) -> Callable[[datetime], str]:
    """Rightly signed with a listed key that a laptop can break, by hand since no library helps."""

    def sign(signing: bytes) -> bytes:
        modulus, secret = weak_rsa()[kid]
        size = (modulus.bit_length() + 7) // 8
        digest = SHA256_INFO + hashlib.sha256(signing).digest()
        padded = b"\x00\x01" + b"\xff" * (size - len(digest) - 3) + b"\x00" + digest
        return pow(int.from_bytes(padded, "big"), secret, modulus).to_bytes(size, "big")

    return lambda now: signed_anyhow(header(kid=kid), json.dumps(claims(now)).encode(), sign)


def encrypted(now: datetime) -> str:
    key = signing_keys()["rsa-1"]
    return jwe.encrypt_compact({"alg": "RSA-OAEP", "enc": "A128GCM"}, json.dumps(claims(now)), key)


def detached(now: datetime) -> str:
    head, _, signature = good(now).split(".")
    return f"{head}..{signature}"


def flattened_json(now: datetime) -> str:
    head, payload, signature = good(now).split(".")
    return json.dumps({"protected": head, "payload": payload, "signature": signature}).replace(" ", "")


def own_jwk(now: datetime) -> str:
    """A key of the forger's own, brought along."""
    own = RSAKey.generate_key(2048)
    return mint(claims(now), header(jwk=own.as_dict(private=False)), own)


def doubled_header(member: str) -> Callable[[datetime], str]:
    """A member twice: readers differ in which one counts."""

    def forge(now: datetime) -> str:
        head = json.dumps(header()).replace("{", "{" + member + ", ", 1).encode()
        return signed_anyhow(head, json.dumps(claims(now)).encode(), rs256)

    return forge


def rs256(signing: bytes) -> bytes:
    return signature_of(signing, "RS256")


def signature_of(signing: bytes, algorithm: str) -> bytes:
    alg = jws.JWSRegistry.algorithms[algorithm]
    return bytes(alg.sign(signing, signing_keys()["rsa-1"]))


def doubled_claim(now: datetime) -> str:
    text = json.dumps(claims(now)).replace("{", '{"tenant_id": "tenant-a", ', 1)
    return mint(text.encode())


def b64_header(now: datetime) -> str:
    """RFC 7797: a payload that is not encoded, where nobody asked for it."""
    head = json.dumps(header(b64=False, crit=["b64"])).encode()
    return signed_anyhow(head, json.dumps(claims(now)).encode(), rs256)


def spliced(place: int, text: str) -> Callable[[datetime], str]:
    def forge(now: datetime) -> str:
        parts = good(now).split(".")
        parts[place] += text
        return ".".join(parts)

    return forge
