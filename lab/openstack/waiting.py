"""What every service of the laboratory's OpenStack needs while it starts."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

from lab.openstack.errors import OpenStackLabError
from lab.stack import process
from lab.stack.ports import LOOPBACK
from lab.stack.process import Identity

VENV = Path(__file__).resolve().parents[2] / ".openstack" / "venv"
POLL_SECONDS = 0.1
LOG_LINES_SHOWN = 20


def require_installed() -> None:
    """OpenStackLabError unless the services are installed."""
    if not (VENV / ".installed").exists():
        raise OpenStackLabError(f"OpenStack is not installed in {VENV}: run make openstack")


def wait_ready(name: str, server: Identity, ready: Callable[[], bool], log: Path, seconds: float) -> None:
    """Return when the service is ready. OpenStackLabError when it ends or takes too long."""
    deadline = time.monotonic() + seconds
    while not ready():
        if not process.alive(server):
            raise OpenStackLabError(f"{name} ended while it started.\n{tail(log)}")
        if time.monotonic() > deadline:
            raise OpenStackLabError(f"{name} was not ready in {seconds:g} s.\n{tail(log)}")
        time.sleep(POLL_SECONDS)


def tail(log: Path) -> str:
    """The last lines of a log, for an error message."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES_SHOWN:]
    return "\n".join([f"Last lines of {log}:", *(f"  {line}" for line in lines)])


def listens(port: int) -> bool:
    """Whether something accepts connections there."""
    try:
        socket.create_connection((LOOPBACK, port), POLL_SECONDS).close()
    except OSError:
        return False
    return True
