"""A real Blazar beside the laboratory's Nova: manager and API in one process, its leases in SQLite.

Its hosts are taken from Nova's with `take_host`; only those can be leased.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType

from openstack.connection import Connection

from lab.openstack import config, furnish, site
from lab.openstack.errors import OpenStackLabError
from lab.openstack.running import ROOT, RunningOpenStack
from lab.openstack.waiting import POLL_SECONDS, VENV, listens, require_installed, wait_ready
from lab.stack import process
from lab.stack.ports import LOOPBACK, any_free
from lab.stack.process import Identity

SERVICE, FREE_POOL = "reservation", "freepool"
START_SECONDS, HOST_SECONDS = 60.0, 60.0


class RunningBlazar:
    """Blazar in one folder, beside a running Nova. Use it as a context manager, or `stop` it."""

    def __init__(self, folder: Path, cloud: RunningOpenStack) -> None:
        require_installed()
        self._folder = folder
        self._cloud = cloud
        self._port = any_free({})
        self._log = folder / "blazar.log"
        self._server: Identity | None = None
        self._admin: Connection = furnish.administrator(cloud.access.auth_url, cloud.access.admin_password)
        self.url = f"http://{LOOPBACK}:{self._port}/v1"

    @classmethod
    def start(cls, folder: Path, cloud: RunningOpenStack) -> RunningBlazar:
        """Start Blazar in an empty folder and return when it serves. OpenStackLabError otherwise."""
        running = cls(folder, cloud)
        try:
            running._bring_up()
        except BaseException:
            running.stop()
            raise
        return running

    def stop(self) -> None:
        """Stop what was started. The leases are not worth an orderly end."""
        if self._server is not None:
            process.kill(self._server)
            self._server = None
        self._admin.close()

    def take_host(self, name: str, **capabilities: str) -> None:
        """Let a host of Nova be leased. Whatever runs on it is deleted: Blazar takes empty hosts only."""
        deadline = time.monotonic() + HOST_SECONDS
        while servers := [each.id for each in self._admin.compute.servers(all_projects=True, host=name)]:
            for server_id in servers:
                self._admin.compute.delete_server(server_id, ignore_missing=True)
            if time.monotonic() > deadline:
                raise OpenStackLabError(f"host {name} still runs {len(servers)} servers")
            time.sleep(POLL_SECONDS)
        answer = self._admin.session.post(
            f"{self.url}/os-hosts", json={"name": name, **capabilities}, raise_exc=False
        )
        if not answer.ok:
            raise OpenStackLabError(f"Blazar refused host {name} with {answer.status_code}: {answer.text}")

    def __enter__(self) -> RunningBlazar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _bring_up(self) -> None:
        self._folder.mkdir(parents=True)
        settings = self._folder / "blazar.conf"
        settings.write_text(_settings(self._folder, self._cloud), encoding="utf-8")
        settings.chmod(0o600)
        path = f"{VENV / 'bin'}:{os.environ.get('PATH', os.defpath)}"
        self._server = process.spawn(
            [
                *(VENV / "bin" / "python", "-m", "lab.openstack.server.blazar_node"),
                *(settings, str(self._port), self._cloud.at.url("placement")),
            ],
            log=self._log,
            folder=self._folder,
            environment={
                "PATH": path,
                "HOME": str(self._folder),
                "TZ": "UTC",
                "LC_ALL": "C.UTF-8",
                "PYTHONPATH": str(ROOT),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            account=None,
        )
        wait_ready("Blazar", self._server, lambda: listens(self._port), self._log, START_SECONDS)
        self._admin.compute.create_aggregate(name=FREE_POOL)
        identity = furnish.identity_of(self._admin)
        service = identity.create_service(type=SERVICE, name="blazar")
        identity.create_endpoint(
            service_id=service.id, interface="public", url=self.url, region_id=site.REGION
        )


def _settings(folder: Path, cloud: RunningOpenStack) -> str:
    password = cloud.access.admin_password
    return f"""
[DEFAULT]
host={LOOPBACK}
log_file={folder}/service.log
transport_url=fake://
os_auth_host={LOOPBACK}
os_auth_port={cloud.at.keystone}
os_admin_username={config.ADMIN}
os_admin_password={password}
os_admin_project_name={config.ADMIN_PROJECT}
os_region_name={site.REGION}
endpoint_type=public
[nova]
endpoint_type=public
aggregate_freepool_name={FREE_POOL}
[manager]
plugins=physical.host.plugin,virtual.instance.plugin,flavor.instance.plugin
[enforcement]
enabled_filters=
[database]
connection=sqlite:///{folder}/blazar.db
[keystone_authtoken]
www_authenticate_uri={cloud.at.url("keystone")}
auth_type=password
auth_url={cloud.access.auth_url}
username={config.ADMIN}
password={password}
project_name={config.ADMIN_PROJECT}
user_domain_id=default
project_domain_id=default
service_token_roles_required=true
[oslo_messaging_notifications]
driver=noop
[oslo_concurrency]
lock_path={folder}
"""
