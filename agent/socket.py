"""The unix socket for workloads: they ask whether the node is wanted back, and report their checkpoints.

Everything about it is bounded, and it only reads the board. What a workload reports counts for its own work.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from agent.board import NoticeBoard, NoticeState
from agent.socket_lines import (
    MAX_LINE,
    Checkpointed,
    CheckpointReport,
    Ended,
    EndReport,
    Refused,
    Released,
    Watch,
    answer,
    read_request,
    refusal,
)
from agent.socket_peer import Peer, peer_of

__all__ = [
    "AgentSocket",
    "CheckpointReport",
    "EndReport",
    "NoticeBoard",
    "NoticeState",
    "SocketLimits",
    "SocketStats",
]

# Every user of the node may ask: what the answer says is no secret on it.
MODE = 0o666
SHUT_SECONDS = 2.0
# Connections that are taken in one turn of the loop, which may have a drain to go on with, and those that the
# kernel lets wait: beyond them it fails a program that asks with a limit of time.
AT_ONCE, WAITING = 8, 1024
# Who asks too often is heard this much later: its own buffers fill up meanwhile, not ours.
TOO_OFTEN_SECONDS = 0.25

log = logging.getLogger(__name__)


class SocketLimits(NamedTuple):
    """How much of the agent's time and memory workloads can have. Rates are per second, with a burst."""

    connections: int = 256
    connections_per_uid: int = 64
    lines: tuple[float, int] = (20.0, 40)
    reports_per_uid: tuple[float, int] = (1.0, 20)
    reports: tuple[float, int] = (5.0, 60)
    uids: int = 1024
    idle_seconds: float = 60.0
    unread_bytes: int = 64 * 1024


class SocketStats(NamedTuple):
    connections: int = 0
    reports: int = 0
    refused: int = 0


class Allowance:
    """So many at once, and so many a second after that."""

    def __init__(self, rate: tuple[float, int], steady: Callable[[], float]) -> None:
        self._per_second, self._burst = rate
        self._steady = steady
        self._left, self._at = float(self._burst), steady()

    def take(self) -> bool:
        now = self._steady()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class AgentSocket:
    """Serves `agent.sock`. Reports go to `report`, which must neither block nor fail."""

    def __init__(
        self,
        path: Path,
        board: NoticeBoard,
        report: Callable[[CheckpointReport | EndReport], None],
        *,
        allowed_uids: frozenset[int] | None = None,
        limits: SocketLimits | None = None,
        steady: Callable[[], float] = monotonic,
    ) -> None:
        """`allowed_uids` None lets every user of the node ask."""
        self._path, self.board, self._report = path, board, report
        self._allowed, self._steady = allowed_uids, steady
        self.limits = limits or SocketLimits()
        self._reports = Allowance(self.limits.reports, steady)
        self._reports_by_uid: dict[int, Allowance] = {}
        self._open: dict[asyncio.Task[None], int] = {}
        self._server: asyncio.AbstractServer | None = None
        self._taken = 0
        self._refused = 0

    async def start(self) -> None:
        """Listen; what an earlier run left under the name is replaced. OSError when that cannot be done."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        listening = socket.socket(socket.AF_UNIX)
        try:
            listening.bind(str(self._path))
            self._server = await asyncio.start_unix_server(
                self._connected, sock=listening, limit=MAX_LINE, backlog=AT_ONCE
            )
            listening.listen(WAITING)
            os.chmod(self._path, MODE)
        except BaseException:
            listening.close()
            raise

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            with contextlib.suppress(OSError):
                self._path.unlink()
        for task in self._open:
            task.cancel()
        if self._open:
            await asyncio.wait(tuple(self._open), timeout=SHUT_SECONDS)

    def stats(self) -> SocketStats:
        return SocketStats(len(self._open), self._taken, self._refused)

    def take_report(self, said: Checkpointed | Released | Ended, peer: Peer) -> bool:
        """Hand a report on; False when there were too many of late."""
        mine = self._reports_by_uid.pop(peer.uid, None) or Allowance(
            self.limits.reports_per_uid, self._steady
        )
        self._reports_by_uid[peer.uid] = mine
        if len(self._reports_by_uid) > self.limits.uids:
            del self._reports_by_uid[next(iter(self._reports_by_uid))]
        if not mine.take() or not self._reports.take():
            return False
        self._taken += 1
        self._report(EndReport(said, peer) if isinstance(said, Ended) else CheckpointReport(said, peer))
        return True

    def count_refusal(self) -> None:
        self._refused += 1

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            peer = peer_of(writer.get_extra_info("socket"))
            reason = self._turned_away(peer)
            if reason is not None:
                self.count_refusal()
                writer.write(refusal(*reason))
                return
            self._open[task] = peer.uid
            await Conversation(self, peer, reader, writer, self._steady).run()
        except (OSError, asyncio.CancelledError):
            # The peer is gone, or the agent ends: either way there is nobody to tell.
            pass
        except Exception:
            log.exception("a connection of a workload failed in an unforeseen way")
        finally:
            self._open.pop(task, None)
            await _hang_up(writer)

    def _turned_away(self, peer: Peer) -> tuple[Refused, str] | None:
        if self._allowed is not None and peer.uid not in self._allowed:
            return Refused.FOREIGN, f"uid {peer.uid} may not use this socket"
        if len(self._open) >= self.limits.connections:
            return Refused.TOO_MANY, f"{self.limits.connections} connections are open already, try later"
        if Counter(self._open.values())[peer.uid] >= self.limits.connections_per_uid:
            most = self.limits.connections_per_uid
            return Refused.TOO_MANY, f"uid {peer.uid} has {most} connections open already, close some"
        return None


class Conversation:
    """One connection: lines are answered in order; a watch goes on beside them."""

    def __init__(
        self,
        door: AgentSocket,
        peer: Peer,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        steady: Callable[[], float],
    ) -> None:
        self._door, self._peer, self._reader, self._writer = door, peer, reader, writer
        self._lines = Allowance(door.limits.lines, steady)
        self._watching: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until the peer hangs up, says nothing for long, or sends what is no line."""
        try:
            while (line := await self._next_line()) is not None:
                if not self._lines.take():
                    await asyncio.sleep(TOO_OFTEN_SECONDS)
                    reply = self._refuse(
                        Refused.TOO_OFTEN, "slow down, and use watch instead of asking again"
                    )
                else:
                    reply = self._reply(line)
                self._writer.write(reply)
                if not await self._written():
                    return
        finally:
            if self._watching is not None:
                self._watching.cancel()

    async def _next_line(self) -> bytes | None:
        try:
            # Who watches has nothing to say: only its end is waited for.
            patience = None if self._watching is not None else self._door.limits.idle_seconds
            return await asyncio.wait_for(self._reader.readuntil(b"\n"), patience)
        except (asyncio.IncompleteReadError, TimeoutError):
            return None
        except asyncio.LimitOverrunError:
            self._door.count_refusal()
            self._writer.write(refusal(Refused.TOO_LONG, f"a line may have {MAX_LINE} bytes"))
            return None

    def _reply(self, line: bytes) -> bytes:
        request = read_request(line)
        if isinstance(request, str):
            return self._refuse(Refused.MALFORMED, request)
        if isinstance(request, Checkpointed | Released | Ended):
            if self._door.take_report(request, self._peer):
                return answer()
            return self._refuse(Refused.TOO_OFTEN, "too many reports, this one is not kept")
        state, version = self._door.board.state, self._door.board.version
        if isinstance(request, Watch) and self._watching is None:
            self._watching = asyncio.create_task(self._push(version))
        return answer(**state.said())

    def _refuse(self, reason: Refused, message: str) -> bytes:
        self._door.count_refusal()
        return refusal(reason, message)

    async def _push(self, version: int) -> None:
        board = self._door.board
        with contextlib.suppress(OSError):
            while True:
                version = await board.newer_than(version)
                self._writer.write(answer(**board.state.said()))
                if not await self._written():
                    return

    async def _written(self) -> bool:
        """Whether the peer reads what it is told; one that does not is cut off."""
        transport = self._writer.transport
        if transport.get_write_buffer_size() > self._door.limits.unread_bytes:
            transport.abort()
            return False
        # Lets the loop turn even when lines come faster than they are answered.
        await asyncio.sleep(0)
        return not transport.is_closing()


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    try:
        await asyncio.wait_for(writer.wait_closed(), SHUT_SECONDS)
    except (OSError, TimeoutError):
        # It does not even read its last line.
        writer.transport.abort()
