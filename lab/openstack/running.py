"""Starting and stopping the services: one folder, one set of ports and one password for each run."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from lab.openstack import config, furnish, site
from lab.openstack.config import Addresses, Databases
from lab.openstack.database import OpenStackDatabase
from lab.openstack.errors import OpenStackLabError
from lab.openstack.faults import FaultControl
from lab.openstack.waiting import VENV, listens, require_installed, tail, wait_ready
from lab.stack import process
from lab.stack.ports import Ports, any_free
from lab.stack.process import Identity

ROOT = Path(__file__).resolve().parents[2]
IMAGE_ID = "6f1b1d52-2a3e-4a1c-8f62-0d7d2b0c9a11"
READY = "nova serves"
STEP_SECONDS, START_SECONDS, STOP_SECONDS = 180.0, 120.0, 5.0
NODES = {"keystone": "keystone_node", "nova": "nova_node"}

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Access:
    """How to sign in: as the administrator, or as the orchestrator with its project's `password`."""

    auth_url: str
    admin_password: str
    password: str

    def __repr__(self) -> str:
        return f"Access(auth_url={self.auth_url!r}, hidden)"


class RunningOpenStack:
    """The services of one folder. Use it as a context manager, or `stop` it."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        require_installed()
        self.folder = folder
        self.notifications = folder / "notifications.jsonl"
        self.rates = folder / "rates"
        self._progress = progress
        self._began = time.monotonic()
        self.at = _addresses()
        self.access = Access(self.at.url("keystone", "/v3"), secrets.token_hex(16), secrets.token_hex(16))
        self.database = OpenStackDatabase(folder, Ports(postgres=any_free(asdict(self.at))))
        self.faults = FaultControl(self.at.url("nova"))
        self._postgres: Identity | None = None
        self._nodes: dict[str, Identity] = {}

    @classmethod
    def start(cls, folder: Path, progress: Progress = lambda _: None) -> RunningOpenStack:
        """Start everything in an empty folder and return when Nova serves. OpenStackLabError otherwise."""
        running = cls(folder, progress)
        try:
            running._bring_up()
        except BaseException:
            running.stop()
            raise
        return running

    def stop(self) -> None:
        """Stop what was started, in any state. What Nova holds is not worth an orderly end."""
        self.faults.close()
        for name in tuple(self._nodes):
            self.kill(name)
        if self._postgres is not None:
            process.stop(self._postgres, signal.SIGQUIT, STOP_SECONDS)
            self._postgres = None
            if self.database.home.parent != self.folder:
                shutil.rmtree(self.database.home, ignore_errors=True)

    def kill(self, name: str) -> None:
        """End `keystone` or `nova` as a crash would."""
        process.kill(self._nodes.pop(name))

    def start_nova(self) -> None:
        """Start Nova and return when it serves; again after `kill`, on what it remembers."""
        already = self._log("nova").count(READY)
        self._spawn("nova")
        self._wait("nova", lambda: self._log("nova").count(READY) > already)
        self._say("Nova serves")

    def __enter__(self) -> RunningOpenStack:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _bring_up(self) -> None:
        for name in ("logs", "nova/locks", "rates"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._postgres = self.database.launch()
        self.database.wait_ready(self._postgres)
        self._say("Postgres serves")
        urls = {name: self.database.url(name) for name in Databases.__dataclass_fields__}
        databases = Databases(**urls)
        config.write(self.folder, self.at, databases, self.access.admin_password)
        etc = self.folder / "etc"
        shutil.copy(VENV / "etc" / "nova" / "api-paste.ini", etc / "nova" / "api-paste.ini")
        furnish.write_rates(self.rates)
        with ThreadPoolExecutor() as pool:
            both = [pool.submit(self._bring_up_keystone), pool.submit(self._bring_up_nova, databases)]
            for one in both:
                one.result()
        with furnish.administrator(self.access.auth_url, self.access.admin_password) as admin:
            furnish.furnish_compute(admin)
        self._say("halls and flavors are there")

    def _bring_up_keystone(self) -> None:
        manage = [
            str(VENV / "bin" / "keystone-manage"),
            "--config-file",
            str(self._etc("keystone/keystone.conf")),
        ]
        self._run("keystone-schema", [*manage, "db_sync"])
        url = self.at.url("keystone", "/v3")
        bootstrap = ["bootstrap", "--bootstrap-username", config.ADMIN, "--bootstrap-region-id", site.REGION]
        for interface in ("public", "internal", "admin"):
            bootstrap += [f"--bootstrap-{interface}-url", url]
        secret = {"OS_BOOTSTRAP_PASSWORD": self.access.admin_password}
        self._run("keystone-bootstrap", [*manage, *bootstrap], secret)
        self._spawn("keystone")
        self._wait("keystone", lambda: listens(self.at.keystone))
        with furnish.administrator(self.access.auth_url, self.access.admin_password) as admin:
            furnish.furnish_identity(admin, self.at, self.access.password)
        self._say("Keystone serves")

    def _bring_up_nova(self, databases: Databases) -> None:
        command = [str(_python()), "-m", "lab.openstack.server.nova_schema"]
        options = ["--config-file", str(self._etc("nova/nova.conf"))]
        self._run("nova-schema", [*command, *options, databases.nova_cell0, databases.nova_cell1])
        self.database.copy_cell()
        self._say("Nova has its tables")
        self.start_nova()

    def _etc(self, name: str) -> Path:
        return self.folder / "etc" / name

    def _environment(self) -> dict[str, str]:
        """The whole environment of the services: the user's proxies and OS_ settings do not reach them."""
        sizes = {group.name: group.vcpus for group in site.HOST_GROUPS}
        return {
            "PATH": f"{VENV / 'bin'}:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(self.folder),
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OS_KEYSTONE_CONFIG_DIR": str(self._etc("keystone")),
            "OS_PLACEMENT_CONFIG_DIR": str(self._etc("placement")),
            "OS_NOVA_CONFIG_DIR": str(self._etc("nova")),
            "LAB_PORTS": json.dumps(asdict(self.at)),
            "LAB_HOST_VCPUS": json.dumps(sizes),
            "LAB_IMAGES": json.dumps([IMAGE_ID]),
            "LAB_RATES": str(self.rates),
            "LAB_NOTIFICATIONS": str(self.notifications),
        }

    def _run(self, name: str, command: Sequence[str], more: Mapping[str, str] | None = None) -> None:
        """Run one step of the preparation to its end."""
        log = self.folder / "logs" / f"{name}.log"
        with log.open("ab") as output:
            finished = subprocess.run(
                command,
                env={**self._environment(), **(more or {})},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=STEP_SECONDS,
                check=False,
            )
        if finished.returncode != 0:
            raise OpenStackLabError(f"{name} ended with {finished.returncode}.\n{tail(log)}")

    def _spawn(self, name: str) -> None:
        self._nodes[name] = process.spawn(
            [_python(), "-m", f"lab.openstack.server.{NODES[name]}"],
            log=self.folder / "logs" / f"{name}.log",
            folder=self.folder,
            environment=self._environment(),
            account=None,
        )

    def _wait(self, name: str, ready: Callable[[], bool]) -> None:
        wait_ready(name, self._nodes[name], ready, self.folder / "logs" / f"{name}.log", START_SECONDS)

    def _log(self, name: str) -> str:
        path = self.folder / "logs" / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def _say(self, what: str) -> None:
        self._progress(f"openstack: {what} ({time.monotonic() - self._began:.0f} s)")


def _addresses() -> Addresses:
    chosen: dict[str, int] = {}
    for name in Addresses.__dataclass_fields__:
        chosen[name] = any_free(chosen)
    return Addresses(**chosen)


def _python() -> Path:
    return VENV / "bin" / "python"


def print_progress(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
