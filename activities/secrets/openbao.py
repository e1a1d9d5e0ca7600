"""The secrets port over OpenBao: a key-value secret per pool, read with a token of our own."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import hvac
import structlog
from pydantic import SecretStr

from activities.openbao import NotThere, OpenBao, OpenBaoAway
from activities.secrets.ports import Credential, NoCredential, SecretsUnavailable
from activities.secrets.settings import SecretsSettings

SAFE_ID = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
FIELD = "token"
log = structlog.get_logger("secrets")


class _Kept(NamedTuple):
    """A credential in memory, until when it is given without asking again."""

    credential: Credential
    until: datetime


class OpenBaoSecrets:
    """`Secrets` from OpenBao. Close it to end its threads."""

    def __init__(self, settings: SecretsSettings, *, now: Callable[[], datetime]) -> None:
        self._settings = settings
        self._now = now
        self._bao = OpenBao(settings, now=now, threads="secrets")
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._told_old: set[tuple[str, datetime]] = set()

    def close(self) -> None:
        self._bao.close()

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
        try:
            answer = await self._bao.ask(lambda client: self._get(client, path))
        except NotThere:
            raise NoCredential(f"no credential is stored at {self._settings.mount}/{path}") from None
        except OpenBaoAway as away:
            raise SecretsUnavailable(f"no credential can be had of the secrets service: {away}") from None
        return self._credential(path, answer, now)

    def _get(self, client: hvac.Client, path: str) -> dict[str, Any]:
        answer = client.secrets.kv.v2.read_secret_version(
            path, mount_point=self._settings.mount, raise_on_deleted_version=True
        )
        data: dict[str, Any] = answer["data"]
        return data

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
