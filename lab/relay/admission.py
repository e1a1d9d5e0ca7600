"""Who is admitted to a node bus of the laboratory: keys made once, and a credentials file for each user."""

from __future__ import annotations

import json
import os
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path

from wire.bus_credentials import (
    BusKeys,
    KeyPair,
    Permissions,
    agent_token,
    credentials,
    history_permissions,
    issuer_of,
    key_of,
    new_bus,
    new_key,
    relay_permissions,
    server_config,
    user_token,
)

KEYS_FILE, CONFIG_FILE = "bus-keys.json", "accounts.conf"
AGENT_TOKEN_LIFE = timedelta(days=7)
RELAY, HISTORY = "relay", "history"


class Admission:
    """The keys of one bus in a folder; the same keys each time the folder is opened."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        path = folder / KEYS_FILE
        if not path.exists():
            fresh = new_bus(secrets.token_bytes)
            write_private(path, json.dumps({name: pair.seed for name, pair in fresh._asdict().items()}))
        self.keys_file = path
        self.keys = _read(path)

    def config(self, *, listen: str, store: Path) -> Path:
        """The configuration of the bus server, written anew."""
        text = server_config(self.keys, listen=listen, store=str(store), now=_now())
        return write_private(self.folder / CONFIG_FILE, text)

    def relay_file(self) -> Path:
        """Credentials with which the relay says notices."""
        return self._user_file(RELAY, relay_permissions(RELAY))

    def history_file(self) -> Path:
        """Credentials with which the history keeps the stream and sends receipts."""
        return self._user_file(HISTORY, history_permissions(HISTORY))

    def agent_credentials(self, hall: str, instance_id: str) -> str:
        """The text of one agent's credentials file, with a key of its own."""
        own = new_key("U", secrets.token_bytes)
        now = _now()
        jwt = agent_token(
            issuer_of(self.keys),
            user=own.public,
            hall=hall,
            instance_id=instance_id,
            now=now,
            expires_at=now + AGENT_TOKEN_LIFE,
        )
        return credentials(jwt, own.seed)

    def _user_file(self, name: str, may: Permissions) -> Path:
        own = new_key("U", secrets.token_bytes)
        issuer = issuer_of(self.keys)
        jwt = user_token(issuer, user=own.public, name=name, may=may, now=_now(), expires_at=None)
        return write_private(self.folder / f"{name}.creds", credentials(jwt, own.seed))


def write_private(path: Path, text: str) -> Path:
    """Write a file that its owner alone may read, whole or not at all."""
    fresh = path.with_name(path.name + ".new")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    return fresh.replace(path)


def _read(path: Path) -> BusKeys:
    seeds = json.loads(path.read_text())
    pairs: dict[str, KeyPair] = {name: key_of(seeds[name]) for name in BusKeys._fields}
    return BusKeys(**pairs)


def _now() -> datetime:
    return datetime.now(UTC)
