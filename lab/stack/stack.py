"""The embedded stack: Postgres, Temporal and NATS started, found again, broken and stopped as one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lab.stack import process
from lab.stack.errors import StackError
from lab.stack.nats import Nats
from lab.stack.ports import LOOPBACK, Ports, choose
from lab.stack.postgres import DATABASE, OWNER, Postgres
from lab.stack.process import Identity
from lab.stack.server import Server, log_path
from lab.stack.state import STATE_FILE, State, locked, read_password
from lab.stack.temporal import NAMESPACE, Temporal

DEFAULT_DATA_DIR = Path(".lab")
# Postgres last: making its first database takes longest, and the others become ready meanwhile.
SERVERS: tuple[type[Server], ...] = (Nats, Temporal, Postgres)
SERVER_NAMES = tuple(kind.name for kind in SERVERS)

Progress = Callable[[str], None]


@dataclass(frozen=True)
class ServerStatus:
    """One server as it is now. `died` means it was started and ended without being asked to."""

    name: str
    state: Literal["running", "stopped", "died"]
    pid: int | None
    url: str
    log: Path


def _say_nothing(line: str) -> None:
    del line


class Stack:
    """A handle on the servers of one data folder. Several handles, also in several processes, may exist."""

    def __init__(self, data_dir: Path, state: State) -> None:
        self.data_dir = data_dir
        self._state = state

    @classmethod
    def start(
        cls,
        data_dir: Path = DEFAULT_DATA_DIR,
        *,
        ports: Ports | None = None,
        progress: Progress = _say_nothing,
    ) -> Stack:
        """Bring every server up and return once all of them serve; those that already run are kept.

        `ports` are wanted port numbers, zero for any. `progress` receives one line per server.
        Raises StackError; then the servers that this call started are stopped again.
        """
        data_dir = data_dir.resolve()
        _make(data_dir)
        with locked(data_dir):
            state = State.read(data_dir) or State()
            running = _running(state)
            held = {name for kind in SERVERS if kind.name in running for name in kind.port_names}
            state.ports = choose(ports or Ports(), state.ports, held)
            servers = [kind(data_dir, state.ports) for kind in SERVERS]
            stack = cls(data_dir, state)
            for server in servers:
                if server.name in running:
                    progress(f"{server.title} already runs (pid {running[server.name].pid})")
            stack._bring_up(servers, running, progress)
        return stack

    @classmethod
    def load(cls, data_dir: Path = DEFAULT_DATA_DIR) -> Stack:
        """Return the stack that was started in the folder, running or not."""
        data_dir = data_dir.resolve()
        state = State.read(data_dir)
        if state is None:
            raise StackError(f"No stack was started in {data_dir}: it has no {STATE_FILE}. Start one first.")
        return cls(data_dir, state)

    def stop(self, *, progress: Progress = _say_nothing) -> None:
        """Stop every server, keeping its data. Does nothing to those that do not run."""
        with self._changing():
            running = _running(self._state)
            for kind in SERVERS:
                if kind.name in running:
                    process.send(running[kind.name], kind.stop_signal)
            for kind in SERVERS:
                if kind.name in running:
                    process.end(running[kind.name], kind.stop_seconds)
                    progress(f"{kind.title} stopped")
                self._state.servers.pop(kind.name, None)

    def status(self) -> list[ServerStatus]:
        """Return how every server is, in starting order."""
        self._state = State.read(self.data_dir) or self._state
        return [self._status_of(kind.name) for kind in SERVERS]

    def stop_one(self, name: str) -> None:
        """Stop one server in good order."""
        kind = _kind(name)
        with self._changing():
            process.stop(self._identity(kind), kind.stop_signal, kind.stop_seconds)
            del self._state.servers[name]

    def kill_one(self, name: str) -> None:
        """End one server with SIGKILL, as a crash would."""
        kind = _kind(name)
        with self._changing():
            process.kill(self._identity(kind))
            del self._state.servers[name]

    def start_one(self, name: str) -> None:
        """Start one server again on its port and data; returns once it serves. Keeps one that runs."""
        kind = _kind(name)
        with self._changing():
            self._bring_up([kind(self.data_dir, self._state.ports)], _running(self._state), _say_nothing)

    @property
    def ports(self) -> Ports:
        """The ports all servers listen on, on 127.0.0.1."""
        return self._state.ports

    @property
    def postgres_dsn(self) -> str:
        """The superuser's connection string to the product's database, password included."""
        return self.dsn(DATABASE)

    def dsn(self, database: str) -> str:
        """Return the superuser's connection string to any database of this server, password included."""
        return f"postgresql://{OWNER}:{read_password(self.data_dir)}@{self._postgres_host}/{database}"

    @property
    def temporal_address(self) -> str:
        """Host and port of Temporal's gRPC endpoint."""
        return f"{LOOPBACK}:{self.ports.temporal}"

    @property
    def temporal_namespace(self) -> str:
        """The namespace that holds the search attributes."""
        return NAMESPACE

    @property
    def nats_url(self) -> str:
        """The URL for NATS clients."""
        return f"nats://{LOOPBACK}:{self.ports.nats}"

    @property
    def web_ui_url(self) -> str:
        """Temporal's Web UI, for a browser on this machine."""
        return f"http://{LOOPBACK}:{self.ports.web_ui}"

    @property
    def urls(self) -> dict[str, str]:
        """Where people and programs find each server; no password inside."""
        return {
            "postgres": f"postgresql://{OWNER}@{self._postgres_host}/{DATABASE}",
            "temporal": self.temporal_address,
            "web_ui": self.web_ui_url,
            "nats": self.nats_url,
            "nats_monitor": f"http://{LOOPBACK}:{self.ports.nats_monitor}",
        }

    @property
    def _postgres_host(self) -> str:
        return f"{LOOPBACK}:{self.ports.postgres}"

    def _bring_up(self, servers: list[Server], running: dict[str, Identity], progress: Progress) -> None:
        started: list[Server] = []
        began = time.monotonic()
        try:
            for server in servers:
                if server.name not in running:
                    self._state.servers[server.name] = server.launch()
                    started.append(server)
                    self._save()
            for server in servers:
                server.wait_ready(self._state.servers[server.name])
                if server in started:
                    progress(f"{server.title} ready after {time.monotonic() - began:.1f} s")
        except BaseException:
            # An interrupt included: nobody would know of servers left behind by a start that failed.
            for server in started:
                process.stop(self._state.servers.pop(server.name), server.stop_signal, server.stop_seconds)
            self._save()
            raise
        self._save()

    def _status_of(self, name: str) -> ServerStatus:
        identity = self._state.servers.get(name)
        url, log = self.urls[name], log_path(self.data_dir, name)
        if identity is None:
            return ServerStatus(name, "stopped", None, url, log)
        if process.alive(identity):
            return ServerStatus(name, "running", identity.pid, url, log)
        return ServerStatus(name, "died", None, url, log)

    def _identity(self, kind: type[Server]) -> Identity:
        identity = self._state.servers.get(kind.name)
        if identity is None or not process.alive(identity):
            raise StackError(f"{kind.title} does not run in {self.data_dir}. Start it first.")
        return identity

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with locked(self.data_dir):
            self._state = State.read(self.data_dir) or self._state
            try:
                yield
            finally:
                self._save()

    def _save(self) -> None:
        self._state.write(self.data_dir, self.urls)


def _running(state: State) -> dict[str, Identity]:
    return {name: identity for name, identity in state.servers.items() if process.alive(identity)}


def _make(data_dir: Path) -> None:
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or str(error)
        raise StackError(
            f"{data_dir} cannot be made: {why}. Choose a folder that you may write to."
        ) from None


def _kind(name: str) -> type[Server]:
    for kind in SERVERS:
        if kind.name == name:
            return kind
    raise StackError(f"There is no server called {name!r}. The stack has {', '.join(sorted(SERVER_NAMES))}.")
