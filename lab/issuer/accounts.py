"""Who may get tokens of the development issuer: people by a click, clients by their secret."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

READ, ADMIN = "factory.compute.read", "factory.compute.admin"
CLIENTS_FILE = "clients.json"
SECRETS_FOLDER = "secrets"
SCREENS = "sco-screens"


@dataclass(frozen=True, slots=True)
class Account:
    """What a token says of its subject."""

    name: str
    tenant_id: str
    roles: tuple[str, ...]
    scopes: tuple[str, ...]


PEOPLE = (
    Account("ada", "platform", ("PlatformAdmin",), (READ, ADMIN)),
    Account("omar", "platform", ("Operator",), (READ, ADMIN)),
    Account("olivia", "platform", ("Observer",), (READ,)),
    Account("tara", "tenant-a", ("PlatformAdmin",), (READ, ADMIN)),
    Account("theo", "tenant-b", ("PlatformAdmin",), (READ, ADMIN)),
)
SERVICES = (
    Account("sco-cli", "platform", ("PlatformAdmin",), (READ, ADMIN)),
    Account("model-router", "platform", ("Operator",), (READ,)),
    Account("pool-agent", "platform", ("Operator",), (READ,)),
    Account("tenant-a-cli", "tenant-a", ("PlatformAdmin",), (READ, ADMIN)),
    Account("tenant-a-router", "tenant-a", ("Operator",), (READ,)),
    Account("tenant-b-cli", "tenant-b", ("PlatformAdmin",), (READ, ADMIN)),
    Account("tenant-b-router", "tenant-b", ("Operator",), (READ,)),
)


@dataclass(frozen=True, slots=True)
class Client:
    """A program with a secret. One without an account of its own signs people in."""

    client_id: str
    secret: str
    account: Account | None

    def __repr__(self) -> str:
        return f"Client({self.client_id!r}, hidden)"


def load_clients(data_dir: Path | None) -> dict[str, Client]:
    """The clients of a data folder. The first time each gets a random secret that only we can read.

    Besides the file with all of them there is a file for each secret, as `sco` takes it. Without a folder
    the clients are new each time.
    """
    path = None if data_dir is None else data_dir / CLIENTS_FILE
    if path is not None and path.exists():
        return {one["client_id"]: _client(one) for one in json.loads(path.read_text())}
    clients = [Client(one.name, secrets.token_urlsafe(32), one) for one in SERVICES]
    clients.append(Client(SCREENS, secrets.token_urlsafe(32), None))
    if path is not None:
        write_private(path, json.dumps([asdict(one) for one in clients], indent=2) + "\n")
        _write_secrets(path.parent / SECRETS_FOLDER, clients)
    return {one.client_id: one for one in clients}


def secret_file(data_dir: Path, client_id: str) -> Path:
    return data_dir / SECRETS_FOLDER / client_id


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step by one that only we can read."""
    fresh = path.with_suffix(f"{path.suffix}.new")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    fresh.replace(path)


def _write_secrets(folder: Path, clients: Iterable[Client]) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    for one in clients:
        write_private(folder / one.client_id, one.secret)


def _client(one: dict[str, Any]) -> Client:
    known = one["account"]
    account = None if known is None else Account(**{**known, **_tuples(known)})
    return Client(one["client_id"], one["secret"], account)


def _tuples(known: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(known[name]) for name in ("roles", "scopes")}
