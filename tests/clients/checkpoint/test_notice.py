"""A workload hears of a notice once, whichever way it comes: the agent's socket, its file, or a signal."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.board import Level, NoticeBoard, NoticeState
from agent.socket import AgentSocket, CheckpointReport, EndReport
from clients.checkpoint import Checkpoints, LocalStore, Notice, NoticeListener, StoreDownError
from clients.checkpoint.notice import SIGNALS
from tests.clients.checkpoint.stores import Fault, FaultyStore, MemoryStore, go_down

PATIENCE_SECONDS = 20.0
DEADLINE = datetime(2030, 1, 1, 12, 2, tzinfo=UTC)


class Ends:
    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    def remaining_seconds(self) -> float:
        return self._at - time.monotonic()


def hard(seconds: float) -> NoticeState:
    return NoticeState(Level.HARD, "n", "reclaim", DEADLINE, Ends(seconds))


class Agent:
    """A node's agent as workloads see it, in a thread of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reports: queue.Queue[CheckpointReport] = queue.Queue()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._board = NoticeBoard()
        self._socket = AgentSocket(path, self._board, self._keep)
        self._run(self._socket.start())

    def _keep(self, report: CheckpointReport | EndReport) -> None:
        assert isinstance(report, CheckpointReport)
        self.reports.put(report)

    def publish(self, state: NoticeState) -> None:
        self._loop.call_soon_threadsafe(self._board.publish, state)

    def close(self) -> None:
        self._run(self._socket.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        self._loop.close()

    def _run(self, work: object) -> None:
        assert asyncio.iscoroutine(work)
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)


@contextmanager
def listening(
    socket: Path | None, file: Path | None, signals: tuple[signal.Signals, ...] = ()
) -> Iterator[queue.Queue[Notice]]:
    heard: queue.Queue[Notice] = queue.Queue()
    before = {number: signal.getsignal(number) for number in signals}
    listener = NoticeListener(socket, file, heard.put, signals=signals)
    listener.start()
    try:
        yield heard
    finally:
        listener.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def next_of(heard: queue.Queue[Notice]) -> Notice:
    return heard.get(timeout=PATIENCE_SECONDS)


def silent(heard: queue.Queue[Notice]) -> bool:
    time.sleep(0.3)
    return heard.empty()


def test_the_agent_says_it_at_once_and_once(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "agent.sock")
    with listening(agent.path, None) as heard:
        assert silent(heard)
        agent.publish(NoticeState(Level.ADVISORY, "n", "reclaim", DEADLINE, Ends(500)))
        assert next_of(heard)[::3] == ("advisory", "agent")
        agent.publish(hard(110))
        told = next_of(heard)
        assert (told.level, told.deadline) == ("hard", DEADLINE)
        assert told.remaining_seconds is not None
        assert 100 < told.remaining_seconds <= 110
        agent.publish(hard(109.9))
        agent.publish(hard(300))
        assert silent(heard)
        agent.publish(hard(40))
        assert (next_of(heard).remaining_seconds or 99) <= 40
        agent.publish(NoticeState())
        assert next_of(heard).level == "none"
    agent.close()


def test_an_agent_that_starts_again_is_found_and_says_nothing_twice(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "agent.sock")
    with listening(agent.path, None) as heard:
        agent.publish(hard(100))
        assert next_of(heard).level == "hard"
        agent.close()
        agent = Agent(tmp_path / "agent.sock")
        agent.publish(hard(99))
        assert silent(heard)
        agent.publish(hard(20))
        assert (next_of(heard).remaining_seconds or 99) <= 20
    agent.close()


def test_without_a_socket_the_deadline_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "deadline"
    with listening(tmp_path / "no.sock", file) as heard:
        file.write_bytes(b"half a fi")
        assert silent(heard)
        ends = time.clock_gettime(time.CLOCK_BOOTTIME) + 90
        said = {"kind": "hard", "deadline": "2030-01-01T12:02:00.000Z", "endsAtBootSeconds": ends}
        file.write_text(json.dumps(said))
        told = next_of(heard)
        assert (told.level, told.deadline, told.source) == ("hard", DEADLINE, "file")
        assert told.remaining_seconds is not None
        assert 60 < told.remaining_seconds <= 90
        file.unlink()
        assert next_of(heard).level == "none"


def test_a_signal_is_a_notice_and_no_end(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "agent.sock")
    with listening(agent.path, None, SIGNALS) as heard:
        assert silent(heard)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert next_of(heard) == Notice("hard", None, None, "signal")
        os.kill(os.getpid(), signal.SIGTERM)
        # What came by signal is not taken back by an agent that knows of nothing, but told more exactly.
        agent.publish(NoticeState())
        assert silent(heard)
        agent.publish(hard(100))
        assert next_of(heard).source == "agent"
        os.kill(os.getpid(), signal.SIGTERM)
        assert silent(heard)
    agent.close()


def test_a_callback_that_fails_does_not_end_the_listening(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "agent.sock")
    heard: queue.Queue[Notice] = queue.Queue()

    def fail(notice: Notice) -> None:
        heard.put(notice)
        raise RuntimeError("the workload's own")

    writer = Checkpoints(MemoryStore(), "job", agent_socket=agent.path, deadline_file=None)
    listener = writer.on_notice(fail, signals=())
    agent.publish(hard(100))
    assert next_of(heard).level == "hard"
    agent.publish(NoticeState())
    assert next_of(heard).level == "none"
    listener.close()
    agent.close()


def test_signals_are_taken_in_the_main_thread_only() -> None:
    listener = NoticeListener(None, None, lambda _: None, signals=SIGNALS)
    failed: list[Exception] = []

    def start() -> None:
        try:
            listener.start()
        except ValueError as error:
            failed.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert failed
    listener.close()


def test_the_agent_is_told_what_became_of_a_checkpoint(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "agent.sock")
    line = FaultyStore(LocalStore(tmp_path / "store"))
    with Checkpoints(line, "job", agent_socket=agent.path, deadline_file=None) as writer:
        writer.save(b"12345", final=True)
        assert agent.reports.get(timeout=PATIENCE_SECONDS).detail().startswith("generation 1, final, 5 bytes")
        line.arm(Fault(1, True, go_down))
        with pytest.raises(StoreDownError):
            writer.save(b"6")
        assert "lease released" in agent.reports.get(timeout=PATIENCE_SECONDS).detail()
    agent.close()
