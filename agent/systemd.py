"""What systemd is told: that the agent is ready, what it does, and that it still lives."""

from __future__ import annotations

import asyncio
import os
import socket

# systemd restarts an agent that is silent for the whole of the interval it gave.
SIGNS_PER_INTERVAL = 3


def notify(*lines: str) -> bool:
    """Send lines such as READY=1. False when nobody listens, as in a terminal."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    target = f"\0{address[1:]}" if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.setblocking(False)
            channel.sendto("\n".join(lines).encode(), target)
    except OSError:
        return False
    return True


def watchdog_seconds() -> float | None:
    """How often a sign of life is due; None when nobody waits for one."""
    try:
        micros = int(os.environ.get("WATCHDOG_USEC", ""))
        wanted = int(os.environ.get("WATCHDOG_PID", str(os.getpid())))
    except ValueError:
        return None
    return micros / 1_000_000 / SIGNS_PER_INTERVAL if micros > 0 and wanted == os.getpid() else None


async def keep_signing() -> None:
    """Give signs of life from the loop that drains, so that one that is stuck is restarted."""
    seconds = watchdog_seconds()
    while seconds is not None:
        notify("WATCHDOG=1")
        await asyncio.sleep(seconds)
    await asyncio.Event().wait()
