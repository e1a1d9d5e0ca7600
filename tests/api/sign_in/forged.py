"""Every bad token that we could think of, by what is wrong with it, and the reason that it is refused for."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from joserfc.jwk import ECKey, OKPKey, RSAKey

from api.sign_in.refusal import Reason
from tests.api.sign_in.forging import (
    at,
    b64_header,
    by_own_claims,
    by_own_header,
    changed_payload,
    detached,
    doubled_claim,
    doubled_header,
    encrypted,
    flattened_json,
    good,
    modulus,
    own_jwk,
    raw_payload,
    rs256,
    signature_of,
    signed_anyhow,
    signed_as,
    small_rsa,
    spliced,
    unsigned,
    with_public_key,
)
from tests.api.sign_in.minting import AUDIENCE, ISSUER, claims, header, mint, signing_keys

Forged = tuple[Callable[[datetime], str], Reason]
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
            header(), json.dumps(claims(now)).encode(), lambda signing: signature_of(signing, "PS256")
        ),
        Reason.SIGNATURE,
    ),
    "no alg": (
        lambda now: signed_anyhow({"kid": "rsa-1"}, json.dumps(claims(now)).encode(), rs256),
        Reason.ALGORITHM,
    ),
    "alg is a list": (
        lambda now: signed_anyhow(
            {"alg": ["RS256"], "kid": "rsa-1"}, json.dumps(claims(now)).encode(), rs256
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
        lambda now: signed_anyhow({"alg": "RS256", "kid": 1}, json.dumps(claims(now)).encode(), rs256),
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
        lambda now: signed_anyhow(header(crit=["exp"], exp=1), json.dumps(claims(now)).encode(), rs256),
        Reason.HEADER,
    ),
    "crit that is empty": (by_own_header(crit=[]), Reason.HEADER),
    "b64": (b64_header, Reason.HEADER),
    "cty of a nested token": (by_own_header(cty="JWT"), Reason.HEADER),
    "zip": (by_own_header(zip="DEF"), Reason.HEADER),
    "typ of an identity of something else": (by_own_header(typ="secevent+jwt"), Reason.HEADER),
    "typ is a number": (
        lambda now: signed_anyhow(
            {"alg": "RS256", "kid": "rsa-1", "typ": 1}, json.dumps(claims(now)).encode(), rs256
        ),
        Reason.HEADER,
    ),
    "alg twice": (doubled_header('"alg": "none"'), Reason.MALFORMED),
    "kid twice": (doubled_header('"kid": "rsa-2"'), Reason.MALFORMED),
    "a header that is a list": (
        lambda now: signed_anyhow(b"[]", json.dumps(claims(now)).encode(), rs256),
        Reason.MALFORMED,
    ),
    "a header that is no JSON": (
        lambda now: signed_anyhow(b'{"alg": "RS256"', json.dumps(claims(now)).encode(), rs256),
        Reason.MALFORMED,
    ),
    "a header in UTF-16": (
        lambda now: signed_anyhow(
            json.dumps(header()).encode("utf-16"), json.dumps(claims(now)).encode(), rs256
        ),
        Reason.MALFORMED,
    ),
    "a header nested without end": (
        lambda now: signed_anyhow(b"[" * 3000, json.dumps(claims(now)).encode(), rs256),
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
    "padding in the header": (spliced(0, "="), Reason.MALFORMED),
    "padding in the payload": (spliced(1, "=="), Reason.MALFORMED),
    "padding in the signature": (spliced(2, "=="), Reason.MALFORMED),
    "the other alphabet": (spliced(2, "+/"), Reason.MALFORMED),
    "one letter more in the header": (spliced(0, "A"), Reason.MALFORMED),
    "one letter more in the payload": (spliced(1, "A"), Reason.SIGNATURE),
    "one letter more in the signature": (spliced(2, "A"), Reason.SIGNATURE),
    "two tokens": (lambda now: f"{good(now)},{good(now)}", Reason.MALFORMED),
    "a word": (lambda _: "token", Reason.MALFORMED),
    "dots": (lambda _: "..", Reason.MALFORMED),
    "a letter with an accent": (lambda now: good(now) + "\u00e9", Reason.MALFORMED),
}
FORGED: dict[str, Forged] = {**ALGORITHMS, **KEYS, **HEADERS, **CLAIMS, **FORMS}
