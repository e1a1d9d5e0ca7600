"""The control plane of a laboratory, and what it talks to, as processes of their own.

They run on an embedded stack, outlive the command that started them and are known by pid and start time.
"""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from domain.pool import Arch
from lab import launches
from lab.relay_process import RelayProcess
from lab.secrets import SecretsServer
from lab.seed import TENANT
from lab.serving import SERVED
from lab.stack import process
from lab.stack.errors import StackError
from lab.stack.ports import any_free
from lab.stack.process import Identity
from lab.stack.stack import Stack

CLOUD, SECRETS, MODELS, RELAY, WORKER = "cloud", "openbao", "models", "relay", "worker"
ISSUER, API, GRPC = "issuer", "api", "grpc"
NAMES = (CLOUD, SECRETS, MODELS, RELAY, WORKER, ISSUER, API, GRPC)
# Who is started with a file that another one makes.
NEEDS = {RELAY: (CLOUD,), WORKER: (SECRETS, RELAY), API: (ISSUER, SECRETS), GRPC: (ISSUER, SECRETS)}
STATE_FILE = "control-plane.json"
PROVIDER_FILE = "secrets/provider.json"
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
    warm_keep_seconds: float = 10.0
    collector_seconds: int = 10
    probe_seconds: int = 5


class ControlPlane:
    """The processes of one data folder. Every method may be repeated."""

    def __init__(self, stack: Stack, pace: Pace | None = None) -> None:
        self.stack = stack
        self.pace = pace or Pace()
        self.data_dir = stack.data_dir
        self._state_path = self.data_dir / STATE_FILE
        self._ports: dict[str, int] = {}
        self._running: dict[str, Identity] = {}
        self.relay = RelayProcess(self.data_dir)
        self._load()

    @property
    def api_url(self) -> str:
        return f"http://{LOOPBACK}:{self.port(API)}"

    @property
    def cloud_url(self) -> str:
        return f"http://{LOOPBACK}:{self.port(CLOUD)}"

    @property
    def metrics_url(self) -> str:
        return f"http://{LOOPBACK}:{self.port(WORKER)}/metrics"

    @property
    def metrics_urls(self) -> list[str]:
        """Where each process shows its metrics to operators."""
        others = [f"http://{LOOPBACK}:{self.port(name)}/metrics" for name in ("api-metrics", "grpc-metrics")]
        return [self.metrics_url, *others]

    @property
    def issuer_url(self) -> str:
        return f"http://{LOOPBACK}:{self.port(ISSUER)}"

    @property
    def issuer_dir(self) -> Path:
        """Keys, clients and secrets of the development issuer."""
        return self.data_dir / ISSUER

    @property
    def grpc_address(self) -> str:
        return f"{LOOPBACK}:{self.port(GRPC)}"

    @property
    def secrets_file(self) -> Path:
        """How a process signs in to the secrets service."""
        return self.data_dir / SECRETS / "secrets.json"

    @property
    def cloud_file(self) -> Path:
        """Address and admin token of the simulated cloud."""
        return self.data_dir / CLOUD / "cloud.json"

    @property
    def provider_file(self) -> Path:
        """How the worker signs in to the provider."""
        return self.data_dir / PROVIDER_FILE

    def running(self, name: str) -> bool:
        identity = self.relay.identity() if name == RELAY else self._running.get(name)
        return identity is not None and process.alive(identity)

    def start(self, name: str) -> None:
        """Start one process and wait until it serves; one that runs already is left alone."""
        if self.running(name):
            return
        for needed in NEEDS.get(name, ()):
            self.start(needed)
        if name == SECRETS:
            self._start_secrets()
            return
        command, environment, ready = launches.of(self, name)
        (self.data_dir / name).mkdir(exist_ok=True)
        log = self.data_dir / "logs" / f"{name}.log"
        started = process.spawn(
            command, log=log, folder=Path.cwd(), environment=os.environ | environment, account=None
        )
        if name == RELAY:
            self.relay.remember(started)
        else:
            self._running[name] = started
            self._save()
        self._wait_ready(name, started, ready, log)
        if name == CLOUD:
            self._write_provider_file()

    def _start_secrets(self) -> None:
        """What OpenBao holds ends with its process, so that a new one is told the credentials again."""
        server = SecretsServer(self.data_dir / SECRETS, self.port(SECRETS)).start()
        for pool in SERVED:
            server.put(TENANT, pool.pool_id, launches.endpoint_token(self, pool.pool_id))
        assert server.identity is not None, "it was started"
        self._running[SECRETS] = server.identity
        self._save()

    def stop(self, name: str) -> None:
        """Ask one process to stop and wait for it; with the relay, nodes stop that run on it."""
        if name == RELAY:
            self.relay.stop()
            return
        identity = self._running.pop(name, None)
        if identity is not None:
            process.stop(identity, signal.SIGTERM, STOP_SECONDS)
        self._save()

    def kill(self, name: str) -> None:
        """End one process without any warning."""
        if name == RELAY:
            self.relay.kill()
            return
        identity = self._running.pop(name, None)
        if identity is not None:
            process.kill(identity)
        self._save()

    def stop_all(self, echo: Callable[[str], None] = lambda line: None) -> None:
        for name in reversed(NAMES):
            if self.running(name):
                echo(f"stopping the {name}")
            self.stop(name)

    def worker_environment(self) -> dict[str, str]:
        return launches.worker_environment(self)

    def cli_environment(self, client: str = launches.CLI_CLIENT) -> dict[str, str]:
        """What `sco` is told, so that it finds the API and fetches tokens for a client of the issuer."""
        return launches.cli_environment(self, client)

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

    def _wait_ready(self, name: str, started: Identity, ready: str | Path, log: Path) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not _serves(ready):
            if not process.alive(started):
                raise StackError(f"The {name} ended while it started. Its last lines:\n{_tail(log)}")
            if time.monotonic() > deadline:
                raise StackError(
                    f"The {name} does not answer at {ready} after {READY_SECONDS:.0f} s."
                    f" Its last lines:\n{_tail(log)}"
                )
            time.sleep(POLL_SECONDS)

    def port(self, name: str) -> int:
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


def _serves(ready: str | Path) -> bool:
    if isinstance(ready, Path):
        return ready.exists()
    try:
        with urllib.request.urlopen(ready, timeout=2) as answer:  # noqa: S310 - a loopback address of ours
            return int(answer.status) == 200  # noqa: PLR2004 - HTTP's own number
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def _tail(log: Path, lines: int = 20) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
