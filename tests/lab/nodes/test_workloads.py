"""The workloads of the laboratory do what their kind says when they are told to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.nodes.workloads import CHILDREN, PID_FILE, STATE_FILE, WRONG_EXIT, Kind, read_stamp

PATIENCE_SECONDS = 30.0


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def start(kind: Kind, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "lab.nodes.workloads", "--kind", kind, "--folder", str(folder)]
    process = subprocess.Popen(command, start_new_session=True)
    until((folder / PID_FILE).exists)
    assert int((folder / PID_FILE).read_text()) == process.pid
    return process


@pytest.mark.parametrize(
    ("kind", "code"), [(Kind.HONEST, 0), (Kind.CHECKPOINTS, 0), (Kind.EXITS_WRONGLY, WRONG_EXIT)]
)
def test_it_ends_when_told_and_says_when(kind: Kind, code: int, tmp_path: Path) -> None:
    process = start(kind, tmp_path)
    assert read_stamp(tmp_path) is None
    before = time.monotonic_ns()
    process.send_signal(signal.SIGUSR1)
    assert process.wait(PATIENCE_SECONDS) == code
    stamp = read_stamp(tmp_path)
    assert stamp is not None
    assert stamp.signal == "SIGUSR1"
    assert before < stamp.monotonic_ns < time.monotonic_ns()
    assert (tmp_path / STATE_FILE).exists() is (kind is Kind.CHECKPOINTS)


@pytest.mark.parametrize("kind", [Kind.IGNORES, Kind.HANGS])
def test_it_stays_when_told_and_says_so(kind: Kind, tmp_path: Path) -> None:
    process = start(kind, tmp_path)
    try:
        process.terminate()
        until(lambda: read_stamp(tmp_path) is not None)
        first = read_stamp(tmp_path)
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        assert read_stamp(tmp_path) == first
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)


def test_its_children_live_on_when_it_alone_is_told(tmp_path: Path) -> None:
    process = start(Kind.FORKS, tmp_path)
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    children = [int(pid) for pid in listed]
    try:
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0
        assert len(children) == CHILDREN
        assert all(Path(f"/proc/{pid}").exists() for pid in children)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
