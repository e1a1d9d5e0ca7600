"""Who is at the other end of a local connection, as the kernel says it."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
from pathlib import Path
from typing import NamedTuple, Protocol

CREDENTIALS = struct.Struct("3i")
# Since Linux 6.5: the process that connected, whatever became of its number. Not named by Python yet.
SO_PEERPIDFD = 77
PROC = Path("/proc")
# Field 22 of proc(5), counted from the one after the command's name.
START_FIELD = 19


class Connected(Protocol):
    def getsockopt(self, level: int, option: int, size: int = 0, /) -> int | bytes: ...


class Peer(NamedTuple):
    """A user of this node. `pid` is 0 where the process cannot be told for certain, ended or of another node.

    `started` is its start in clock ticks since the machine's: with it, a number that is used again is seen.
    """

    uid: int
    gid: int
    pid: int = 0
    started: int = 0


def peer_of(connected: Connected) -> Peer:
    """The peer's credentials at the time when it connected. OSError when the kernel does not say."""
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    assert isinstance(raw, bytes)
    pid, uid, gid = CREDENTIALS.unpack(raw)
    handle = _handle(connected, pid)
    if handle is None:
        return Peer(uid, gid)
    try:
        started = start_of(pid)
        # Still there after its start was read: the start is that of this very process.
        known = started is not None and not _ended(handle)
        return Peer(uid, gid, pid, started) if known and started is not None else Peer(uid, gid)
    finally:
        os.close(handle)


def is_same(peer: Peer) -> bool:
    """Whether the process that connected still runs, rather than another under its number."""
    return peer.pid > 0 and start_of(peer.pid) == peer.started


def start_of(pid: int) -> int | None:
    """When a process started, in ticks; None when there is none."""
    try:
        record = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        # The command's name may hold spaces and brackets; the last bracket closes it.
        return int(record.rpartition(")")[2].split()[START_FIELD])
    except (OSError, ValueError, IndexError):
        return None


def _handle(connected: Connected, pid: int) -> int | None:
    with contextlib.suppress(OSError):
        handle = connected.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
        return int(handle) if isinstance(handle, int) else None
    if pid <= 0:
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _ended(handle: int) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(0))
