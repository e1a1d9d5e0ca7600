"""The secrets port over OpenBao: a key-value secret per pool, read with a token of our own.

hvac blocks, so it runs in threads of its own, a few: a service that hangs holds up these threads and
nobody else, and who waits is told after `answer_seconds`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, NamedTuple

import hvac
import requests
import structlog
from hvac.exceptions import Forbidden, InvalidPath, VaultError
from pydantic import SecretStr

from activities.secrets.ports import Credential, NoCredential, SecretsUnavailable
from activities.secrets.settings import SecretsSettings

THREADS = 4
# How long a thread waits for each answer; who asked has been told by then.
THREAD_SECONDS = 2
# Half of a token's life is left when it is replaced.
RENEW_SHARE = 0.5
SAFE_ID = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
FIELD = "token"
log = structlog.get_logger("secrets")


class _Kept(NamedTuple):
    """A credential in memory, until when it is given without asking again."""

    credential: Credential
    until: datetime


class _SignedIn(NamedTuple):
    """A token of ours, until when it is used; None where an agent keeps it fresh."""

    token: str
    until: datetime | None


class OpenBaoSecrets:
    """`Secrets` from OpenBao. Close it to end its threads."""

    def __init__(self, settings: SecretsSettings, *, now: Callable[[], datetime]) -> None:
        self._settings = settings
        self._now = now
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="secrets")
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._signed_in: _SignedIn | None = None
        self._signing_in = Lock()
        self._told_old: set[tuple[str, datetime]] = set()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def __repr__(self) -> str:
        return f"OpenBaoSecrets({self._settings.url!r})"

    async def endpoint_credential(self, tenant_id: str, pool_id: str) -> Credential:
        """The credential of a pool's endpoint; one that was read a moment ago is given again."""
        now = self._now()
        kept = self._kept.get((tenant_id, pool_id))
        if kept is not None and now < kept.until:
            return kept.credential
        credential = await self._read(tenant_id, pool_id, now)
        self._forget(now)
        until = now + timedelta(seconds=self._settings.cache_seconds)
        self._kept[tenant_id, pool_id] = _Kept(credential, min(until, credential.expires_at))
        return credential

    def _forget(self, now: datetime) -> None:
        self._kept = {key: kept for key, kept in self._kept.items() if now < kept.until}

    async def _read(self, tenant_id: str, pool_id: str, now: datetime) -> Credential:
        if not (SAFE_ID.fullmatch(tenant_id) and SAFE_ID.fullmatch(pool_id)):
            raise NoCredential(f"no credential has the path of {tenant_id!r} and {pool_id!r}")
        path = f"{self._settings.prefix}/{tenant_id}/{pool_id}"
        reading = asyncio.get_running_loop().run_in_executor(self._threads, self._ask, path)
        try:
            async with asyncio.timeout(self._settings.answer_seconds):
                answer = await reading
        except TimeoutError:
            raise SecretsUnavailable(
                f"the secrets service did not answer within {self._settings.answer_seconds:g} s"
            ) from None
        return self._credential(path, answer, now)

    def _ask(self, path: str) -> dict[str, Any]:
        """What stands at a path. A token that ended early is replaced once."""
        try:
            try:
                return self._get(path)
            except Forbidden:
                if self._settings.token_file is None:
                    self._signed_in = None
                return self._get(path)
        except InvalidPath:
            raise NoCredential(f"no credential is stored at {self._settings.mount}/{path}") from None
        # The texts of these hold paths and what the service said, and hvac's hold request bodies in none.
        except (VaultError, requests.RequestException, OSError, ValueError, KeyError) as error:
            raise SecretsUnavailable(
                f"the secrets service cannot be asked ({type(error).__name__})"
            ) from None

    def _get(self, path: str) -> dict[str, Any]:
        client = self._client(self._token())
        answer = client.secrets.kv.v2.read_secret_version(
            path, mount_point=self._settings.mount, raise_on_deleted_version=True
        )
        data: dict[str, Any] = answer["data"]
        return data

    def _token(self) -> str:
        if self._settings.token_file is not None:
            return self._settings.token_file.read_text(encoding="utf-8").strip()
        with self._signing_in:
            known = self._signed_in
            if known is None or (known.until is not None and self._now() >= known.until):
                known = self._signed_in = self._sign_in()
            return known.token

    def _sign_in(self) -> _SignedIn:
        role_id, secret_id = self._settings.role_id, self._settings.secret_id
        assert role_id is not None, "settings have one way in"
        assert secret_id is not None, "settings have one way in"
        answer = self._client(None).auth.approle.login(role_id, secret_id.get_secret_value(), use_token=False)
        auth = answer["auth"]
        life = float(auth["lease_duration"])
        until = self._now() + timedelta(seconds=life * RENEW_SHARE) if life else None
        return _SignedIn(auth["client_token"], until)

    def _client(self, token: str | None) -> hvac.Client:
        session = requests.Session()
        session.trust_env = False
        return hvac.Client(
            url=self._settings.url,
            # An empty token: hvac reads one from the environment or the home folder where it is given none.
            token=token or "",
            verify=str(self._settings.ca_file) if self._settings.ca_file is not None else True,
            timeout=THREAD_SECONDS,
            allow_redirects=False,
            session=session,
        )

    def _credential(self, path: str, answer: dict[str, Any], now: datetime) -> Credential:
        value = (answer.get("data") or {}).get(FIELD)
        if not isinstance(value, str) or not value:
            raise NoCredential(f"the secret at {self._settings.mount}/{path} has no field {FIELD!r}")
        self._tell_age(path, _moment((answer.get("metadata") or {}).get("created_time")), now)
        return Credential(
            token=SecretStr(value), expires_at=now + timedelta(seconds=self._settings.lease_seconds)
        )

    def _tell_age(self, path: str, written: datetime | None, now: datetime) -> None:
        """Say once of every version that it should have been replaced by now."""
        if written is None or (path, written) in self._told_old:
            return
        if now - written > timedelta(days=self._settings.rotate_days):
            self._told_old.add((path, written))
            log.warning("endpoint_credential_old", path=path, days=(now - written).days)


def _moment(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None
