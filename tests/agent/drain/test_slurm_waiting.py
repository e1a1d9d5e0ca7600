"""How long a job of Slurm is waited for: its last checkpoint, its budget, and the agent's restarts."""

from __future__ import annotations

import pytest

from agent.drain.ports import Work
from agent.drain.slurm_written import Written
from tests.agent.drain.cluster import Deadline
from tests.agent.drain.test_slurm import RUNNING, changes, driver_of, orders, requeued, running, session
from tests.deploy.forwarder_session import Session

__all__ = ["running", "session"]


async def test_a_job_is_signalled_and_not_requeued_before_it_has_written(session: Session) -> None:
    written, moment = (
        Written(lambda: {"7": (70, 71)}, uid_of=lambda pid: 1000, clock=lambda: moment[0]),
        [1.0],
    )
    driver = driver_of(session, checkpointed=written.since, clock=lambda: moment[0])
    deadline = Deadline(119.0)
    assert written.take(70, 1000) == "7"
    moment[0] = 2.0
    session.says("squeue", RUNNING)
    await driver.signal(orders(), deadline)
    assert changes(session) == [["scancel", "--signal=USR1", "--batch", "7"]]
    for seconds in (119.0, 60.0, 19.1):
        deadline.seconds = seconds
        assert await driver.left() == (Work("job", "7", ()),)
    assert len(changes(session)) == 1
    assert written.take(71, 1000) == "7"
    await requeued(driver, session)
    await driver.left()
    assert changes(session)[1:] == [["scontrol", "requeue", "7"]]


@pytest.mark.parametrize(
    ("pid", "uid", "uids"), [(99, 1000, {}), (70, 1001, {}), (70, 1000, {71: 0}), (71, 0, {71: 0})]
)
def test_what_a_stranger_says_of_a_job_does_not_count(pid: int, uid: int, uids: dict[int, int]) -> None:
    written = Written(lambda: {"7": (70, 71)}, uid_of=lambda one: uids.get(one, 1000))
    assert written.take(pid, uid) is None
    assert not written.since("7", 0.0)


async def test_a_driver_of_after_a_restart_signals_again_and_requeues_at_the_end_of_the_budget(
    session: Session,
) -> None:
    session.says("squeue", RUNNING)
    await driver_of(session).signal(orders(), Deadline(119.0))
    restarted, deadline = driver_of(session), Deadline(60.0)
    assert restarted.signals_again
    await restarted.signal(orders(budget_seconds=41), deadline)
    deadline.seconds = 20.0
    await restarted.left()
    assert changes(session)[-1][:2] == ["scancel", "--signal=USR1"]
    deadline.seconds = 19.0
    await requeued(restarted, session)
