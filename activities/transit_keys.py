"""`SigningKeys` in OpenBao's transit engine: private keys that never leave it, one for each version.

A version is announced from when it is made, and signs `lead_seconds` later. Rotating the key in OpenBao is
all there is to do: nodes have read of the new version by then. What OpenBao no longer lets anybody verify
with (`min_decryption_version`) is not announced any more.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import hvac
import structlog
from cryptography.exceptions import InvalidSignature
from pydantic import AwareDatetime, BaseModel, Field, ValidationError

from activities.bundle_keys import KeyEntry, KeysUnavailable, PublicKeys, signing_now
from activities.node_settings import MAX_KEYS, TransitSettings, problems_of
from activities.openbao import NotThere, OpenBao, OpenBaoAway
from wire.signing import public_key

# After OpenBao failed, who asks is told at once for so long: hundreds of nodes would wait for it otherwise.
PAUSE_SECONDS = 2.0
log = structlog.get_logger("bundle_keys")
T = TypeVar("T")


class Act(StrEnum):
    """What OpenBao is asked to do."""

    READ = "read"
    SIGN = "sign"


class _Version(BaseModel):
    creation_time: AwareDatetime
    public_key: str


class Key(BaseModel):
    """What OpenBao says of a key. Versions that it has put away are not listed."""

    type: Literal["ed25519"]
    derived: Literal[False]
    keys: Annotated[dict[int, _Version], Field(min_length=1)]
    min_decryption_version: int
    min_encryption_version: int
    min_available_version: int = 0


class Known(NamedTuple):
    """The versions that are believed, by key id: the public key, and from when on each may sign."""

    public: Mapping[str, str]
    entries: tuple[KeyEntry, ...]


class TransitKeys:
    """Bundle keys of one process. Close it to end its threads."""

    def __init__(
        self,
        settings: TransitSettings,
        *,
        now: Callable[[], datetime],
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._now = now
        self._steady = steady
        self._bao = OpenBao(settings, now=now, threads="bundle-keys")
        self._reading = asyncio.Lock()
        self._known = Known({}, ())
        self._known_until = self._away_until = steady()
        self._failing: set[Act] = set()

    def close(self) -> None:
        self._bao.close()

    def __repr__(self) -> str:
        return f"TransitKeys({self._settings.url!r}, {self._settings.key!r})"

    async def public(self) -> PublicKeys:
        async with self._reading:
            if self._steady() >= self._known_until:
                self._known = await self._ask(Act.READ, self._look, self._understood)
                self._known_until = self._steady() + self._settings.cache_seconds
        return announced(self._known, self._now())

    async def sign(self, key_id: str, message: bytes) -> bytes:
        """The signature by one version, which is checked before it is given."""
        public = self._known.public.get(key_id)
        if public is None:
            raise KeysUnavailable(f"no key {key_id!r}")
        version = int(key_id.rpartition("-v")[2])

        def checked(answer: Any) -> bytes:
            prefix, said, signature = str(answer).split(":")
            if (prefix, said) != ("vault", f"v{version}"):
                raise ValueError("it is of another version")
            raw = base64.b64decode(signature, validate=True)
            public_key(key_id, public).verify(raw, message)
            return raw

        return await self._ask(Act.SIGN, lambda client: self._sign(client, version, message), checked)

    def _look(self, client: hvac.Client) -> Any:
        transit: Any = client.secrets.transit
        return transit.read_key(self._settings.key, mount_point=self._settings.mount)["data"]

    def _understood(self, answer: Any) -> Known:
        return versions(self._settings, Key.model_validate(answer))

    def _sign(self, client: hvac.Client, version: int, message: bytes) -> Any:
        transit: Any = client.secrets.transit
        text = base64.b64encode(message).decode()
        place = self._settings.mount
        answer = transit.sign_data(self._settings.key, text, key_version=version, mount_point=place)
        return answer["data"]["signature"]

    async def _ask(self, act: Act, call: Callable[[hvac.Client], Any], read: Callable[[Any], T]) -> T:
        """What an answer of OpenBao means; `KeysUnavailable` when there is none, or it makes no sense."""
        if self._steady() < self._away_until:
            raise KeysUnavailable("OpenBao failed a moment ago")
        try:
            found = read(await self._bao.ask(call))
        except NotThere:
            raise self._failed(act, "it has no such key") from None
        except OpenBaoAway as away:
            raise self._failed(act, str(away)) from None
        except ValidationError as error:
            raise self._failed(act, f"the key is of no use: {problems_of(error)}") from None
        except (InvalidSignature, ValueError) as error:
            raise self._failed(act, f"the answer is of no use: {error or 'a wrong signature'}") from None
        if act in self._failing:
            self._failing.remove(act)
            log.info("bundle_keys_back", act=act, url=self._settings.url)
        return found

    def _failed(self, act: Act, problem: str) -> KeysUnavailable:
        """Told in the log once, until the same has been answered again."""
        self._away_until = self._steady() + PAUSE_SECONDS
        whole = f"OpenBao at {self._settings.url}, key {self._settings.mount}/{self._settings.key}: {problem}"
        if act not in self._failing:
            self._failing.add(act)
            log.error("bundle_keys_away", act=act, problem=whole)
        return KeysUnavailable(whole)


def versions(settings: TransitSettings, key: Key) -> Known:
    """What is believed and what may sign. ValueError when a public key is none, or nothing is left."""
    least = max(key.min_decryption_version, key.min_available_version)
    believed = {number: one for number, one in sorted(key.keys.items()) if number >= least}
    public, entries = {}, []
    for number, one in believed.items():
        name = f"{settings.key}-v{number}"
        public_key(name, one.public_key)
        public[name] = one.public_key
        if number >= key.min_encryption_version:
            entries.append(KeyEntry(name, one.creation_time + timedelta(seconds=settings.lead_seconds)))
    if not entries:
        raise ValueError("it has no version that may sign")
    return Known(public, tuple(entries))


def announced(known: Known, now: datetime) -> PublicKeys:
    """The newest keys that a bundle has room for, the one that signs among them."""
    signs = signing_now(known.entries, now)
    newest = list(known.public)[-MAX_KEYS:]
    if signs not in newest:
        newest = [signs, *newest[1:]]
    return PublicKeys({name: known.public[name] for name in newest}, signs)
