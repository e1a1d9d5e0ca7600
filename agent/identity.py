"""Who this node is to the control plane: a key on its disk, traded once for an identity, then signing.

Nothing here is needed to drain. Every call is bounded, every failure is told and tried again later, and a
node that never becomes known drains by the bundle that it was launched with.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import ValidationError

from agent.api import NOT_MODIFIED, Api, ApiError, Proof, Signer, is_api_url
from agent.bounded import describe
from agent.files import read_bounded, write_atomic
from wire.bus_credentials import credentials, expiry_of, new_key
from wire.node_requests import Asked, BusAdmission, Registered, Registration
from wire.signing import SigningKey

KEY, IDENTITY, CREDENTIALS = "key.pem", "identity.json", "bus.creds"
# Half of a token's life is left when it is replaced, so that an outage of hours costs nothing.
RENEW_SHARE = 0.5
RETRY_SECONDS = 15.0
LONGEST_RETRY_SECONDS = 300.0
LOOK_SECONDS = 60.0
NO_BUS = 404
# What the API answers to a token that no repetition makes good.
WORTHLESS = (401, 403, 422)
log = logging.getLogger("sco.agent")
Offer = Callable[[bytes], Awaitable[object]]


class Identity:
    """The identity of one instance. Files stand in `folder`; `api_url` goes before what the provider says."""

    def __init__(
        self, folder: Path, instance_id: str, api: Api, *, offer: Offer, api_url: str | None = None
    ) -> None:
        """`offer` takes a bundle that came with the registration, signed and not yet believed."""
        self._folder, self._instance_id, self._api, self._offer = folder, instance_id, api, offer
        self._url_is_set = api_url is not None
        self._url = api_url
        self._token: str | None = None
        self._sent: str | None = None
        self._laid = asyncio.Event()
        self._proof: Proof | None = None
        self._renew_at: datetime | None = None

    @property
    def is_known(self) -> bool:
        return self._proof is not None

    def load(self) -> None:
        """Take up what is on disk. What cannot be read, or is another instance's, is left aside."""
        known = _known(self._folder / IDENTITY)
        if known.get("instanceId") != self._instance_id:
            return
        if not self._url_is_set and is_api_url(known.get("apiUrl")):
            self._url = str(known["apiUrl"])
        key = _read_key(self._folder / KEY)
        if key is not None and known.get("registered") is True:
            self._proof = Signer(self._instance_id, key)
            self._renew_at = _half_of(self._folder / CREDENTIALS)
        elif isinstance(known.get("token"), str):
            # It was sent, and the answer may have been lost: the same again is answered the same.
            self._token = self._sent = known["token"]
            self._laid.set()

    def laid(self, own: dict[str, Any]) -> None:
        """What the provider laid down: a one-time token, and where to trade it.

        Every look finds another token. One that was sent stays until it is refused: where only its answer was
        lost, it has made this node known, and no other ever will.
        """
        token, url = own.get("token"), own.get("apiUrl")
        if self.is_known or not isinstance(token, str) or token == self._token:
            return
        if not self._url_is_set and not is_api_url(url):
            log.warning("the token that was laid down comes without an address of the API")
            return
        is_elsewhere = not self._url_is_set and url != self._url
        if self._token is not None and self._token == self._sent and not is_elsewhere:
            return
        if is_elsewhere:
            self._url = str(url)
        self._token = token
        self._laid.set()

    async def fetch(self, held_version: int) -> bytes | None:
        """The newest bundle as it came, or None when it is held. Raises OSError when nobody gave it."""
        proof, url = self._ready()
        path = f"/nodes/{self._instance_id}/bundle"
        held = {"If_None_Match": f'"{held_version}"'} if held_version else {}
        answer = await self._api.ask(url, Asked("GET", path), proof, **held)
        return None if answer.status == NOT_MODIFIED else answer.body

    async def run(self) -> None:
        """Become known once a token is there, then keep the entry to the bus fresh. Does not end."""
        pause = RETRY_SECONDS
        while True:
            try:
                await self._step()
                pause = RETRY_SECONDS
            except (OSError, ValueError) as error:
                log.warning("the control plane does not know this node yet or any more: %s", describe(error))
                await asyncio.sleep(pause * (0.5 + secrets.randbelow(1000) / 1000))
                pause = min(pause * 2, LONGEST_RETRY_SECONDS)

    async def _step(self) -> None:
        if not self.is_known:
            await self._laid.wait()
            await self.register()
            return
        if self._renew_at is None or self._api.now() >= self._renew_at:
            await self.renew()
        await asyncio.sleep(LOOK_SECONDS)

    async def register(self) -> None:
        """Trade the token for an identity. The key is on disk before, the answer after. Raises OSError."""
        token, url = self._token, self._url
        if token is None or url is None:
            raise ApiError("no one-time token was laid down for this instance")
        key = await asyncio.to_thread(self._own_key, token, url)
        self._sent = token
        bus = new_key("U", secrets.token_bytes)
        try:
            asked = Registration(
                instance_id=self._instance_id,
                token=token,
                public_key=SigningKey(self._instance_id, key).public_text,
                bus_key=bus.public,
            )
            body = asked.model_dump_json(by_alias=True).encode()
            answer = await self._api.ask(url, Asked("POST", "/nodes/identity", body), None)
            told = Registered.model_validate_json(answer.body)
        except ValidationError as error:
            self._drop(token)
            raise ApiError(f"the registration cannot be used: {describe(error)}") from None
        except ApiError as error:
            if error.status not in WORTHLESS:
                raise
            self._drop(token)
            if not await self._is_known_by(key):
                raise
            await asyncio.to_thread(self._keep_known, url)
            return
        if told.instance_id != self._instance_id:
            raise ApiError("the answer to the registration is for another instance")
        await asyncio.to_thread(self._keep_known, url)
        self._proof = Signer(self._instance_id, key)
        log.info("this node is known to the control plane as %s", self._instance_id)
        await self._enter(told.bus, bus.seed)
        await self._offer(told.bundle.encode())

    async def _is_known_by(self, key: Ed25519PrivateKey) -> bool:
        """Whether this key was registered, and the answer lost for longer than the token was good."""
        self._proof = Signer(self._instance_id, key)
        try:
            await self.renew()
        except OSError:
            self._proof = None
        return self.is_known

    def _drop(self, token: str) -> None:
        """Leave a token that is worth nothing aside, and wait for another."""
        if self._token == token:
            self._token = None
            self._laid.clear()

    async def renew(self) -> None:
        """Get entry to the bus for a new key. Raises OSError; what was held stays good until it ends."""
        proof, url = self._ready()
        bus = new_key("U", secrets.token_bytes)
        path, body = f"/nodes/{self._instance_id}/bus-credentials", json.dumps({"busKey": bus.public})
        try:
            answer = await self._api.ask(url, Asked("POST", path, body.encode()), proof)
            admission = BusAdmission.model_validate_json(answer.body)
        except ValidationError as error:
            raise ApiError(f"the entry to the bus cannot be used: {describe(error)}") from None
        except ApiError as error:
            if error.status != NO_BUS:
                raise
            admission = None
        await self._enter(admission, bus.seed)

    async def _enter(self, admission: BusAdmission | None, seed: str) -> None:
        """Keep an admission for whoever connects next; without one look again in a while."""
        now = self._api.now()
        if admission is None:
            self._renew_at = now + timedelta(seconds=LONGEST_RETRY_SECONDS)
            return
        text = credentials(admission.jwt, seed).encode()
        await asyncio.to_thread(write_atomic, self._folder / CREDENTIALS, text)
        self._renew_at = now + max(admission.expires_at - now, timedelta(minutes=1)) * RENEW_SHARE

    def _ready(self) -> tuple[Proof, str]:
        if self._proof is None or self._url is None:
            raise ApiError("this node is not known to the control plane yet")
        return self._proof, self._url

    def _own_key(self, token: str, url: str) -> Ed25519PrivateKey:
        """The key of this instance; a new one where the disk was another's, or holds none."""
        kept = _known(self._folder / IDENTITY).get("instanceId") == self._instance_id
        key = _read_key(self._folder / KEY) if kept else None
        if key is None:
            key = Ed25519PrivateKey.generate()
            write_atomic(self._folder / KEY, _pem(key))
        self._write_known({"instanceId": self._instance_id, "apiUrl": url, "token": token})
        return key

    def _keep_known(self, url: str) -> None:
        self._write_known({"instanceId": self._instance_id, "apiUrl": url, "registered": True})

    def _write_known(self, known: dict[str, Any]) -> None:
        write_atomic(self._folder / IDENTITY, json.dumps(known).encode())


def _known(path: Path) -> dict[str, Any]:
    try:
        known = json.loads(read_bounded(path) or b"{}")
    except (ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def _read_key(path: Path) -> Ed25519PrivateKey | None:
    raw = read_bounded(path)
    if raw is None:
        return None
    try:
        key = serialization.load_pem_private_key(raw, None)
    except (ValueError, TypeError):
        log.warning("%s holds no key that can be read", path)
        return None
    return key if isinstance(key, Ed25519PrivateKey) else None


def _pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _half_of(path: Path) -> datetime | None:
    """When what is held has to be renewed; None for at once. Its age is the file's."""
    lines = (read_bounded(path) or b"").decode(errors="replace").splitlines()
    until = expiry_of(lines[1]) if len(lines) > 1 else None
    if until is None:
        return None
    try:
        written = path.stat().st_mtime
        return datetime.fromtimestamp(written + (until - written) * RENEW_SHARE, UTC)
    except (OSError, ValueError, OverflowError):
        return None
