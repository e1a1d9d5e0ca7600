"""The simulated cloud, in a thread and in real time."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from openstack.connection import Connection
from pydantic import SecretStr

from lab.cloud.faults import FaultKind, FaultRule
from lab.cloud.server import CloudHandle
from lab.cloud.settings import CloudSettings, QuotaSettings
from tests.conformance.provider import FITS, REGION, SMALL_HALL, Provider

HOLD_SECONDS = 120.0


class SimulatedCloud(Provider):
    name = "simulated"

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="sco-conformance-")
        self._handle = self._start(port=0)
        self._handle.admin.set_capacity(f"{SMALL_HALL}-gp-m", FITS)

    def close(self) -> None:
        self.own.close()
        self._handle.stop()
        self._folder.cleanup()

    @property
    def auth_url(self) -> str:
        return self._handle.auth_url

    def credential(self) -> dict[str, Any]:
        known = self._handle.credentials
        return {
            "username": known.username,
            "password": SecretStr(known.password),
            "project": known.project_name,
        }

    def application_credential(self) -> dict[str, Any]:
        known = self._handle.credentials
        return {
            "application_credential_id": known.application_credential_id,
            "application_credential_secret": SecretStr(known.application_credential_secret),
        }

    def connect(self) -> Connection:
        return self._handle.connect(REGION)

    def fails(self, method: str, path: str, status: int, *, works: bool = False, after: int = 0) -> None:
        kind = FaultKind.ERROR_AFTER if works else FaultKind.ERROR_BEFORE
        self._arm(FaultRule(kind=kind, method=method, path=path, status=status, after=after))

    def throttles(self, method: str, path: str, retry_after_seconds: int) -> None:
        rule = FaultRule(
            kind=FaultKind.RATE_LIMITED, method=method, path=path, retry_after_seconds=retry_after_seconds
        )
        self._arm(rule)

    def drops(self, method: str, path: str, *, works: bool) -> None:
        kind = FaultKind.DROPPED_AFTER if works else FaultKind.DROPPED_BEFORE
        self._arm(FaultRule(kind=kind, method=method, path=path))

    def holds(self, method: str, path: str) -> None:
        kind = FaultKind.TIMEOUT_AFTER
        self._arm(FaultRule(kind=kind, method=method, path=path, delay_seconds=HOLD_SECONDS))

    def heals(self) -> None:
        self._handle.admin.clear_faults()

    def now(self) -> datetime:
        return datetime.fromisoformat(self._handle.admin.clock()["now"])

    def failing_build(self) -> dict[str, str]:
        self._arm(FaultRule(kind=FaultKind.BUILD_ERROR))
        return {}

    @contextmanager
    def late_quota(self, create: Callable[[], None]) -> Iterator[None]:
        self._arm(FaultRule(kind=FaultKind.NO_QUOTA_LATER))
        create()
        yield

    def slow_build(self) -> dict[str, str]:
        self._arm(FaultRule(kind=FaultKind.STUCK_BUILD))
        return {}

    def set_quota(self, **limits: int) -> None:
        self._handle.admin.set_quota(REGION, **limits)

    def take(self, server_id: str) -> None:
        self._handle.admin.terminate(server_id)

    def stop_server(self, server_id: str) -> None:
        self.own.compute.stop_server(server_id)

    def user_data(self, server_id: str) -> bytes:
        [shown] = [each for each in self._handle.admin.servers(region=REGION) if each["id"] == server_id]
        return base64.b64decode(shown["user_data"])

    def end_token(self, token: str) -> None:
        self._handle.call(lambda cloud: cloud.identity.revoke(token))

    @contextmanager
    def many(self, count: int, tags: tuple[str, ...], metadata: dict[str, str]) -> Iterator[None]:
        before = {each["id"] for each in self._handle.admin.servers(region=REGION)}
        loaded = self._handle.admin.load(REGION, count, tags=tags, metadata=metadata)
        assert loaded == count
        try:
            yield
        finally:
            for each in self._handle.admin.servers(region=REGION):
                if each["id"] not in before:
                    self._handle.admin.terminate(each["id"])

    def crash_and_restart(self) -> None:
        port = urlsplit(self._handle.base_url).port
        assert port is not None
        self._handle.stop()
        self._handle = self._start(port)

    def _start(self, port: int) -> CloudHandle:
        settings = CloudSettings(
            port=port,
            data_dir=Path(self._folder.name),
            schedule_seconds=0.2,
            build_seconds=0.4,
            delete_seconds=0.3,
            quota=QuotaSettings(instances=5_000, cores=100_000, ram=800_000_000),
        )
        return CloudHandle.start_in_thread(settings)

    def _arm(self, rule: FaultRule) -> None:
        self._handle.admin.add_fault(rule)
