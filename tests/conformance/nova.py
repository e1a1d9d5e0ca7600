"""Real Keystone, Placement and Nova."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from openstack.connection import Connection
from pydantic import SecretStr

from lab.openstack import bulk, furnish, site
from lab.openstack.faults import Fault
from lab.openstack.running import IMAGE_ID, RunningOpenStack, print_progress
from tests.conformance.provider import FLAVOR, HALL, Provider

HOLD_SECONDS = 120.0
SLOW_BUILD_SECONDS = "6"
BUILD_SECONDS, POLL_SECONDS = 60.0, 0.2


class NovaCloud(Provider):
    name = "nova"

    def __init__(self, folder: Path) -> None:
        self._running = RunningOpenStack.start(folder, print_progress)
        self._admin = furnish.administrator(self.auth_url, self._running.access.admin_password)
        self._identity = furnish.identity_of(self._admin)
        self._project_id = self._identity.find_project(site.PROJECT, ignore_missing=False).id

    def close(self) -> None:
        self.own.close()
        self._admin.close()
        self._running.stop()

    @property
    def running(self) -> RunningOpenStack:
        return self._running

    @property
    def auth_url(self) -> str:
        return self._running.access.auth_url

    def credential(self) -> dict[str, Any]:
        password = SecretStr(self._running.access.password)
        return {"username": site.USER, "password": password, "project": site.PROJECT}

    def application_credential(self) -> dict[str, Any]:
        made = furnish.identity_of(self.own).create_application_credential(
            str(self.own.current_user_id), f"sco-{time.monotonic_ns()}"
        )
        return {
            "application_credential_id": made.id,
            "application_credential_secret": SecretStr(made.secret),
        }

    def connect(self) -> Connection:
        return furnish.orchestrator(self.auth_url, self._running.access.password)

    def fails(self, method: str, path: str, status: int, *, works: bool = False, after: int = 0) -> None:
        passing = [Fault(method=method, path=path, works=True, times=after)] if after else []
        self._running.faults.arm(*passing, Fault(method=method, path=path, status=status, works=works))

    def throttles(self, method: str, path: str, retry_after_seconds: int) -> None:
        headers = {"Retry-After": str(retry_after_seconds)}
        self._running.faults.arm(Fault(method=method, path=path, status=429, headers=headers))

    def drops(self, method: str, path: str, *, works: bool) -> None:
        self._running.faults.arm(Fault(method=method, path=path, drop=True, works=works))

    def holds(self, method: str, path: str) -> None:
        self._running.faults.arm(
            Fault(method=method, path=path, works=True, delay_seconds=HOLD_SECONDS, drop=True)
        )

    def heals(self) -> None:
        self._running.faults.arm()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def failing_build(self) -> dict[str, str]:
        return {"lab_build_fails": "reschedule"}

    @contextmanager
    def late_quota(self, create: Callable[[], None]) -> Iterator[None]:
        """The limit is lowered while the servers wait for their hosts: then Nova counts again."""
        used = self.ask("GET", "/limits").json()["limits"]["absolute"]["totalCoresUsed"]
        create()
        with self.quota(cores=used):
            yield

    def slow_build(self) -> dict[str, str]:
        return {"lab_build_seconds": SLOW_BUILD_SECONDS}

    def set_quota(self, **limits: int) -> None:
        body = {"quota_set": {**limits, "force": True}}
        answer = self._admin.compute.put(f"/os-quota-sets/{self._project_id}", json=body)
        answer.raise_for_status()

    def take(self, server_id: str) -> None:
        self._admin.compute.delete_server(server_id, ignore_missing=False)

    def stop_server(self, server_id: str) -> None:
        self._admin.compute.stop_server(server_id)

    def user_data(self, server_id: str) -> bytes:
        shown = self._admin.compute.get(f"/servers/{server_id}", microversion="2.75").json()["server"]
        return base64.b64decode(shown["OS-EXT-SRV-ATTR:user_data"])

    def end_token(self, token: str) -> None:
        self._identity.delete("/auth/tokens", headers={"X-Subject-Token": token}).raise_for_status()

    @contextmanager
    def many(self, count: int, tags: tuple[str, ...], metadata: dict[str, str]) -> Iterator[None]:
        """One is built, the others are copies of its rows."""
        compute = self.own.compute
        first = compute.create_server(
            name="many",
            flavor_id=compute.find_flavor(FLAVOR, ignore_missing=False).id,
            image_id=IMAGE_ID,
            availability_zone=HALL,
            networks="none",
            tags=list(tags),
            metadata=metadata,
        )
        compute.wait_for_server(first, interval=POLL_SECONDS, wait=BUILD_SECONDS)
        copies = bulk.copy_server(self._running.database, first.id, count - 1)
        try:
            yield
        finally:
            bulk.drop_servers(self._running.database, copies)
            compute.delete_server(first.id)

    def crash_and_restart(self) -> None:
        self._running.kill("nova")
        self._running.start_nova()
