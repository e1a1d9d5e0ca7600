"""The keys that bundles are signed with: a small port, and a file that holds them.

Several keys stand side by side while one follows another. All are announced in every bundle; the newest whose
time has come signs. So a node has read of a key, in a bundle that it believes, before anything is signed
with it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import AwareDatetime, ConfigDict, Field, SecretStr, ValidationError, model_validator

from activities.node_settings import MAX_KEYS, KeyName, NodeFileRefused, problems_of
from domain.model import Frozen
from wire.signing import LetterKind, unsigned, with_signature

SEED_BYTES = 32


class KeysUnavailable(Exception):
    """Nothing can be signed now. The text holds no secret."""


class PublicKeys(NamedTuple):
    """Every key that is announced, raw and in base64 by name, and the name of the one that signs."""

    announced: Mapping[str, str]
    signs: str


class SigningKeys(Protocol):
    """Answers within two seconds, or raises `KeysUnavailable` within them."""

    async def public(self) -> PublicKeys: ...

    async def sign(self, key_id: str, message: bytes) -> bytes: ...


async def seal_bundle(payload: Mapping[str, Any], keys: SigningKeys, key_id: str) -> bytes:
    """A signed bundle, as `wire.signing.seal` makes it where the private key is at hand."""
    to_sign = unsigned(LetterKind.BUNDLE, payload, key_id)
    return with_signature(to_sign, await keys.sign(key_id, to_sign))


class KeyEntry(NamedTuple):
    """A key by its name, and from when on it signs."""

    name: str
    signs_from: datetime


def signing_now(keys: Sequence[KeyEntry], now: datetime) -> str:
    """The newest key whose time has come; before any has, the first to come."""
    by_time = sorted(keys, key=lambda one: (one.signs_from, one.name))
    come = [one for one in by_time if one.signs_from <= now]
    return (come[-1] if come else by_time[0]).name


class _FileKey(Frozen):
    model_config = ConfigDict(hide_input_in_errors=True)

    name: KeyName
    seed: SecretStr
    signs_from: AwareDatetime

    @model_validator(mode="after")
    def _readable(self) -> Self:
        self.private()
        return self

    def private(self) -> Ed25519PrivateKey:
        try:
            raw = base64.b64decode(self.seed.get_secret_value(), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("seed is not base64") from None
        if len(raw) != SEED_BYTES:
            raise ValueError(f"seed has {len(raw)} bytes, a seed of Ed25519 has {SEED_BYTES}")
        return Ed25519PrivateKey.from_private_bytes(raw)


class _KeyFile(Frozen):
    model_config = ConfigDict(hide_input_in_errors=True)

    keys: Annotated[tuple[_FileKey, ...], Field(min_length=1, max_length=MAX_KEYS)]

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        if len({one.name for one in self.keys}) != len(self.keys):
            raise ValueError("two keys have one name")
        return self


class FileKeys:
    """`SigningKeys` from a file, read again when it changes; a change that cannot be read is left aside."""

    def __init__(self, path: Path, *, now: Callable[[], datetime]) -> None:
        """Raises `NodeFileRefused` where the file cannot be used."""
        self._path = path
        self._now = now
        self._stamp = _stamp(path)
        self._keys = _read(path)

    def __repr__(self) -> str:
        return f"FileKeys({str(self._path)!r})"

    async def public(self) -> PublicKeys:
        self._follow()
        announced = {
            name: base64.b64encode(one.private().public_key().public_bytes_raw()).decode()
            for name, one in self._keys.items()
        }
        entries = [KeyEntry(name, one.signs_from) for name, one in self._keys.items()]
        return PublicKeys(announced, signing_now(entries, self._now()))

    async def sign(self, key_id: str, message: bytes) -> bytes:
        known = self._keys.get(key_id)
        if known is None:
            raise KeysUnavailable(f"no key {key_id!r}")
        return known.private().sign(message)

    def _follow(self) -> None:
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        try:
            self._keys = _read(self._path)
        except NodeFileRefused:
            return
        self._stamp = stamp


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def _read(path: Path) -> dict[str, _FileKey]:
    try:
        listed = _KeyFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise NodeFileRefused(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise NodeFileRefused(f"{path} is refused: {problems_of(error)}") from None
    return {one.name: one for one in listed.keys}
