"""Draining a node of Slurm: what is asked of the forwarder, and the local path when nobody answers.

The forwarder is the real one; small programs stand in for Slurm's commands.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent.drain.ports import SchedulerUnreachable, Work
from agent.drain.slurm import SlurmDriver
from agent.drain.slurm_forwarder import ForwarderAccess, SlurmForwarder
from agent.drain.slurm_local import SlurmLocal, processes_of_jobs
from tests.agent.drain.cluster import OWNER, PATIENCE_SECONDS, UNTIL, Deadline
from tests.deploy.forwarder_session import SAYING, Session, forwarding
from wire.bundle import CheckpointMode, DrainOrders, DrainPath, DrainSignal, Restart

DRAINED = "n1|drained|sco:i-n1/sco-notice-1 until 2026-11-03T09:05:00Z\n"
RUNNING = "7|7|RUNNING|n1\n"
# Stands for the work of a job: on USR1 it writes down what it got and ends, or it has no handler.
PROCESS = """
import signal, sys, time
def heard(number, frame):
    open(sys.argv[1], "a").write(signal.Signals(number).name)
    sys.exit(3)
if sys.argv[2] == "understands":
    signal.signal(signal.SIGUSR1, heard)
print("ready", flush=True)
time.sleep(600)
"""


def orders(**changes: Any) -> DrainOrders:
    usual = DrainOrders(
        path=DrainPath.SLURM,
        budget_seconds=100,
        signal=DrainSignal.USR1,
        checkpoint=CheckpointMode.FINAL,
        restart=Restart.RESUME,
    )
    return usual.model_copy(update=changes)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with forwarding(tmp_path_factory.mktemp("forwarder")) as session:
        yield session


@pytest.fixture
def session(running: Session) -> Session:
    running.forget_calls()
    for name in SAYING:
        running.says(name, "")
    running.says("sinfo", DRAINED)
    return running


def driver_of(session: Session, **options: Any) -> SlurmDriver:
    forwarder = SlurmForwarder(ForwarderAccess(session.url), session.keys["n1"], "i-n1", call_seconds=20.0)
    return SlurmDriver(forwarder, "n1", **({"processes": dict} | options))


async def requeued(driver: SlurmDriver, session: Session) -> None:
    """Ask what is left, as an executor does, until job 7 was requeued."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while changes(session)[-1] != ["scontrol", "requeue", "7"]:
            await driver.left()
            await asyncio.sleep(0.01)


def changes(session: Session) -> list[list[str]]:
    """The commands that changed something, without those that let a requeued job start later."""
    return [
        call for call in session.calls() if call[0] in ("scontrol", "scancel") and "StartTime=now" not in call
    ]


async def test_a_node_is_closed_and_opened_under_its_owner(session: Session) -> None:
    driver = driver_of(session)
    session.says("sinfo", "n1|idle|none\n")
    await driver.cordon(OWNER, UNTIL)
    assert changes(session)[-1][-1] == f"Reason=sco:i-n1/{OWNER} until 2026-11-03T09:05:00Z"
    session.says("sinfo", DRAINED)
    await driver.uncordon(OWNER)
    assert changes(session)[-1] == ["scontrol", "update", "NodeName=n1", "State=RESUME"]


async def test_a_budget_that_is_used_up_ends_the_wait(session: Session) -> None:
    driver, deadline = driver_of(session), Deadline(119.0)
    session.says("squeue", RUNNING)
    await driver.signal(orders(), deadline)
    deadline.seconds = 19.0
    await requeued(driver, session)


@pytest.mark.parametrize("mode", [CheckpointMode.NONE, CheckpointMode.PERIODIC])
async def test_without_a_last_checkpoint_there_is_nothing_to_wait_for(
    session: Session, mode: CheckpointMode
) -> None:
    driver = driver_of(session)
    session.says("squeue", RUNNING)
    await driver.signal(orders(checkpoint=mode), Deadline())
    await requeued(driver, session)


@pytest.mark.parametrize(
    ("state", "requeued"),
    [("FAILED", True), ("NODE_FAIL", True), ("COMPLETED", False), ("CANCELLED", False), ("TIMEOUT", False)],
)
async def test_what_ended_is_requeued_if_it_was_cut_short(
    session: Session, state: str, requeued: bool
) -> None:
    driver = driver_of(session)
    session.says("squeue", RUNNING)
    await driver.signal(orders(), Deadline())
    session.says("squeue", f"7|7|{state}|n1\n")
    await driver.finish(orders())
    assert (["scontrol", "requeue", "7"] in changes(session)) is requeued


async def test_a_contract_without_restart_never_requeues(session: Session) -> None:
    driver, deadline, never = driver_of(session), Deadline(119.0), orders(restart=Restart.NONE)
    session.says("squeue", RUNNING)
    await driver.signal(never, deadline)
    deadline.seconds = 2.0
    await driver.force(await driver.left())
    await driver.finish(never)
    assert [call[0] for call in changes(session)] == ["scancel"]


async def test_an_agent_that_lost_its_memory_still_has_signalled_jobs_requeued(session: Session) -> None:
    session.says("squeue", "8|8|RUNNING|n1\n")
    await driver_of(session).signal(orders(), Deadline())
    session.says("squeue", "8|8|FAILED|n1\n")
    await driver_of(session).finish(orders())
    assert ["scontrol", "requeue", "8"] in changes(session)


async def test_jobs_that_slurm_has_forgotten_are_left_while_their_processes_run(session: Session) -> None:
    driver = driver_of(session, processes=lambda: {"9": (4194304,)})
    session.says("squeue", RUNNING)
    assert await driver.left() == (Work("job", "7", ()), Work("job", "9", (4194304,)))


@pytest.mark.parametrize(
    ("says", "detail"), [("n1|idle|none\n", "409 not_drained"), ("", "502 slurm: Slurm has no node")]
)
async def test_what_the_forwarder_does_not_do_is_unreachable(
    session: Session, says: str, detail: str
) -> None:
    session.says("sinfo", says)
    with pytest.raises(SchedulerUnreachable, match=detail):
        await driver_of(session).signal(orders(), Deadline())


@pytest.mark.parametrize("days", [-300, 300])
async def test_a_wrong_clock_is_corrected_by_the_first_answer(session: Session, days: int) -> None:
    forwarder = SlurmForwarder(
        ForwarderAccess(session.url),
        session.keys["n1"],
        "i-n1",
        now=lambda: datetime.now(UTC) + timedelta(days=days),
        call_seconds=20.0,
    )
    session.says("squeue", RUNNING)
    assert await forwarder.jobs() == {"7": "RUNNING"}
    assert [entry["status"] for entry in session.audit()[-2:]] == [401, 200]
    assert await forwarder.jobs() == {"7": "RUNNING"}
    assert session.audit()[-1]["status"] == 200
    await forwarder.close()


async def test_a_forwarder_that_hangs_is_given_up_in_time() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    forwarder = SlurmForwarder(ForwarderAccess(url), _key(), "i-n1", call_seconds=0.2)
    began = time.monotonic()
    with pytest.raises(SchedulerUnreachable):
        await forwarder.drain(OWNER, UNTIL)
    assert time.monotonic() - began < 10
    await forwarder.close()
    server.close()


@pytest.mark.parametrize("answer", ["[]", "no json", '{"jobs": 7}', '{"jobs": [{"id": "1"}]}'])
async def test_an_answer_that_makes_no_sense_is_unreachable(answer: str) -> None:
    async def odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer)}\r\n\r\n{answer}".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(odd, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    forwarder = SlurmForwarder(ForwarderAccess(url), _key(), "i-n1", call_seconds=10.0)
    with pytest.raises(SchedulerUnreachable):
        await forwarder.jobs()
    await forwarder.close()
    server.close()


def _key() -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.generate()


@asynccontextmanager
async def job(
    heard: Path, job_id: str, node: str, how: str = "understands"
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of a job, as slurmd starts it."""
    environment = os.environ | {"SLURM_JOB_ID": job_id, "SLURMD_NODENAME": node}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROCESS, str(heard), how), env=environment, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def local_of(node: str, folder: Path, **options: Any) -> SlurmLocal:
    usual: dict[str, Any] = {"stop": ("true",), "start": ("true",), "marker": folder / "marker"}
    return SlurmLocal(lambda: processes_of_jobs(node), **(usual | options))


async def test_locally_only_jobs_of_this_node_are_reached_by_a_signal_they_understand(tmp_path: Path) -> None:
    here, there = f"node-{os.getpid()}", f"other-{os.getpid()}"
    local = local_of(here, tmp_path)
    async with (
        job(tmp_path / "a", "11", here) as writes,
        job(tmp_path / "b", "12", here, "does-not") as plain,
        job(tmp_path / "c", "13", there) as foreign,
    ):
        assert [work.name for work in await local.left()] == ["11", "12"]
        await local.signal(orders(), Deadline())
        assert await writes.wait() == 3
        assert await plain.wait() == -signal.SIGTERM
        assert (tmp_path / "a").read_text() == "SIGUSR1"
        assert foreign.returncode is None
        assert await local.left() == ()
        assert not (tmp_path / "c").exists()
    await local.uncordon(OWNER)


async def test_locally_what_does_not_end_is_killed(tmp_path: Path) -> None:
    here = f"forced-{os.getpid()}"
    local = local_of(here, tmp_path)
    async with job(tmp_path / "a", "11", here) as stubborn:
        await local.force(await local.left())
        assert await stubborn.wait() == -signal.SIGKILL


async def test_slurmd_is_stopped_and_started_again_even_by_a_later_agent(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    commands = {
        "stop": ("sh", "-c", f"echo stop >> {heard}"),
        "start": ("sh", "-c", f"echo start >> {heard}"),
    }
    local = local_of("nowhere", tmp_path, **commands)
    await local.uncordon(OWNER)
    assert not heard.exists()
    await local.cordon(OWNER, UNTIL)
    await local.signal(orders(), Deadline())
    async with asyncio.timeout(20):
        # The file is there a moment before it says anything.
        while not heard.exists() or not heard.read_text():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)
    later = local_of("nowhere", tmp_path, **commands)
    await later.uncordon(OWNER)
    await later.uncordon(OWNER)
    assert heard.read_text().split() == ["stop", "start"]


async def test_a_slurmd_that_cannot_be_stopped_does_not_stop_a_drain(tmp_path: Path) -> None:
    local = local_of("nowhere", tmp_path, stop=("no-such-command",), start=("false",))
    await local.signal(orders(), Deadline())
    await local.finish(orders())
    with pytest.raises(SchedulerUnreachable, match="ended with 1"):
        await local.uncordon(OWNER)
