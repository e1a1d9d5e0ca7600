"""A real Slurm: a job writes its checkpoint, is requeued and resumes elsewhere; slurmctld may hang."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from agent.drain.ports import OffersLocal, SchedulerUnreachable, Work
from agent.drain.slurm_forwarder import ForwarderAccess, SlurmForwarder
from lab.schedulers.slurm import Slurm
from tests.agent.rig import Node, letter, notice
from tests.real.slurm_world import NODES, OWNER, PACKAGE, Deadline, World, orders, registered, until
from wire.bundle import CheckpointMode, DrainPath, Restart

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def cluster() -> Iterator[World]:
    folder = Path(tempfile.mkdtemp(prefix="sl-"))
    keys = {node: Ed25519PrivateKey.generate() for node in NODES}
    with Slurm(folder / "c", NODES) as slurm:
        url = slurm.start_forwarder(PACKAGE, registered(keys, folder / "nodes.json"), sys.executable)
        yield World(slurm, url, keys)
    shutil.rmtree(folder)


@pytest.fixture
def world(cluster: World) -> Iterator[World]:
    yield cluster
    cluster.reset()


@pytest.mark.parametrize("step", [False, True])
async def test_a_job_writes_is_requeued_and_resumes_from_its_checkpoint_elsewhere(
    world: World, step: bool
) -> None:
    job = world.submit(step=step)
    driver = world.driver(job.node, checkpointed=lambda *_: job.state.exists())
    await driver.cordon(OWNER, until())
    state, reason = world.slurm.node(job.node)
    assert state == "draining"
    assert reason.startswith(f"sco:i-{job.node}/{OWNER} until ")
    began = time.monotonic()
    await driver.signal(orders(), Deadline())
    await world.drained(driver)
    await driver.finish(orders())
    await world.until(lambda: len(job.began()) == 2)
    assert time.monotonic() - began < 30, "the job waited for its credential to expire"
    first, saved, second = (line for line in job.told() if line["what"] in ("began", "saved"))
    assert second["node"] != first["node"]
    assert second["step"] == saved["step"] > 0
    await driver.uncordon(OWNER)
    assert world.slurm.node(job.node)[0] == "idle"


async def test_a_real_agent_drains_its_node_and_the_job_resumes_elsewhere(
    world: World, tmp_path: Path
) -> None:
    job = world.submit()
    last = {"checkpoint": CheckpointMode.FINAL, "restart": Restart.RESUME}
    with closing(Node(tmp_path, f"i-{job.node}", path=DrainPath.SLURM, **last)) as node:
        node.settings |= {"SCO_AGENT_SLURM_URL": world.url, "SCO_AGENT_NODE_NAME": job.node}
        node.state.mkdir()
        key = world.keys[job.node].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (node.state / "key.pem").write_bytes(key)
        node.start()
        job.knows(tmp_path / "run" / "agent.sock")
        node.metadata.letters = [letter(notice(node.instance_id, 120))]
        # Long before its budget is used up: the job itself has said that it may go.
        await world.until(lambda: len(job.began()) == 2)
        await world.until(lambda: node.phase() == "finished")
        first, saved, second = job.told()
        assert second["node"] != first["node"]
        assert second["step"] == saved["step"] > 0
        assert world.slurm.node(job.node)[1].startswith(f"sco:{node.instance_id}/sco-")
        assert node.story() == ["notice", "signalled", "checkpointed", "work_ended", "drained"]
        assert node.told("signalled")[0]["path"] == "slurm"


async def test_slurm_tells_with_which_exit_code_a_job_ended(world: World) -> None:
    job = world.submit("3")
    driver = world.driver(job.node)
    await driver.cordon(OWNER, until())
    await driver.signal(orders(restart=Restart.NONE), Deadline())
    await world.drained(driver)
    (ended,) = await driver.endings([Work("job", job.job_id, ())])
    assert ended.exit_code == 3
    await world.until(
        lambda: job.job_id in [one.name for one in asyncio.run(world.driver(job.node).endings())]
    )
    await driver.uncordon(OWNER)


async def test_a_job_that_ends_by_itself_after_writing_is_requeued_unless_its_work_was_done(
    world: World,
) -> None:
    cut, done, asks = (world.submit(after) for after in ("3", "0", "75"))
    for node in sorted({job.node for job in (cut, done, asks)}):
        driver = world.driver(node)
        await driver.cordon(OWNER, until())
        await driver.signal(orders(), Deadline())
        await world.drained(driver)
        await driver.finish(orders())
    await world.until(lambda: len(cut.began()) > 1 and len(asks.began()) > 1)
    assert world.slurm.job(done.job_id)[0] == "COMPLETED"
    assert len(done.began()) == 1


async def test_a_job_that_never_ends_is_requeued_when_its_budget_is_used_up(world: World) -> None:
    job = world.submit()
    driver, deadline = world.driver(job.node), Deadline(119.0)
    await driver.cordon(OWNER, until())
    await driver.signal(orders(budget_seconds=100), deadline)
    await world.until(job.state.exists)
    deadline.seconds = 19.5
    assert [work.name for work in await driver.left()] == [job.job_id]
    assert world.slurm.job(job.job_id)[0] == "RUNNING"
    deadline.seconds = 19.0
    await world.drained(driver)
    assert world.slurm.job(job.job_id)[0] in ("PENDING", "RUNNING")


async def test_work_without_a_last_checkpoint_is_requeued_at_once(world: World) -> None:
    job = world.submit()
    driver = world.driver(job.node)
    await driver.cordon(OWNER, until())
    plain = orders(checkpoint=CheckpointMode.NONE)
    await driver.signal(plain, Deadline())
    await world.drained(driver)
    assert world.slurm.job(job.job_id)[0] in ("PENDING", "RUNNING")


async def test_forced_work_is_gone_and_is_requeued_only_if_the_contract_says_so(world: World) -> None:
    job = world.submit()
    driver = world.driver(job.node)
    never = orders(restart=Restart.NONE)
    await driver.cordon(OWNER, until())
    await driver.signal(never, Deadline())
    left = await driver.left()
    assert left[0].pids
    await driver.force(left)
    await world.drained(driver)
    await driver.finish(never)
    assert world.slurm.job(job.job_id)[0] == "FAILED"
    assert len(job.began()) == 1


async def test_a_node_that_others_closed_stays_theirs(world: World) -> None:
    world.slurm.run("scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=broken fan")
    driver = world.driver("n3")
    await driver.cordon(OWNER, until())
    await driver.uncordon(OWNER)
    assert world.slurm.node("n3") == ("drained", "broken fan")


async def test_only_the_owner_of_a_mark_opens_the_node_again(world: World) -> None:
    driver = world.driver("n1")
    await driver.cordon(OWNER, until())
    await driver.uncordon("sco-notice-2")
    assert world.slurm.node("n1")[0] == "drained"
    await driver.cordon("sco-notice-2", until())
    await driver.uncordon(OWNER)
    assert world.slurm.node("n1")[0] == "drained"
    await driver.uncordon("sco-notice-2")
    assert world.slurm.node("n1")[0] == "idle"


async def test_a_hung_slurmctld_is_given_up_in_time_and_the_jobs_are_reached_without_it(world: World) -> None:
    job = world.submit("3")
    driver = world.driver(job.node)
    assert isinstance(driver, OffersLocal)
    world.slurm.signal("slurmctld", signal.SIGSTOP)
    try:
        began = time.monotonic()
        with pytest.raises((SchedulerUnreachable, TimeoutError)):
            await asyncio.wait_for(driver.cordon(OWNER, until()), 0.8)
        local = driver.local()
        await local.signal(orders(), Deadline())
        took = time.monotonic() - began
        assert took < 1.0, f"the local path was reached after {took:.2f} s"
        await world.until(job.state.exists)
        with pytest.raises(SchedulerUnreachable):
            await driver.left()
        await world.until(lambda: not asyncio.run(local.left()))
    finally:
        world.slurm.signal("slurmctld", signal.SIGCONT)
    await local.uncordon(OWNER)
    await world.until(lambda: world.slurm.job(job.job_id)[0] == "FAILED")
    await driver.cordon(OWNER, until())
    await driver.left()
    await driver.finish(orders())


async def test_a_node_moves_neither_jobs_of_another_nor_another_node(world: World) -> None:
    job = world.submit()
    other = next(node for node in NODES if node != job.node)
    stranger = world.forwarder(other)
    await stranger.drain(OWNER, until())
    assert world.slurm.node(job.node)[0] in ("mixed", "allocated")
    with pytest.raises(SchedulerUnreachable, match="403 foreign_job"):
        await stranger.requeue([job.job_id])
    assert (await stranger.signal("KILL")).jobs == {}
    impostor = world.forwarder(job.node, key=world.keys[other])
    with pytest.raises(SchedulerUnreachable, match="401 bad_signature"):
        await impostor.drain(OWNER, until())
    assert world.slurm.job(job.job_id) == ("RUNNING", job.node)
    assert len(job.began()) == 1


async def test_a_node_whose_clock_is_wrong_by_days_is_understood(world: World) -> None:
    for days in (-400, 400):
        forwarder = world.forwarder("n1", now=lambda days=days: datetime.now(UTC) + timedelta(days=days))
        assert await forwarder.jobs() == {}
        assert await forwarder.jobs() == {}


async def test_a_forwarder_that_is_gone_is_unreachable(world: World) -> None:
    nobody = SlurmForwarder(ForwarderAccess("http://127.0.0.1:9"), world.keys["n1"], "i-n1")
    with pytest.raises(SchedulerUnreachable, match="forwarder"):
        await nobody.jobs()
