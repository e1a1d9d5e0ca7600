"""Processes that are signalled: the right ones, once, and never a stranger that has their pid."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.drain import plain, processes
from agent.drain.plain import PlainDriver, PlainPlaces, PlainWork, plain_driver
from agent.drain.processes import Process, cgroup_pids, look, running, send
from tests.agent.rig import Workload, until
from wire.bundle import DrainOrders, DrainPath, DrainSignal

ORDERS = DrainOrders(path=DrainPath.PLAIN, budget_seconds=115, signal=DrainSignal.USR1)


class Far:
    def remaining_seconds(self) -> float:
        return 100.0


def test_a_pid_that_is_somebody_elses_by_now_is_not_signalled(tmp_path: Path) -> None:
    work = Workload(tmp_path, "ignores")
    try:
        found = look(work.process.pid)
        assert found is not None
        stranger = found.process._replace(started=found.process.started - 1)
        assert not send(stranger, signal.SIGKILL)
        assert work.runs
        assert send(found.process, signal.SIGKILL)
        assert work.process.wait(5) == -signal.SIGKILL
        assert not send(found.process, signal.SIGKILL)
    finally:
        work.close()


def test_a_pid_file_whose_pid_was_used_again_names_nobody(tmp_path: Path) -> None:
    work = Workload(tmp_path, "ignores")
    try:
        places = PlainPlaces(pid_files=(str(tmp_path / "*.pid"),))
        assert len(PlainWork(places).find()) == 1
        found = look(work.process.pid)
        assert found is not None
        work.pid_file.write_text(f"{work.process.pid} {found.process.started - 1}\n")
        assert PlainWork(places).find() == {}
    finally:
        work.close()


async def test_a_unit_is_what_is_in_its_control_group_and_below(tmp_path: Path) -> None:
    work = Workload(tmp_path, "checkpoints")
    try:
        below = tmp_path / "system.slice" / "batch.service" / "worker"
        below.mkdir(parents=True)
        (below / "cgroup.procs").write_text(f"{work.process.pid}\n")
        (below.parent / "cgroup.procs").write_text(f"{os.getpid()}\n1\n0\nnonsense\n")
        assert work.process.pid in cgroup_pids(below.parent)
        driver = plain_driver(PlainPlaces(units=("batch.service", "absent.service"), cgroup_root=tmp_path))
        (left,) = await driver.left()
        assert left == ("unit", "batch.service", (work.process.pid,))
        for _ in range(3):
            await driver.signal(ORDERS, Far())
        until(lambda: work.said("checkpoint"))
        assert len(work.said("SIGUSR1")) == 1
        until(lambda: work.process.poll() is not None)
        assert await driver.left() == ()
    finally:
        work.close()


def test_neither_the_agent_nor_the_first_process_is_ever_work() -> None:
    assert running((0, 1, os.getpid(), 2**30)) == ()
    assert look(2**30) is None
    assert not send(Process(2**30, 1), signal.SIGKILL)


def test_one_look_at_all_processes_serves_however_many_pid_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Workload(tmp_path, "ignores")
    try:
        for number in range(300):
            (tmp_path / f"{number}.pid").write_text(f"{work.process.pid}\n")
        looks: list[processes.Everyone] = []

        def everyone() -> processes.Everyone:
            looks.append(processes.Everyone())
            return looks[-1]

        monkeypatch.setattr(plain, "Everyone", everyone)
        assert len(PlainWork(PlainPlaces(pid_files=(str(tmp_path / "*.pid"),))).find()) == 301
        assert len(looks) == 1
    finally:
        work.close()


def test_work_that_takes_its_pid_file_away_before_it_ends_is_not_taken_to_be_gone(tmp_path: Path) -> None:
    work = Workload(tmp_path, "ignores")
    try:
        found = PlainWork(PlainPlaces(pid_files=(str(tmp_path / "*.pid"),)))
        (before,) = found.find()
        work.pid_file.unlink()
        assert tuple(found.find()) == (before,)
    finally:
        work.close()
    assert found.find() == {}


@pytest.mark.parametrize("lacks", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_what_cannot_be_looked_at_is_not_taken_to_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: int
) -> None:
    work = Workload(tmp_path, "ignores")
    try:
        found = PlainWork(PlainPlaces(pid_files=(str(tmp_path / "*.pid"),)))
        assert found.find()

        def lacking(path: str) -> bytes:
            raise OSError(lacks, os.strerror(lacks))

        with monkeypatch.context() as patch:
            patch.setattr(processes, "_read", lacking)
            with pytest.raises(OSError, match=os.strerror(lacks)):
                found.find()
        assert found.find()
    finally:
        work.close()


FORKS_FOR_EVER = """
import os, signal, sys, time
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
ends = time.monotonic() + 60
for _ in range(10):
    if os.fork() == 0:
        # A line of processes of which each ends as soon as it has a child.
        while time.monotonic() < ends:
            if os.fork():
                os._exit(0)
            with open(sys.argv[1], "a") as beats:
                beats.write(".")
            time.sleep(0.003)
while time.monotonic() < ends:
    os.waitpid(-1, os.WNOHANG)
    time.sleep(0.01)
"""


def test_work_that_forks_faster_than_anybody_looks_is_ended_as_a_whole(tmp_path: Path) -> None:
    beats = tmp_path / "beats"
    work = subprocess.Popen([sys.executable, "-c", FORKS_FOR_EVER, str(beats)], start_new_session=True)
    try:
        until(beats.exists)
        (tmp_path / "work.pid").write_text(f"{work.pid}\n")
        driver = plain_driver(PlainPlaces(pid_files=(str(tmp_path / "*.pid"),)))
        asyncio.run(_force_all(driver))
        assert work.wait(5) == -signal.SIGKILL
        until(lambda: not _grows(beats), 10)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(work.pid, signal.SIGKILL)
        work.wait(5)


async def _force_all(driver: PlainDriver) -> None:
    await driver.force(await driver.left())


def _grows(beats: Path) -> bool:
    before = beats.stat().st_size
    time.sleep(0.3)
    return beats.stat().st_size > before


def test_a_pid_file_that_is_a_pipe_stops_nothing(tmp_path: Path) -> None:
    work = Workload(tmp_path, "ignores")
    try:
        os.mkfifo(tmp_path / "pipe.pid")
        command = [sys.executable, "-c", LOOK, str(tmp_path / "*.pid")]
        assert subprocess.run(command, timeout=20, capture_output=True, check=True).stdout == b"1\n"
    finally:
        work.close()


LOOK = """
import sys
from agent.drain.plain import PlainPlaces, PlainWork
print(len(PlainWork(PlainPlaces(pid_files=(sys.argv[1],))).find()))
"""


@pytest.mark.parametrize("by_link", [True, False])
def test_a_pid_file_of_another_user_names_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_link: bool
) -> None:
    work, work_folder = Workload(tmp_path, "ignores"), tmp_path / "of-another"
    try:
        work_folder.mkdir()
        named = work_folder / "work.pid"
        if by_link:
            named.symlink_to(work.pid_file)
        else:
            named.write_text(work.pid_file.read_text())
        found = PlainWork(PlainPlaces(pid_files=(str(work_folder / "*.pid"),)))
        assert len(found.find()) == 1
        monkeypatch.setattr(plain, "owner_of", lambda pid: os.getuid() + 1)
        monkeypatch.setattr(plain, "TRUSTED", frozenset[int]())
        fresh = PlainWork(PlainPlaces(pid_files=(str(work_folder / "*.pid"),)))
        assert fresh.find() == {}
    finally:
        work.close()
