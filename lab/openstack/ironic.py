"""A real Ironic on one machine: API and conductor in one process, fake hardware, SQLite, no sign-in.

A cloud with an identity service offers it by naming its address in the catalog; it takes any token.
"""

from __future__ import annotations

import os
import subprocess
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from types import TracebackType

from lab.openstack.errors import OpenStackLabError
from lab.openstack.waiting import VENV, require_installed, tail, wait_ready
from lab.stack import process
from lab.stack.ports import LOOPBACK, any_free
from lab.stack.process import Identity

PAGE_LIMIT = 3
"""Nodes in a page: few, so that a suite's nodes fill several."""
SCHEMA_SECONDS, START_SECONDS = 120.0, 120.0
ANSWER_SECONDS = 2.0
OFF = ("bios", "console", "firmware", "inspect", "raid", "rescue", "vendor")
"""What fake hardware does without, so that a node has only what a deployment needs."""


class RunningIronic:
    """Ironic in one folder. Use it as a context manager, or `stop` it."""

    def __init__(self, folder: Path) -> None:
        require_installed()
        self._folder = folder
        self._port = any_free({})
        self._log = folder / "ironic.log"
        self._server: Identity | None = None
        self.url = f"http://{LOOPBACK}:{self._port}"

    @classmethod
    def start(cls, folder: Path) -> RunningIronic:
        """Start Ironic in an empty folder and return when it serves. OpenStackLabError otherwise."""
        running = cls(folder)
        try:
            running._bring_up()
        except BaseException:
            running.stop()
            raise
        return running

    def stop(self) -> None:
        """Stop what was started. The nodes are not worth an orderly end."""
        if self._server is not None:
            process.kill(self._server)
            self._server = None

    def __enter__(self) -> RunningIronic:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _bring_up(self) -> None:
        for name in ("state", "http", "tftp", "images", "masters"):
            (self._folder / name).mkdir(parents=True)
        settings = self._folder / "ironic.conf"
        settings.write_text(_settings(self._folder, self._port), encoding="utf-8")
        options = ["--config-file", str(settings)]
        with self._log.open("ab") as output:
            made = subprocess.run(
                [str(VENV / "bin" / "ironic-dbsync"), *options, "create_schema"],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=SCHEMA_SECONDS,
                check=False,
            )
        if made.returncode != 0:
            raise OpenStackLabError(f"ironic-dbsync ended with {made.returncode}.\n{tail(self._log)}")
        self._server = process.spawn(
            [VENV / "bin" / "ironic", *options],
            log=self._log,
            folder=self._folder,
            environment=self._environment(),
            account=None,
        )
        wait_ready(
            "Ironic",
            self._server,
            lambda: _answers(f"{self.url}/v1/drivers"),
            self._log,
            START_SECONDS,
        )

    def _environment(self) -> dict[str, str]:
        """The whole environment: the user's proxies and OS_ settings do not reach it."""
        path = f"{VENV / 'bin'}:{os.environ.get('PATH', os.defpath)}"
        return {"PATH": path, "HOME": str(self._folder), "TZ": "UTC", "LC_ALL": "C.UTF-8"}


def _answers(url: str) -> bool:
    """Whether a conductor has told the API of its drivers, which is when nodes can be enrolled."""
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as answer:  # noqa: S310 - a loopback address
            return answer.status == HTTPStatus.OK and b"fake-hardware" in answer.read()
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def _settings(folder: Path, port: int) -> str:
    off = "\n".join(f"enabled_{name}_interfaces=no-{name}" for name in OFF)
    return f"""
[DEFAULT]
auth_strategy=noauth
rpc_transport=none
host=lab
my_ip={LOOPBACK}
enabled_hardware_types=fake-hardware
enabled_boot_interfaces=fake
enabled_deploy_interfaces=fake
enabled_management_interfaces=fake
enabled_network_interfaces=noop
enabled_power_interfaces=fake
enabled_storage_interfaces=noop
{off}
default_network_interface=noop
[api]
host_ip={LOOPBACK}
port={port}
max_limit={PAGE_LIMIT}
[conductor]
automated_clean=false
[database]
connection=sqlite:///{folder}/state/ironic.db
[deploy]
http_root={folder}/http
[pxe]
tftp_root={folder}/tftp
images_path={folder}/images/
instance_master_path={folder}/masters
tftp_master_path={folder}/masters
[oslo_concurrency]
lock_path={folder}/state
"""
