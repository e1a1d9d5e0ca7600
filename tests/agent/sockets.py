"""A served socket and a workload's end of it, for the tests of the socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from agent.board import NoticeBoard
from agent.socket import AgentSocket, SocketLimits
from agent.socket_lines import CheckpointReport, EndReport
from tests.agent.spooling import PATIENCE_SECONDS
from wire.notices import Notice, NoticeCause, NoticeKind

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
NOTICE_ID = UUID(int=7)
ROOMY = SocketLimits(lines=(1e6, 10**6), reports_per_uid=(1e6, 10**6), reports=(1e6, 10**6))


class Ends:
    def remaining_seconds(self) -> float:
        return 101.5


def notice(kind: NoticeKind = NoticeKind.HARD) -> Notice:
    withdrawn = kind is NoticeKind.WITHDRAWAL
    return Notice(
        notice_id=NOTICE_ID,
        instance_id="instance-1",
        hall="hall-a",
        kind=kind,
        cause=NoticeCause.RECLAIM,
        issued_at=NOW,
        deadline=None if withdrawn else NOW + timedelta(seconds=120),
        withdraws=NOTICE_ID if withdrawn else None,
    )


class Line:
    """A workload's end of the socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()

    async def next(self) -> dict[str, Any]:
        line = await asyncio.wait_for(self.reader.readline(), PATIENCE_SECONDS)
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def ask(self, **fields: Any) -> dict[str, Any]:
        await self.send(json.dumps(fields).encode() + b"\n")
        return await self.next()

    async def ended(self) -> bool:
        return await asyncio.wait_for(self.reader.read(), PATIENCE_SECONDS) == b""


class Door:
    def __init__(self, socket: AgentSocket, path: Path, reports: list[CheckpointReport | EndReport]) -> None:
        self.socket, self.path, self.reports = socket, path, reports
        self.board = socket.board
        self._lines: list[Line] = []

    async def line(self) -> Line:
        line = Line(*await asyncio.open_unix_connection(self.path))
        self._lines.append(line)
        return line

    def hang_up(self) -> None:
        for line in self._lines:
            line.writer.close()


@asynccontextmanager
async def door(
    folder: Path, limits: SocketLimits | None = None, uids: frozenset[int] | None = None
) -> AsyncIterator[Door]:
    reports: list[CheckpointReport | EndReport] = []
    path = folder / "agent.sock"
    socket = AgentSocket(path, NoticeBoard(), reports.append, allowed_uids=uids, limits=limits)
    await socket.start()
    opened = Door(socket, path, reports)
    try:
        yield opened
    finally:
        opened.hang_up()
        await socket.close()
