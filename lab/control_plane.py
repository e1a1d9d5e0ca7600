"""The control plane of a laboratory: simulated cloud, worker, issuer and API, as processes of their own.

They run on an embedded stack, outlive the command that started them and are known by pid and start time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from domain.pool import Arch
from lab.issuer.accounts import SCREENS, secret_file
from lab.issuer.issuer import AUDIENCE
from lab.logins import API_LOGIN, WORKER_LOGIN, dsn_of
from lab.seed import PARTITIONS
from lab.stack import process
from lab.stack.errors import StackError
from lab.stack.ports import any_free
from lab.stack.process import Identity
from lab.stack.stack import Stack
from lab.stack.state import create_password

CLOUD, WORKER, ISSUER, API = "cloud", "worker", "issuer", "api"
NAMES = (CLOUD, WORKER, ISSUER, API)
SESSION_KEY = "session-key"
CLI_CLIENT = "sco-cli"
STATE_FILE = "control-plane.json"
PROVIDER_FILE = "secrets/provider.json"
POLICY_FILE = "policy.json"
WELL_KNOWN = "/.well-known/openid-configuration"
LOOPBACK = "127.0.0.1"
READY_SECONDS = 60.0
STOP_SECONDS = 20.0
POLL_SECONDS = 0.05
# Any identifier stands for an image in the simulated cloud: it has no image service.
IMAGE = "6f1b1d52-2a3e-4a1c-8f62-0d7d2b0c9a11"


@dataclass(frozen=True)
class Pace:
    """How fast a laboratory runs: cloud seconds per real second, and the worker's patience in real ones."""

    cloud_speed: float = 20.0
    poll_seconds: float = 0.3
    settle_seconds: float = 2.0
    build_patience_seconds: float = 900.0
    backoff_seconds: int = 60
    provider_calls_per_second: int = 40
    cycle_seconds: float = 10.0
    recovery_cycle_seconds: float = 0.5
    lapse_seconds: float = 60.0
    pace_window_seconds: float = 15.0


class ControlPlane:
    """Cloud, worker, issuer and API of one data folder. Every method may be repeated."""

    def __init__(self, stack: Stack, pace: Pace | None = None) -> None:
        self.stack = stack
        self.pace = pace or Pace()
        self.data_dir = stack.data_dir
        self._state_path = self.data_dir / STATE_FILE
        self._ports: dict[str, int] = {}
        self._running: dict[str, Identity] = {}
        self._load()

    @property
    def api_url(self) -> str:
        return f"http://{LOOPBACK}:{self._port(API)}"

    @property
    def cloud_url(self) -> str:
        return f"http://{LOOPBACK}:{self._port(CLOUD)}"

    @property
    def metrics_url(self) -> str:
        return f"http://{LOOPBACK}:{self._port(WORKER)}/metrics"

    @property
    def issuer_url(self) -> str:
        return f"http://{LOOPBACK}:{self._port(ISSUER)}"

    @property
    def issuer_dir(self) -> Path:
        """Keys, clients and secrets of the development issuer."""
        return self.data_dir / ISSUER

    @property
    def cloud_file(self) -> Path:
        """Address and admin token of the simulated cloud."""
        return self.data_dir / CLOUD / "cloud.json"

    @property
    def provider_file(self) -> Path:
        """How the worker signs in to the provider."""
        return self.data_dir / PROVIDER_FILE

    def running(self, name: str) -> bool:
        identity = self._running.get(name)
        return identity is not None and process.alive(identity)

    def start(self, name: str) -> None:
        """Start one process and wait until it serves; one that runs already is left alone."""
        if self.running(name):
            return
        if name == API:
            # It is started with a secret that the issuer makes.
            self.start(ISSUER)
        command, environment, ready = self._launch(name)
        (self.data_dir / name).mkdir(exist_ok=True)
        log = self.data_dir / "logs" / f"{name}.log"
        started = process.spawn(
            command, log=log, folder=Path.cwd(), environment=os.environ | environment, account=None
        )
        self._running[name] = started
        self._save()
        self._wait_ready(name, started, ready, log)
        if name == CLOUD:
            self._write_provider_file()

    def _launch(self, name: str) -> tuple[list[str], dict[str, str], str]:
        """Command, environment and the address that answers once the process serves."""
        if name == CLOUD:
            return self._cloud_command(), {}, f"{self.cloud_url}/identity/v3"
        if name == WORKER:
            command = [sys.executable, "-m", "workers.main"]
            return command, self.worker_environment(), self.metrics_url
        if name == ISSUER:
            return self._issuer_command(), {}, f"{self.issuer_url}{WELL_KNOWN}"
        return [sys.executable, "-m", "api.main"], self._api_environment(), f"{self.api_url}/readyz"

    def stop(self, name: str) -> None:
        """Ask one process to stop and wait for it."""
        identity = self._running.pop(name, None)
        if identity is not None:
            process.stop(identity, signal.SIGTERM, STOP_SECONDS)
        self._save()

    def kill(self, name: str) -> None:
        """End one process without any warning."""
        identity = self._running.pop(name, None)
        if identity is not None:
            process.kill(identity)
        self._save()

    def stop_all(self, echo: Callable[[str], None] = lambda line: None) -> None:
        for name in reversed(NAMES):
            if self.running(name):
                echo(f"stopping the {name}")
            self.stop(name)

    def _cloud_command(self) -> list[str]:
        folder = self.data_dir / CLOUD
        return [
            *(sys.executable, "-m", "lab.cloud", "--port", str(self._port(CLOUD))),
            *("--data-dir", str(folder), "--speed", str(self.pace.cloud_speed)),
            *("--nats-url", self.stack.nats_url),
        ]

    def _issuer_command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "lab.issuer", "--port", str(self._port(ISSUER))),
            *("--data-dir", str(self.issuer_dir)),
        ]

    def cli_environment(self, client: str = CLI_CLIENT) -> dict[str, str]:
        """What `sco` is told, so that it finds the API and fetches tokens for a client of the issuer."""
        return {
            "SCO_SERVER": self.api_url,
            "SCO_CLIENT_ID": client,
            "SCO_CLIENT_SECRET_FILE": str(secret_file(self.issuer_dir, client).absolute()),
            "SCO_TOKEN_URL": f"{self.issuer_url}/token",
        }

    def _store_environment(self, login: str) -> dict[str, str]:
        return {
            "SCO_DATABASE_URL": dsn_of(login, self.stack.postgres_dsn, self.data_dir),
            "SCO_TEMPORAL_ADDRESS": self.stack.temporal_address,
            "SCO_TEMPORAL_NAMESPACE": self.stack.temporal_namespace,
        }

    def worker_environment(self) -> dict[str, str]:
        regions = sorted(json.loads(self.provider_file.read_text())["regions"])
        return self._store_environment(WORKER_LOGIN) | {
            "SCO_NATS_URL": self.stack.nats_url,
            "SCO_PARTITIONS": ",".join(sorted(PARTITIONS)),
            "SCO_REGIONS": ",".join(regions),
            "SCO_CLOUD_FILE": str(self.provider_file),
            "SCO_METRICS_PORT": str(self._port(WORKER)),
            "SCO_POLL_SECONDS": str(self.pace.poll_seconds),
            "SCO_POLICY_FILE": str(self._write_policy_file()),
            "SCO_PROVIDER_CALLS_PER_SECOND": str(self.pace.provider_calls_per_second),
            "SCO_PROVIDER_BURST": str(2 * self.pace.provider_calls_per_second),
        }

    def _write_policy_file(self) -> Path:
        """The patience of a laboratory, as an operator would write it down."""
        policy = {
            "placement": {"backoff_seconds": self.pace.backoff_seconds},
            "acquisition": {
                "settle_seconds": self.pace.settle_seconds,
                "build_patience_seconds": self.pace.build_patience_seconds,
            },
            "reconcile": {
                "cycle_seconds": self.pace.cycle_seconds,
                "recovery_cycle_seconds": self.pace.recovery_cycle_seconds,
                "lapse_seconds": self.pace.lapse_seconds,
                "pace_window_seconds": self.pace.pace_window_seconds,
            },
        }
        path = self.data_dir / POLICY_FILE
        path.write_text(json.dumps(policy, indent=2) + "\n")
        return path

    def _api_environment(self) -> dict[str, str]:
        return self._store_environment(API_LOGIN) | {
            "SCO_API_HOST": LOOPBACK,
            "SCO_API_PORT": str(self._port(API)),
            "SCO_TEMPORAL_UI_URL": self.stack.web_ui_url,
            "SCO_OIDC_ISSUER": self.issuer_url,
            "SCO_OIDC_AUDIENCE": AUDIENCE,
            "SCO_OIDC_CLIENT_ID": SCREENS,
            "SCO_OIDC_CLIENT_SECRET": secret_file(self.issuer_dir, SCREENS).read_text(),
            "SCO_SESSION_KEY": create_password(self.data_dir, SESSION_KEY),
        }

    def _write_provider_file(self) -> None:
        """The worker's sign-in, from what the cloud wrote for its clients; only we may read it."""
        auth = json.loads(self.cloud_file.read_text())["clouds"]["sco"]
        content = {
            "auth_url": auth["auth"]["auth_url"],
            "regions": auth["regions"],
            "images": {arch.value: IMAGE for arch in Arch},
            "username": auth["auth"]["username"],
            "password": auth["auth"]["password"],
            "project": auth["auth"]["project_name"],
        }
        self.provider_file.parent.mkdir(exist_ok=True)
        self.provider_file.unlink(missing_ok=True)
        with open(os.open(self.provider_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(content, file)

    def _wait_ready(self, name: str, started: Identity, url: str, log: Path) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not _answers(url):
            if not process.alive(started):
                raise StackError(f"The {name} ended while it started. Its last lines:\n{_tail(log)}")
            if time.monotonic() > deadline:
                raise StackError(
                    f"The {name} does not answer at {url} after {READY_SECONDS:.0f} s."
                    f" Its last lines:\n{_tail(log)}"
                )
            time.sleep(POLL_SECONDS)

    def _port(self, name: str) -> int:
        """The port of a process: the one it had, or a free one that it keeps from now on."""
        if name not in self._ports:
            self._ports[name] = any_free(self._ports)
            self._save()
        return self._ports[name]

    def _load(self) -> None:
        if self._state_path.exists():
            content = json.loads(self._state_path.read_text())
            self._ports = content["ports"]
            self._running = {name: Identity(**known) for name, known in content["running"].items()}

    def _save(self) -> None:
        content = {
            "ports": self._ports,
            "running": {name: asdict(known) for name, known in sorted(self._running.items())},
        }
        fresh = self._state_path.with_suffix(".new")
        fresh.write_text(json.dumps(content, indent=2) + "\n")
        fresh.replace(self._state_path)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - a loopback address of ours
            return int(answer.status) == 200  # noqa: PLR2004 - HTTP's own number
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def _tail(log: Path, lines: int = 20) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
