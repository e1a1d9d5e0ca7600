"""What the demo acts with: the `sco` command as a user types it, the API, and the cloud's own record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.rule import Rule

from lab.cloud.admin_client import AdminClient
from lab.control_plane import ControlPlane
from lab.stack.errors import StackError

COMMAND_SECONDS = 300
WAIT_SECONDS = 60.0
POLL_SECONDS = 0.1


class Sco:
    """Runs `sco` commands against one API, shown as they would be typed."""

    def __init__(self, plane: ControlPlane, console: Console) -> None:
        self._plane = plane
        self._console = console

    def run(self, *arguments: str, expect: Sequence[int] = (0,)) -> str:
        """Run one command and show what it prints; StackError when it ends otherwise than expected."""
        self._console.print(f"\n[bold]$ sco {' '.join(arguments)}[/]")
        ended = self._call(arguments)
        self._console.print(ended.stdout.rstrip(), markup=False, soft_wrap=True)
        if ended.returncode and ended.returncode in expect:
            self._console.print(ended.stderr.rstrip(), markup=False, soft_wrap=True)
        if ended.returncode not in expect:
            raise StackError(
                f"sco {' '.join(arguments)} ended with {ended.returncode}:\n{ended.stderr.strip()}"
            )
        return ended.stdout

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start one command without waiting for it."""
        self._console.print(f"\n[bold]$ sco {' '.join(arguments)} &[/]")
        return subprocess.Popen(
            self._command(arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment(),
        )

    def data(self, *arguments: str) -> Any:
        """The JSON that one reading command prints, without showing it."""
        ended = self._call([*arguments, "-o", "json"])
        if ended.returncode != 0:
            raise StackError(f"sco {' '.join(arguments)} ended with {ended.returncode}:\n{ended.stderr}")
        return json.loads(ended.stdout)

    def _call(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(arguments),
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            env=self._environment(),
            check=False,
        )

    def _environment(self) -> dict[str, str]:
        """Ours, with this laboratory's server and sign-in instead of any other."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("SCO_")}
        return own | self._plane.cli_environment()

    def _command(self, arguments: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "clients.cli.main", *arguments]


class CloudRecord:
    """What the simulated cloud itself knows of its servers: the demo's witness."""

    def __init__(self, plane: ControlPlane) -> None:
        known = json.loads(plane.cloud_file.read_text())
        self.admin = AdminClient(known["base_url"], known["admin"]["token"])

    def live_servers(self) -> list[dict[str, Any]]:
        return [one for one in self.admin.servers() if one["status"] not in ("DELETED", "SOFT_DELETED")]

    def servers_by_batch(self) -> Counter[str]:
        return Counter(one["metadata"].get("sco_batch", "") for one in self.live_servers())


def headline(console: Console, number: int, text: str) -> None:
    console.print()
    console.print(Rule())
    console.print(f"[bold cyan]{number}. {text}[/]")


def expect(what: str, found: object, expected: object) -> None:
    """StackError when it is not so."""
    if found != expected:
        raise StackError(f"{what}: {found!r} instead of {expected!r}")


def until(happened: Callable[[], Any], what: str) -> None:
    """Wait until it has happened; StackError when it takes too long."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not happened():
        if time.monotonic() > deadline:
            raise StackError(f"waited {WAIT_SECONDS:.0f} s and still not: {what}")
        time.sleep(POLL_SECONDS)
