"""A node plane for a test's front door, an instance that was launched, and a node that signs."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from activities.bundle_keys import FileKeys, SigningKeys
from activities.node_settings import NodeSettings
from api.node_plane import NodePlane, node_plane
from store.engine import Engine
from wire.bus_credentials import KeyPair, issuer_of, new_bus, new_key
from wire.node_requests import Asked, sign_request
from wire.signing import SigningKey

SECRET = "vendordata-" + "s" * 32
BASIC = {"Authorization": "Basic " + base64.b64encode(f"nova:{SECRET}".encode()).decode()}
API_URL = "https://sco.example.net"
BUS = new_bus(secrets.token_bytes)
NOTICE_KEY = SigningKey("reclaimer-1", Ed25519PrivateKey.generate())
SERVER = "6b1d7a1e-0f3c-4f0a-9a53-2d1b3f7c0001"
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
SERVERS = ("nats://bus-1.example.net:4222",)


class KeyFile:
    """A file of bundle keys that a test changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._keys: dict[str, dict[str, str]] = {}
        self.add("sco-1")

    def add(self, name: str, signs_from: datetime = LONG_AGO) -> None:
        seed = self._keys.get(name, {}).get("seed") or base64.b64encode(secrets.token_bytes(32)).decode()
        self._keys[name] = {"name": name, "seed": seed, "signs_from": signs_from.isoformat()}
        self._write()

    def drop(self, name: str) -> None:
        del self._keys[name]
        self._write()

    def _write(self) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"keys": list(self._keys.values())}))
        new.replace(self.path)


def node_settings(keys: Path, **changed: Any) -> NodeSettings:
    told: dict[str, Any] = {
        "api_url": API_URL,
        "vendordata_secret": SECRET,
        "bundle_keys_file": keys,
        "notice_keys": {NOTICE_KEY.key_id: NOTICE_KEY.public_text},
        "node_bus": {"eu-north": SERVERS},
        "bus": {"account": BUS.account.public, "signing_seed": issuer_of(BUS).signing.seed},
    }
    return NodeSettings.model_validate(told | changed)


def plane_on(
    engine: Engine, now: Callable[[], datetime], keys: Path, signing: SigningKeys | None = None
) -> NodePlane:
    return node_plane(engine, node_settings(keys), signing or FileKeys(keys, now=now), now=now)


class NodeClient:
    """One node: its keys, and requests that it signs. Every part of a request can be made wrong."""

    def __init__(self, http: httpx2.AsyncClient, now: Callable[[], datetime], instance_id: str) -> None:
        self.http = http
        self.now = now
        self.instance_id = instance_id
        self.key = Ed25519PrivateKey.generate()
        self.bus: KeyPair = new_key("U", secrets.token_bytes)

    @property
    def public_text(self) -> str:
        return base64.b64encode(self.key.public_key().public_bytes_raw()).decode()

    def registration(self, token: str) -> dict[str, str]:
        return {
            "instanceId": self.instance_id,
            "token": token,
            "publicKey": self.public_text,
            "busKey": self.bus.public,
        }

    async def register(self, token: str) -> httpx2.Response:
        return await self.http.post("/nodes/identity", json=self.registration(token))

    def signed(self, asked: Asked, **changed: Any) -> dict[str, str]:
        told: dict[str, Any] = {
            "key": self.key,
            "instance_id": self.instance_id,
            "at": self.now(),
            "nonce": secrets.token_urlsafe(16),
        }
        return sign_request(asked, **(told | changed))

    async def bundle(self, held: int | None = None) -> httpx2.Response:
        path = f"/nodes/{self.instance_id}/bundle"
        headers = self.signed(Asked("GET", path))
        if held is not None:
            headers["If-None-Match"] = f'"{held}"'
        return await self.http.get(path, headers=headers)

    async def bus_credentials(self) -> httpx2.Response:
        path, body = f"/nodes/{self.instance_id}/bus-credentials", json.dumps({"busKey": self.bus.public})
        headers = self.signed(Asked("POST", path, body.encode())) | {"Content-Type": "application/json"}
        return await self.http.post(path, content=body, headers=headers)
