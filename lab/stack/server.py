"""What every embedded server has in common: a folder, a command, a readiness probe, a log."""

from __future__ import annotations

import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from lab.stack import binaries, process
from lab.stack.account import Account
from lab.stack.errors import ServerFailedError
from lab.stack.ports import Ports, require_free
from lab.stack.process import Identity

LEFTOVER_SECONDS = 5.0
LOG_LINES_SHOWN = 20
LOG_BYTES_READ = 64 * 1024
LOG_BYTES_KEPT = 50 * 1024 * 1024
PROBE_INTERVAL_SECONDS = 0.05
READY_SECONDS = 60.0


class NotReadyError(Exception):
    """The server answers, but not yet as it should."""


class Server(ABC):
    """One server of the stack. Subclasses say what to run and when it is ready."""

    name: ClassVar[str]
    title: ClassVar[str]
    program: ClassVar[str]
    package: ClassVar[str]
    port_names: ClassVar[tuple[str, ...]]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    stop_seconds: ClassVar[float] = 15.0

    def __init__(self, data_dir: Path, ports: Ports) -> None:
        self.data_dir = data_dir
        self.ports = ports
        self.binary = binaries.find(self.program, self.package)

    @property
    def log(self) -> Path:
        """The file that holds the server's output of every run."""
        return log_path(self.data_dir, self.name)

    @property
    def folder(self) -> Path:
        """The server's own data, and its working directory: a server whose record was lost is found by it."""
        return self.data_dir / self.name

    @property
    def account(self) -> Account | None:
        """Whom the server runs as; None is the caller."""
        return None

    def prepare(self) -> None:
        """Make what the server needs on disk before it can run."""
        self.folder.mkdir(mode=0o700, exist_ok=True)

    @abstractmethod
    def command(self) -> Sequence[str | Path]:
        """Return the program and its arguments."""

    @abstractmethod
    def probe(self) -> None:
        """Return when the server serves requests; raise OSError or NotReadyError when it does not yet."""

    @abstractmethod
    def finish(self) -> None:
        """Create what must exist inside the running server. Called after every start."""

    def clear_leftovers(self) -> None:
        """End what an earlier run left behind: a server without a record, or a killed one's children."""
        for leftover in process.working_in(self.folder, self.program):
            process.stop(leftover, self.stop_signal, LEFTOVER_SECONDS)

    def launch(self) -> Identity:
        """Start the server and return its process; it may not be ready yet."""
        # In this order: a server whose folder was removed writes into whatever stands there when it ends.
        self.clear_leftovers()
        self.prepare()
        for name in self.port_names:
            require_free(name, getattr(self.ports, name))
        self._turn_log()
        return process.spawn(
            self.command(),
            log=self.log,
            folder=self.folder,
            environment=self.environment(),
            account=self.account,
        )

    def environment(self) -> dict[str, str]:
        """Return the whole environment: a user's PG*, TEMPORAL_* or proxy settings never reach the server."""
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.folder),
            "LC_ALL": "C",
            "TZ": "UTC",
        }

    def wait_ready(self, identity: Identity, seconds: float = READY_SECONDS) -> None:
        """Wait until the server serves and holds what it must. Raises ServerFailedError with its log tail."""
        deadline = time.monotonic() + seconds
        while True:
            if not process.alive(identity):
                raise ServerFailedError(f"{self.title} ended while starting.\n{self.log_tail()}")
            try:
                self.probe()
            except (OSError, NotReadyError) as error:
                if time.monotonic() >= deadline:
                    raise ServerFailedError(
                        f"{self.title} was not ready after {seconds:.0f} s ({error}).\n{self.log_tail()}"
                    ) from error
                time.sleep(PROBE_INTERVAL_SECONDS)
            else:
                break
        self.finish()

    def log_tail(self) -> str:
        """Return the last lines of the log under a line that names the file."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - LOG_BYTES_READ))
                lines = file.read().decode(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        except FileNotFoundError:
            lines = []
        return "\n".join([f"Last lines of {self.log}:", *(f"  {line}" for line in lines or ["(empty)"])])

    def _turn_log(self) -> None:
        self.log.parent.mkdir(mode=0o700, exist_ok=True)
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES_KEPT:
            self.log.replace(self.log.with_suffix(".log.1"))


def log_path(data_dir: Path, name: str) -> Path:
    """Return where the named server's output goes."""
    return data_dir / "logs" / f"{name}.log"
