"""Who may do what on the node bus: a NATS server that admits whom a signed token names.

The bus runs in operator mode. An operator vouches for an account, the account for its users, and a user's
token says which subjects it may use and until when. So the bus admits an agent without asking anybody, and
whoever holds the account's signing key admits agents without telling the bus.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

import nkeys  # type: ignore[import-untyped]

from wire.node import STREAM, inbox_prefix, lifecycle_subject, notice_subject, receipt_subject

SEED_BYTES = 32
# An agent sends events of at most 32 KiB and listens to three subjects.
AGENT_PAYLOAD_BYTES = 64 * 1024
AGENT_SUBSCRIPTIONS = 16
UNLIMITED = -1
VERSION = 2
USER_KEY = re.compile(r"U[A-Z2-7]{55}")
_PREFIXES = {
    "O": nkeys.PREFIX_BYTE_OPERATOR,
    "A": nkeys.PREFIX_BYTE_ACCOUNT,
    "U": nkeys.PREFIX_BYTE_USER,
}
_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
Claims = dict[str, Any]
Random = Callable[[int], bytes]


class Permissions(NamedTuple):
    """Subjects that a user may publish and subscribe; everything else is refused."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


class KeyPair(NamedTuple):
    """A key of the bus: its seed, which is secret, and its public name."""

    seed: str
    public: str

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r})"


class BusKeys(NamedTuple):
    """Every key behind one bus. Only `signing` is needed to admit users; keep the others in a safe."""

    operator: KeyPair
    account: KeyPair
    signing: KeyPair
    system: KeyPair


class Issuer(NamedTuple):
    """What admits users to the account: its public name, and the signing key that it vouches for."""

    account: str
    signing: KeyPair


def new_key(kind: str, random: Random) -> KeyPair:
    """A new key of kind "O" (operator), "A" (account) or "U" (user)."""
    return key_of(nkeys.encode_seed(random(SEED_BYTES), _PREFIXES[kind]).decode())


def key_of(seed: str) -> KeyPair:
    """The key of a seed. ValueError when it is none; the text does not repeat it."""
    try:
        prefix, raw = nkeys.decode_seed(bytearray(seed.encode()))
        # The library leaves the checksum aside, and with it a letter that was copied wrongly.
        if nkeys.encode_seed(bytes(raw[:SEED_BYTES]), prefix).decode() == seed:
            return KeyPair(seed, nkeys.from_seed(bytearray(seed.encode())).public_key.decode())
    except (nkeys.NkeysError, ValueError, IndexError):
        pass
    raise ValueError("this is no seed of a key of the node bus: a seed begins with SO, SA or SU")


def new_bus(random: Random) -> BusKeys:
    return BusKeys(*(new_key(kind, random) for kind in ("O", "A", "A", "A")))


def issuer_of(keys: BusKeys) -> Issuer:
    return Issuer(keys.account.public, keys.signing)


def agent_permissions(hall: str, instance_id: str) -> Permissions:
    """An agent hears what concerns its own instance, and speaks as that instance alone."""
    heard = (notice_subject(hall, instance_id), receipt_subject(hall, instance_id))
    return Permissions(
        publish=(lifecycle_subject(hall, instance_id),),
        subscribe=(*heard, f"{inbox_prefix(instance_id)}.>"),
    )


def relay_permissions(name: str = "relay") -> Permissions:
    """The provider's relay says notices, and hears nothing but answers to itself."""
    return Permissions(publish=("notices.>",), subscribe=(f"{inbox_prefix(name)}.>",))


def history_permissions(name: str = "history") -> Permissions:
    """The history declares and reads the stream of lifecycle events, and says what it keeps."""
    return Permissions(
        publish=("receipts.>", "$JS.API.>", f"$JS.ACK.{STREAM}.>"),
        subscribe=(f"{inbox_prefix(name)}.>",),
    )


def agent_token(
    issuer: Issuer, *, user: str, hall: str, instance_id: str, now: datetime, expires_at: datetime
) -> str:
    """The token that admits the agent of one instance, whose own key is `user`."""
    return user_token(
        issuer,
        user=user,
        name=instance_id,
        may=agent_permissions(hall, instance_id),
        now=now,
        expires_at=expires_at,
        limits={"subs": AGENT_SUBSCRIPTIONS, "data": UNLIMITED, "payload": AGENT_PAYLOAD_BYTES},
    )


def user_token(
    issuer: Issuer,
    *,
    user: str,
    name: str,
    may: Permissions,
    now: datetime,
    expires_at: datetime | None,
    limits: Mapping[str, int] | None = None,
) -> str:
    """A token for the public user key `user`. ValueError when that is no such key."""
    if USER_KEY.fullmatch(user) is None:
        raise ValueError("a user key of the node bus is U and 55 of A-Z and 2-7")
    usual = {"subs": UNLIMITED, "data": UNLIMITED, "payload": UNLIMITED}
    nats: Claims = {
        "pub": {"allow": list(may.publish)},
        "sub": {"allow": list(may.subscribe)},
        **(usual | dict(limits or {})),
        "issuer_account": issuer.account,
    }
    until = None if expires_at is None else int(expires_at.timestamp())
    return _token("user", subject=user, name=name, nats=nats, signer=issuer.signing, now=now, until=until)


def operator_token(keys: BusKeys, now: datetime) -> str:
    nats: Claims = {"system_account": keys.system.public}
    return _token(
        "operator", subject=keys.operator.public, name="sco", nats=nats, signer=keys.operator, now=now
    )


def account_token(keys: BusKeys, now: datetime) -> str:
    """The account that agents, relay and history share, with JetStream."""
    nats: Claims = {"limits": _account_limits(storage=UNLIMITED), "signing_keys": [keys.signing.public]}
    return _token(
        "account", subject=keys.account.public, name="nodes", nats=nats, signer=keys.operator, now=now
    )


def system_token(keys: BusKeys, now: datetime) -> str:
    """The account in which the servers of the bus talk to each other."""
    nats: Claims = {"limits": _account_limits(storage=0)}
    return _token(
        "account", subject=keys.system.public, name="system", nats=nats, signer=keys.operator, now=now
    )


def credentials(jwt: str, seed: str) -> str:
    """A credentials file: the token and the seed of its user. Secret."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )


def server_config(keys: BusKeys, *, listen: str, store: str, now: datetime) -> str:
    """The whole configuration of a bus server: whom it believes, and where JetStream keeps its files."""
    tokens = {keys.account.public: account_token(keys, now), keys.system.public: system_token(keys, now)}
    preloaded = "\n".join(f"  {account}: {token}" for account, token in tokens.items())
    return (
        f"listen: {json.dumps(listen)}\n"
        f"operator: {operator_token(keys, now)}\n"
        f"system_account: {keys.system.public}\n"
        f"resolver: MEMORY\nresolver_preload: {{\n{preloaded}\n}}\n"
        f"jetstream: {{ store_dir: {json.dumps(store)} }}\n"
    )


def expiry_of(jwt: str) -> float | None:
    """When a token of ours ends, in seconds since the epoch; None where it never does or cannot be read.

    Nothing is verified: this is for whoever holds the token, to renew it in time.
    """
    try:
        part = jwt.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        until = claims["exp"]
        return float(until)
    except (IndexError, ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None


def _account_limits(*, storage: int) -> Claims:
    counted = ("subs", "data", "payload", "imports", "exports", "conn", "leaf")
    stored = ("mem_storage", "disk_storage", "streams", "consumer")
    return dict.fromkeys(counted, UNLIMITED) | dict.fromkeys(stored, storage) | {"wildcards": True}


def _token(
    kind: str,
    *,
    subject: str,
    name: str,
    nats: Claims,
    signer: KeyPair,
    now: datetime,
    until: int | None = None,
) -> str:
    claims: Claims = {
        "iat": int(now.timestamp()),
        "iss": signer.public,
        "name": name,
        "sub": subject,
        "nats": nats | {"type": kind, "version": VERSION},
    }
    if until is not None:
        claims["exp"] = until
    digest = sha256(_json(claims)).digest()
    claims["jti"] = base64.b32encode(digest).decode().rstrip("=")
    signed = f"{_part(_json(_HEADER))}.{_part(_json(claims))}"
    signature = nkeys.from_seed(bytearray(signer.seed.encode())).sign(signed.encode())
    return f"{signed}.{_part(signature)}"


def _json(value: Claims | dict[str, str]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _part(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
