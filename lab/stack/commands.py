"""What `up`, `down` and `status` of the lab print and do."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from lab.stack.ports import Ports
from lab.stack.stack import Stack
from lab.stack.state import PASSWORD_FILE

Echo = Callable[[str], None]


def up(data_dir: Path, echo: Echo, *, ports: Ports | None = None) -> Stack:
    """Start what does not run yet, print how long it took and where everything is. Raises StackError."""
    echo(f"Starting Postgres, Temporal and NATS, data in {data_dir}")
    began = time.monotonic()
    stack = Stack.start(data_dir, ports=ports, progress=lambda line: echo(f"  {line}"))
    echo(f"The stack is up after {time.monotonic() - began:.1f} s")
    echo(f"  Temporal Web UI  {stack.urls['web_ui']}")
    echo(f"  Temporal         {stack.urls['temporal']} (namespace {stack.temporal_namespace})")
    echo(f"  Postgres         {stack.urls['postgres']}")
    echo(f"  password in      {data_dir / PASSWORD_FILE}")
    echo(f"  NATS             {stack.urls['nats']} (monitor {stack.urls['nats_monitor']})")
    echo(f"  logs in          {data_dir / 'logs'}")
    return stack


def down(data_dir: Path, echo: Echo) -> None:
    """Stop what runs; data is kept. Raises StackError when no stack was ever started there."""
    stack = Stack.load(data_dir)
    began = time.monotonic()
    stack.stop(progress=lambda line: echo(f"  {line}"))
    echo(f"The stack is down after {time.monotonic() - began:.1f} s; its data stays in {data_dir}")


def status(data_dir: Path, echo: Echo) -> bool:
    """Print one line per server and tell whether all of them run. Raises StackError like `down`."""
    servers = Stack.load(data_dir).status()
    for server in servers:
        pid = "" if server.pid is None else f" (pid {server.pid})"
        echo(f"{server.name:<9} {server.state + pid:<22} {server.url}")
        if server.state == "died":
            echo(f"{'':<9} it ended by itself; see {server.log}")
    return all(server.state == "running" for server in servers)
