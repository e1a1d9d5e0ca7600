"""How jobs ended, by the forwarder: of the node that asks alone, and as Slurm has it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent.drain.ports import Work
from tests.agent.drain.test_slurm import driver_of
from tests.deploy.forwarder_session import Session, forwarding

JOB = """JobId=7 JobName=x JobState=COMPLETED ExitCode=0:0
   UserId=me(1) GroupId=me(1) MCS_label=N/A
   JobState={state} Reason=NonZeroExitCode Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode={code}
   DerivedExitCode={derived}
   StartTime=2026-11-03T08:00:00 EndTime={at} Deadline=N/A
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList={nodes}
   Comment=JobState=FAILED ExitCode=9:0 NodeList=n2
"""
AT = "2026-11-03T08:00:07"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with forwarding(tmp_path_factory.mktemp("endings")) as session:
        yield session


def says(
    session: Session, state: str = "FAILED", code: str = "3:0", derived: str = "0:0", **more: str
) -> None:
    known = {"at": AT, "nodes": "n[1-2]"} | more
    session.says("squeue", "")
    session.says("scontrol", JOB.format(state=state, code=code, derived=derived, **known))


def test_how_a_job_ended_is_told_to_its_nodes_alone(running: Session) -> None:
    says(running, nodes="m1,n1")
    running.forget_calls()
    told = {"id": "7", "exitCode": "3:0", "derivedExitCode": "0:0", "endedAt": f"{AT}Z"}
    assert running.order("n1", "endings", {"jobs": ["7"]}).body == {"jobs": [told]}
    assert running.calls() == [["scontrol", "show", "job", "-d", "7"]]
    assert running.order("n2", "endings", {"jobs": ["7"]}).body == {"jobs": []}


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "COMPLETING", "REQUEUED"])
def test_a_job_that_goes_on_has_not_ended(running: Session, state: str) -> None:
    says(running, state)
    assert running.order("n1", "endings", {"jobs": ["7"]}).body == {"jobs": []}


@pytest.mark.parametrize(
    ("code", "derived", "told"),
    [
        ("3:0", "0:0", 3),
        ("0:0", "0:0", 0),
        ("0:0", "5:0", 5),
        ("0:0", "", 0),
        ("0:9", "0:0", -9),
        ("0:125", "", None),
        ("x", "", None),
    ],
)
async def test_the_driver_understands_it(running: Session, code: str, derived: str, told: int | None) -> None:
    says(running, code=code, derived=derived or "(null)")
    found = await driver_of(running).endings([Work("job", "7", ())])
    assert [one.exit_code for one in found] == ([] if told is None else [told])
    assert all((one.kind, one.name, one.ended_at is not None) == ("job", "7", True) for one in found)


async def test_without_a_name_the_newest_are_told_of_which_slurm_knows(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with forwarding(tmp_path_factory.mktemp("newest")) as session:
        says(session)
        lines = [f"{number}|{number}|FAILED|n1" for number in range(1, 40)]
        session.says("squeue", "\n".join([*lines, "99|99|FAILED|n2"]) + "\n")
        found = await driver_of(session).endings()
        assert [one.name for one in found] == [str(number) for number in range(39, 23, -1)]
        await driver_of(session).endings()
        assert [call[0] for call in session.calls()].count("squeue") == 1


def test_nodes_that_are_no_list_are_an_error_and_no_empty_answer(running: Session) -> None:
    says(running, nodes="n[1-")
    answer = running.order("n1", "endings", {"jobs": ["7"]})
    assert (answer.status, answer.reason) == (502, "slurm")
