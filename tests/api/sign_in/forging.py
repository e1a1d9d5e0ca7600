"""Every bad token that we could think of, by what is wrong with it, and the reason that it is refused for."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from joserfc import jwe, jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

from api.sign_in.refusal import Reason
from tests.api.sign_in.minting import AUDIENCE, ISSUER, claims, header, mint, segment, signing_keys, weak_rsa

# What stands before a SHA-256 digest in a signature (RFC 8017, section 9.2).
SHA256_INFO = bytes.fromhex("3031300d060960864801650304020105000420")
Forged = tuple[Callable[[datetime], str], Reason]


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
    return lambda now: signed_anyhow(head, json.dumps(claims(now)).encode(), _rs256)


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
        return signed_anyhow(head, json.dumps(claims(now)).encode(), _rs256)

    return forge


def _rs256(signing: bytes) -> bytes:
    return _signature_of(signing, "RS256")


def _signature_of(signing: bytes, algorithm: str) -> bytes:
    alg = jws.JWSRegistry.algorithms[algorithm]
    return bytes(alg.sign(signing, signing_keys()["rsa-1"]))


def doubled_claim(now: datetime) -> str:
    text = json.dumps(claims(now)).replace("{", '{"tenant_id": "tenant-a", ', 1)
    return mint(text.encode())


def b64_header(now: datetime) -> str:
    """RFC 7797: a payload that is not encoded, where nobody asked for it."""
    head = json.dumps(header(b64=False, crit=["b64"])).encode()
    return signed_anyhow(head, json.dumps(claims(now)).encode(), _rs256)


def _spliced(place: int, text: str) -> Callable[[datetime], str]:
    def forge(now: datetime) -> str:
        parts = good(now).split(".")
        parts[place] += text
        return ".".join(parts)

    return forge


WRONG_TYPES: dict[str, tuple[Any, ...]] = {
    "iss": (7, [ISSUER], {"a": 1}, "", True),
    "sub": (7, ["ada"], "", "a" * 256, "ada\x00", "ada\nroot", True),
    "aud": (7, {"a": 1}, [7], [AUDIENCE, 7], [""], True),
    "exp": ("tomorrow", True, [], {}, -1, 1e300, 10**30),
    "iat": ("now", True, [], -1),
    "nbf": ("now", False, []),
    "tenant_id": (7, ["platform"], "", "Platform", "../platform", "platform ", "platform\n", "a" * 64, "-a"),
    "scope": (7, ["factory.compute.read"], "", " ", "factory.compute.read  factory.compute.admin", True),
    "roles": ("PlatformAdmin", 7, {"PlatformAdmin": True}, [7], [["PlatformAdmin"]], [""]),
}
_PLACE = {"tenant_id": "\u200bplatform"}


def _of_types() -> dict[str, Forged]:
    return {
        f"{name} is {value!r:.40}": (by_own_claims(**{name: value}), Reason.CLAIMS)
        for name, values in WRONG_TYPES.items()
        for value in values
    }


def _missing() -> dict[str, Forged]:
    return {
        f"no {name}": (by_own_claims(**{name: None}), Reason.CLAIMS)
        for name in ("iss", "sub", "aud", "exp", "iat", "tenant_id")
    }


ALGORITHMS: dict[str, Forged] = {
    **{
        f"alg {name!r} without a signature": (unsigned({"alg": name, "kid": "rsa-1"}), Reason.MALFORMED)
        for name in ("none", "None", "NONE", "nOnE", "")
    },
    **{
        f"alg {name!r} with a signature": (signed_as(name), Reason.ALGORITHM)
        for name in ("none", "None", "NONE", "nOnE", "", "rs256", "RS256 ", "RS1", "ES256K", "Ed448")
    },
    "HS256 with the public key as PEM": (
        with_public_key(lambda key: key.as_pem(private=False)),
        Reason.ALGORITHM,
    ),
    "HS256 with the public key as DER": (
        with_public_key(lambda key: key.as_der(private=False)),
        Reason.ALGORITHM,
    ),
    "HS256 with the modulus": (with_public_key(modulus), Reason.ALGORITHM),
    "HS256 with the JSON of the key": (
        with_public_key(lambda key: json.dumps(key.as_dict(private=False)).encode()),
        Reason.ALGORITHM,
    ),
    "HS512 with the public key as PEM": (
        with_public_key(lambda key: key.as_pem(private=False), "HS512"),
        Reason.ALGORITHM,
    ),
    "HS256 with an empty secret": (with_public_key(lambda _: b""), Reason.ALGORITHM),
    "RS384": (lambda now: mint(claims(now), header(alg="RS384")), Reason.ALGORITHM),
    "RS512": (lambda now: mint(claims(now), header(alg="RS512")), Reason.ALGORITHM),
    "ES256 with the id of an RSA key": (
        lambda now: mint(claims(now), header("ES256", kid="rsa-1"), signing_keys()["ec-1"]),
        Reason.ALGORITHM,
    ),
    "RS256 with the id of a P-256 key": (
        lambda now: mint(claims(now), header("RS256", kid="ec-1"), signing_keys()["rsa-1"]),
        Reason.ALGORITHM,
    ),
    "EdDSA with the id of an RSA key": (
        lambda now: mint(claims(now), header("EdDSA", kid="rsa-1"), signing_keys()["ed-1"]),
        Reason.ALGORITHM,
    ),
    "PS256 signature under RS256": (
        lambda now: signed_anyhow(
            header(), json.dumps(claims(now)).encode(), lambda signing: _signature_of(signing, "PS256")
        ),
        Reason.SIGNATURE,
    ),
    "no alg": (
        lambda now: signed_anyhow({"kid": "rsa-1"}, json.dumps(claims(now)).encode(), _rs256),
        Reason.ALGORITHM,
    ),
    "alg is a list": (
        lambda now: signed_anyhow(
            {"alg": ["RS256"], "kid": "rsa-1"}, json.dumps(claims(now)).encode(), _rs256
        ),
        Reason.ALGORITHM,
    ),
}
KEYS: dict[str, Forged] = {
    "signed by another RSA key": (
        lambda now: mint(claims(now), header(), RSAKey.generate_key(2048)),
        Reason.SIGNATURE,
    ),
    "signed by another P-256 key": (
        lambda now: mint(claims(now), header("ES256"), ECKey.generate_key("P-256")),
        Reason.SIGNATURE,
    ),
    "signed by another Ed25519 key": (
        lambda now: mint(claims(now), header("EdDSA"), OKPKey.generate_key("Ed25519")),
        Reason.SIGNATURE,
    ),
    "signed by the issuer's other key": (
        lambda now: mint(claims(now), header(), signing_keys()["rsa-2"]),
        Reason.SIGNATURE,
    ),
    "an RSA key of 1024 bits": (small_rsa("rsa-1024"), Reason.UNKNOWN_KEY),
    "an RSA key of 512 bits": (small_rsa("rsa-512"), Reason.UNKNOWN_KEY),
    "an unknown kid": (
        lambda now: mint(claims(now), header(kid="x"), signing_keys()["rsa-1"]),
        Reason.UNKNOWN_KEY,
    ),
    "no kid": (
        lambda now: mint(claims(now), header(kid=None), signing_keys()["rsa-1"]),
        Reason.UNKNOWN_KEY,
    ),
    "an empty kid": (
        lambda now: mint(claims(now), header(kid=""), signing_keys()["rsa-1"]),
        Reason.UNKNOWN_KEY,
    ),
    "kid is a path": (
        lambda now: mint(claims(now), header(kid="../../../dev/null"), signing_keys()["rsa-1"]),
        Reason.UNKNOWN_KEY,
    ),
    "kid is SQL": (
        lambda now: mint(claims(now), header(kid="' UNION SELECT 'key"), signing_keys()["rsa-1"]),
        Reason.UNKNOWN_KEY,
    ),
    "kid is a number": (
        lambda now: signed_anyhow({"alg": "RS256", "kid": 1}, json.dumps(claims(now)).encode(), _rs256),
        Reason.UNKNOWN_KEY,
    ),
    "kid is long": (
        lambda now: mint(claims(now), header(kid="k" * 300), signing_keys()["rsa-1"]),
        Reason.UNKNOWN_KEY,
    ),
}
HEADERS: dict[str, Forged] = {
    "jwk with a key of the forger": (own_jwk, Reason.HEADER),
    "jku": (by_own_header(jku="https://evil.example/jwks"), Reason.HEADER),
    "jku of the issuer": (by_own_header(jku=f"{ISSUER}/jwks"), Reason.HEADER),
    "x5u": (by_own_header(x5u="https://evil.example/cert"), Reason.HEADER),
    "x5c": (by_own_header(x5c=["MIIB"]), Reason.HEADER),
    "crit with something unknown": (
        lambda now: signed_anyhow(header(crit=["exp"], exp=1), json.dumps(claims(now)).encode(), _rs256),
        Reason.HEADER,
    ),
    "crit that is empty": (by_own_header(crit=[]), Reason.HEADER),
    "b64": (b64_header, Reason.HEADER),
    "cty of a nested token": (by_own_header(cty="JWT"), Reason.HEADER),
    "zip": (by_own_header(zip="DEF"), Reason.HEADER),
    "typ of an identity of something else": (by_own_header(typ="secevent+jwt"), Reason.HEADER),
    "typ is a number": (
        lambda now: signed_anyhow(
            {"alg": "RS256", "kid": "rsa-1", "typ": 1}, json.dumps(claims(now)).encode(), _rs256
        ),
        Reason.HEADER,
    ),
    "alg twice": (doubled_header('"alg": "none"'), Reason.MALFORMED),
    "kid twice": (doubled_header('"kid": "rsa-2"'), Reason.MALFORMED),
    "a header that is a list": (
        lambda now: signed_anyhow(b"[]", json.dumps(claims(now)).encode(), _rs256),
        Reason.MALFORMED,
    ),
    "a header that is no JSON": (
        lambda now: signed_anyhow(b'{"alg": "RS256"', json.dumps(claims(now)).encode(), _rs256),
        Reason.MALFORMED,
    ),
    "a header in UTF-16": (
        lambda now: signed_anyhow(
            json.dumps(header()).encode("utf-16"), json.dumps(claims(now)).encode(), _rs256
        ),
        Reason.MALFORMED,
    ),
    "a header nested without end": (
        lambda now: signed_anyhow(b"[" * 3000, json.dumps(claims(now)).encode(), _rs256),
        Reason.MALFORMED,
    ),
}
CLAIMS: dict[str, Forged] = {
    "expired": (at(exp=-3600), Reason.EXPIRED),
    "expired to the second, leeway and all": (at(exp=-60), Reason.EXPIRED),
    "not yet valid": (at(nbf=3600), Reason.NOT_YET_VALID),
    "not valid for a second more than the leeway": (at(nbf=61), Reason.NOT_YET_VALID),
    "issued in the future": (at(iat=61), Reason.NOT_YET_VALID),
    "another audience": (by_own_claims(aud="other-api"), Reason.AUDIENCE),
    "the audience with other letters": (by_own_claims(aud=AUDIENCE.upper()), Reason.AUDIENCE),
    "several audiences, none of them ours": (by_own_claims(aud=["a", "b"]), Reason.AUDIENCE),
    "no audience in the list": (by_own_claims(aud=[]), Reason.AUDIENCE),
    "an audience that begins like ours": (by_own_claims(aud=f"{AUDIENCE}-2"), Reason.AUDIENCE),
    "another issuer": (by_own_claims(iss="https://evil.example"), Reason.ISSUER),
    "the issuer with a slash": (by_own_claims(iss=f"{ISSUER}/"), Reason.ISSUER),
    "the issuer in capitals": (by_own_claims(iss=ISSUER.upper()), Reason.ISSUER),
    "the issuer over http": (by_own_claims(iss=ISSUER.replace("https", "http")), Reason.ISSUER),
    "a claim twice": (doubled_claim, Reason.MALFORMED),
    "NaN as its end": (
        lambda now: mint(json.dumps(claims(now, exp=float("nan"))).encode()),
        Reason.MALFORMED,
    ),
    "an end without end": (
        lambda now: mint(json.dumps(claims(now)).replace('"exp": ', '"exp": 1e999, "x": ').encode()),
        Reason.CLAIMS,
    ),
    "a hidden letter in the tenant": (by_own_claims(**_PLACE), Reason.CLAIMS),
    "half a letter in the subject": (by_own_claims(sub="a\ud800"), Reason.CLAIMS),
    "claims that are a list": (raw_payload(b"[]"), Reason.MALFORMED),
    "claims that are no JSON": (raw_payload(b"{"), Reason.MALFORMED),
    "claims that are no UTF-8": (raw_payload(b'{"iss": "\xff"}'), Reason.MALFORMED),
    "a number of thousands of digits": (raw_payload(b'{"exp": ' + b"9" * 5000 + b"}"), Reason.MALFORMED),
    **_missing(),
    **_of_types(),
}
FORMS: dict[str, Forged] = {
    "a changed payload": (changed_payload, Reason.SIGNATURE),
    "the end cut off": (lambda now: good(now)[:-10], Reason.SIGNATURE),
    "the signature cut off": (lambda now: good(now).rpartition(".")[0], Reason.MALFORMED),
    "an empty signature": (lambda now: good(now).rpartition(".")[0] + ".", Reason.MALFORMED),
    "a dot too many": (lambda now: good(now) + ".", Reason.MALFORMED),
    "a dot before": (lambda now: "." + good(now), Reason.MALFORMED),
    "five parts": (encrypted, Reason.MALFORMED),
    "a detached payload": (detached, Reason.MALFORMED),
    "the form for JSON": (flattened_json, Reason.MALFORMED),
    "too large": (by_own_claims(padding="x" * 8192), Reason.TOO_LARGE),
    "padding in the header": (_spliced(0, "="), Reason.MALFORMED),
    "padding in the payload": (_spliced(1, "=="), Reason.MALFORMED),
    "padding in the signature": (_spliced(2, "=="), Reason.MALFORMED),
    "the other alphabet": (_spliced(2, "+/"), Reason.MALFORMED),
    "one letter more in the header": (_spliced(0, "A"), Reason.MALFORMED),
    "one letter more in the payload": (_spliced(1, "A"), Reason.SIGNATURE),
    "one letter more in the signature": (_spliced(2, "A"), Reason.SIGNATURE),
    "two tokens": (lambda now: f"{good(now)},{good(now)}", Reason.MALFORMED),
    "a word": (lambda _: "token", Reason.MALFORMED),
    "dots": (lambda _: "..", Reason.MALFORMED),
    "a letter with an accent": (lambda now: good(now) + "\u00e9", Reason.MALFORMED),
}
FORGED: dict[str, Forged] = {**ALGORITHMS, **KEYS, **HEADERS, **CLAIMS, **FORMS}
