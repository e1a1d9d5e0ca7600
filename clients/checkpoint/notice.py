"""Hears that the node is wanted back: from the agent's socket, from its deadline file, or by a signal."""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

# What the agent sends by contract, besides the one that every system sends.
SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
# How often the deadline file is looked at: with the socket it only confirms what is known.
FILE_SECONDS, FILE_SECONDS_BESIDE_SOCKET = 1.0, 10.0
RECONNECT_SECONDS = (0.5, 30.0)
CONNECT_SECONDS = 2.0
MAX_LINE = 64 * 1024
MAX_FILE = 64 * 1024
NONE, ADVISORY, HARD = "none", "advisory", "hard"
LEVELS = {NONE: 0, ADVISORY: 1, HARD: 2}
# A deadline that moved by less is the same one, told by two clocks.
SAME_SECONDS = 1.0

log = logging.getLogger(__name__)


class Notice(NamedTuple):
    """`level` is none (withdrawn), advisory or hard. `remaining_seconds` is None when only a signal came.

    `source` says how it was heard: agent, file or signal.
    """

    level: str
    deadline: datetime | None
    remaining_seconds: float | None
    source: str


class NoticeListener:
    """Calls back in its own thread, once for every notice, whichever way it is heard first."""

    def __init__(
        self,
        agent_socket: str | os.PathLike[str] | None,
        deadline_file: str | os.PathLike[str] | None,
        callback: Callable[[Notice], None],
        *,
        signals: Iterable[signal.Signals] = (),
    ) -> None:
        self._socket_path = None if agent_socket is None else os.fspath(agent_socket)
        self._file = None if deadline_file is None else Path(deadline_file)
        self._callback = callback
        self._signals = tuple(signals)
        self._ear, self._mouth = socket.socketpair()
        self._line: socket.socket | None = None
        self._buffer = b""
        self._connect_at, self._pause = 0.0, RECONNECT_SECONDS[0]
        self._look_at = 0.0
        self._told = Notice(NONE, None, None, "")
        self._told_at = 0.0
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="notice", daemon=True)

    def start(self) -> None:
        """Begin to listen. ValueError when signals are named and this is not the main thread."""
        self._mouth.setblocking(False)
        for number in self._signals:
            signal.signal(number, self._signalled)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; signals stay as they are."""
        self._ended = True
        self._wake(b"\0")
        if threading.current_thread() is not self._thread and self._thread.is_alive():
            self._thread.join(2 * CONNECT_SECONDS)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self._wake(b"!")

    def _wake(self, byte: bytes) -> None:
        with suppress(OSError):
            self._mouth.send(byte)

    def _run(self) -> None:
        while not self._ended:
            try:
                self._turn()
            except Exception:
                log.exception("listening for notices failed, and is tried again")
                time.sleep(RECONNECT_SECONDS[0])
        self._hang_up()
        self._ear.close()

    def _turn(self) -> None:
        now = time.monotonic()
        if self._line is None and now >= self._connect_at:
            self._connect()
        if now >= self._look_at:
            self._look_at = now + (FILE_SECONDS if self._line is None else FILE_SECONDS_BESIDE_SOCKET)
            self._look()
        heard = [self._ear] if self._line is None else [self._ear, self._line]
        ready, _, _ = select.select(heard, (), (), self._patience())
        if self._ear in ready and b"!" in self._ear.recv(1024):
            self._tell(Notice(HARD, None, None, "signal"))
        if self._line is not None and self._line in ready:
            self._hear()

    def _patience(self) -> float:
        due = self._look_at if self._line is not None else min(self._look_at, self._connect_at)
        return max(0.0, due - time.monotonic())

    def _connect(self) -> None:
        if self._socket_path is None:
            self._connect_at = float("inf")
            return
        line = socket.socket(socket.AF_UNIX)
        try:
            line.settimeout(CONNECT_SECONDS)
            line.connect(self._socket_path)
            line.sendall(b'{"op":"watch"}\n')
            line.setblocking(False)
        except OSError:
            line.close()
            self._later()
        else:
            self._line, self._buffer = line, b""

    def _hear(self) -> None:
        assert self._line is not None
        try:
            received = self._line.recv(MAX_LINE)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        *lines, self._buffer = (self._buffer + received).split(b"\n")
        for line in lines:
            self._read(line)
        if not received or len(self._buffer) > MAX_LINE:
            self._hang_up()
            self._later()

    def _read(self, line: bytes) -> None:
        fields = _object(line)
        if fields.get("ok") is not True or fields.get("notice") not in LEVELS:
            return
        self._pause = RECONNECT_SECONDS[0]
        remaining = fields.get("remainingSeconds")
        seconds = float(remaining) if isinstance(remaining, int | float) else None
        self._tell(Notice(fields["notice"], _moment(fields.get("deadline")), seconds, "agent"))

    def _look(self) -> None:
        """Read the deadline file; that it is not there only means something while there is no socket."""
        if self._file is None:
            return
        try:
            with self._file.open("rb") as file:
                fields = _object(file.read(MAX_FILE))
        except OSError:
            if self._line is None and self._told.source == "file":
                self._tell(Notice(NONE, None, None, "file"))
            return
        ends = fields.get("endsAtBootSeconds")
        remaining = ends - time.clock_gettime(time.CLOCK_BOOTTIME) if isinstance(ends, int | float) else None
        level = fields.get("kind")
        if level in (ADVISORY, HARD):
            self._tell(Notice(level, _moment(fields.get("deadline")), remaining, "file"))

    def _tell(self, notice: Notice) -> None:
        if not self._is_news(notice):
            return
        self._told, self._told_at = notice, time.monotonic()
        try:
            self._callback(notice)
        except Exception:
            log.exception("the callback for notices failed")

    def _is_news(self, notice: Notice) -> bool:
        told = self._told
        if notice.level == NONE:
            # What only a signal said, nobody here can take back: it may have come from elsewhere.
            return told.level != NONE and told.source != "signal"
        if notice.level != told.level:
            return True
        if notice.remaining_seconds is None:
            return False
        if told.remaining_seconds is None:
            return True
        passed = time.monotonic() - self._told_at
        return notice.remaining_seconds < told.remaining_seconds - passed - SAME_SECONDS

    def _later(self) -> None:
        self._connect_at = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, RECONNECT_SECONDS[1])

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line = None


def _object(raw: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _moment(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
