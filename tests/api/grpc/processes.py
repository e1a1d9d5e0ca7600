"""The gRPC server as a process of its own, with tokens of a real issuer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[3]
PATIENCE_SECONDS = 60
COMMAND = (sys.executable, "-m", "api.grpc.main")


def environment(**settings: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SCO_")}
    given = {"SCO_OIDC_ISSUER": "http://127.0.0.1:9", "SCO_OIDC_AUDIENCE": "sco-api", "SCO_GRPC_PORT": "0"}
    return clean | given | settings


@dataclass
class Running:
    """A process that serves on `port`; `lines` is what it logged, complete once it has ended."""

    process: subprocess.Popen[bytes]
    port: int
    lines: list[dict[str, Any]]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)


@contextmanager
def serving(**settings: str) -> Iterator[Running]:
    """A served process; it must end well at the end of the block."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(COMMAND, env=environment(**settings), cwd=ROOT, stderr=log)
        lines: list[dict[str, Any]] = []
        try:
            yield Running(process, _port(process, log), lines)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=PATIENCE_SECONDS)
            lines += _lines(log)
        assert process.returncode == 0, lines


def _port(process: subprocess.Popen[bytes], log: IO[str]) -> int:
    """The port that the process says it serves on."""
    for _ in range(20 * PATIENCE_SECONDS):
        served = [line for line in _lines(log) if line["event"] == "serving"]
        if served:
            return int(served[0]["port"])
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.05)
            break
    raise AssertionError(f"it does not serve: {_lines(log)}")


def _lines(log: IO[str]) -> list[dict[str, Any]]:
    """What is logged by now; a line that is being written is left for later."""
    log.seek(0)
    return [json.loads(line) for line in log if line.endswith("\n")]
