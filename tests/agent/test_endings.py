"""How work ended: what is known of it is told, by the work itself or its system, and nothing else."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.drain.ending_watch import EndingWatch
from agent.drain.plain_endings import PlainEndings, Reported, endings_of_units
from agent.drain.ports import Ending, SchedulerUnreachable, Work
from agent.drain.processes import Process
from tests.agent.rig import letter, node, notice, until
from tests.agent.test_executor import POD, Bench, Driver, Scheduler, bench
from wire.bundle import DrainPath
from wire.lifecycle import EventType

OFTEN = "import agent.drain.ending_watch as watch; watch.LOOK_SECONDS = 0.1"
# Prints what systemd does for units that it was asked for by the arguments that are checked here.
SYSTEMCTL = """#!/bin/sh
[ "$1 $3" = "show --" ] || exit 9
cat {folder}/says
"""
BLOCK = """Id={unit}
ActiveState={state}
ExecMainCode={how}
ExecMainStatus={status}
ExecMainExitTimestampMonotonic={at}
"""


def test_work_that_says_how_it_ends_is_told_with_its_exit_code(tmp_path: Path) -> None:
    with node(tmp_path / "n") as one:
        one.work("says how it ends")
        one.start()
        one.metadata.letters = [letter(notice(one.instance_id))]
        until(lambda: one.phase() == "finished")
        (ended,) = one.told("work_ended")
        assert ended["exitCode"] == 7
        assert ended["noticeId"]


def test_an_error_outside_of_any_drain_is_told_once_and_of_strangers_nothing_is_believed(
    tmp_path: Path,
) -> None:
    with node(tmp_path / "n") as one:
        work = one.work("says how it ends")
        one.start(prelude=OFTEN)
        assert one.ask(op="ended", exitCode=9)["ok"]
        assert one.ask(op="ended", exitCode=4096)["error"] == "malformed"
        os.kill(work.process.pid, signal.SIGUSR1)
        work.process.wait()
        until(lambda: "work_ended" in _spooled(one.state))
        assert one.stop() == 0
        one.start(prelude=OFTEN)
        told = one.told("work_ended")
        assert [(event["exitCode"], event.get("noticeId")) for event in told] == [(7, None)]


def _spooled(state: Path) -> str:
    found = [path.read_bytes() for path in state.glob("spool.db*")]
    return b"".join(found).decode(errors="replace")


def test_what_was_said_counts_only_of_the_work_of_who_said_it_and_only_if_he_was_the_last() -> None:
    job, other = Work("pid_file", "a", ()), Work("pid_file", "b", ())
    found = {job: (Process(1, 5), Process(2, 5)), other: (Process(3, 5),)}
    reported = Reported(lambda: found)
    assert not reported.take(4, 5, 1)
    assert not reported.take(1, 6, 1)
    assert reported.take(1, 5, 3)
    assert reported.take(3, 5, 4)
    assert reported.endings() == ()
    found[job] = (Process(2, 5),)
    assert reported.endings() == ()
    found.clear()
    assert [(one.name, one.exit_code) for one in reported.endings()] == [("b", 4)]


@pytest.mark.parametrize(
    ("state", "how", "status", "code"),
    [
        ("failed", "1", "3", 3),
        ("inactive", "1", "0", 0),
        ("failed", "2", "9", -9),
        ("failed", "3", "11", -11),
        ("active", "1", "3", None),
        ("activating", "1", "3", None),
        ("inactive", "0", "0", None),
        ("failed", "1", "4096", None),
        ("failed", "1", "x", None),
    ],
)
async def test_systemd_tells_of_units_that_ended(
    tmp_path: Path, state: str, how: str, status: str, code: int | None
) -> None:
    show = _systemctl(tmp_path)
    block = BLOCK.format(unit="a.service", state=state, how=how, status=status, at="4000000")
    never = BLOCK.format(unit="b.service", state="inactive", how="0", status="0", at="0")
    (tmp_path / "says").write_text(f"{block}\n{never}")
    found = await endings_of_units(("a.service", "b.service"), show=show)
    assert [one.exit_code for one in found] == ([] if code is None else [code])
    again = await endings_of_units(("a.service",), show=show)
    assert [one.mark for one in again] == [one.mark for one in found]


def _systemctl(folder: Path) -> tuple[str, ...]:
    program = folder / "systemctl"
    program.write_text(SYSTEMCTL.format(folder=folder))
    program.chmod(0o755)
    return (str(program), "show", "--property=Id")


@pytest.mark.parametrize("show", [("/nowhere/systemctl",), ("sleep", "60", ";"), ("false",), ("yes",)])
async def test_a_node_without_a_systemd_that_answers_knows_nothing_of_its_units(show: Sequence[str]) -> None:
    assert await endings_of_units(("a.service",), show=show, seconds=0.2) == ()


async def test_only_what_is_asked_for_is_told() -> None:
    async def units(names: Sequence[str]) -> tuple[Ending, ...]:
        return tuple(Ending("unit", name, 1, "0") for name in names)

    told = PlainEndings(("a", "b"), Reported(dict), units)
    assert [one.name for one in await told()] == ["a", "b"]
    assert [one.name for one in await told([Work("unit", "b", ())])] == ["b"]
    assert await told([Work("cgroup", "b", ())]) == ()


class Telling(Scheduler):
    """A scheduler that knows how its work ended, or does not answer."""

    def __init__(self) -> None:
        super().__init__(Driver("kubernetes"))
        self.known: list[Ending] = []
        self.answers = True

    async def endings(self, of: Sequence[Work] = ()) -> tuple[Ending, ...]:
        if not self.answers:
            raise SchedulerUnreachable("no answer")
        return tuple(self.known)


def watch(one: Bench) -> EndingWatch:
    return EndingWatch("i-1", one.drains, lambda: DrainPath.KUBERNETES, record=one.told, clock=one.clock)


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


@pytest.mark.parametrize(("answers", "code"), [(True, 3), (False, None)])
async def test_the_end_of_work_in_a_drain_has_its_exit_code_where_that_is_known(
    tmp_path: Path, answers: bool, code: int | None
) -> None:
    driver = Telling()
    driver.answers = answers
    driver.known = [Ending("pod", "b", 9, "2"), Ending(POD.kind, POD.name, 3, "1")]
    async with bench(tmp_path, driver) as one:
        one.begin(notice("i-1", 30))
        await one.finished()
        assert one.told.story == ["notice", "signalled", "work_ended", "drained"]
        assert dict(one.told.events)[EventType.WORK_ENDED]["exit_code"] == code


async def test_errors_are_told_once_and_neither_signals_nor_what_is_older_than_the_agent(
    tmp_path: Path,
) -> None:
    driver = Telling()
    driver.known = [Ending("pod", "old", 1, "1"), Ending("pod", "dated", 2, "2", ago(60))]
    async with bench(tmp_path, driver) as one:
        looking = watch(one)
        await looking.look()
        driver.known += [Ending("pod", name, code, "3") for name, code in (("a", 3), ("b", 0), ("c", 137))]
        driver.known += [Ending("pod", "a", -9, "4")]
        for _ in range(2):
            await looking.look()
        told = [(fields["detail"], fields["exit_code"]) for _, fields in one.told.events]
        assert told == [("pod dated", 2), ("pod a", 3)]
        again = watch(one)
        await again.look()
        assert one.told.events[2][1]["event_id"] == one.told.events[0][1]["event_id"]


async def test_during_a_drain_only_what_ended_before_its_notice_is_told_without_it(tmp_path: Path) -> None:
    driver = Telling()
    async with bench(tmp_path, driver) as one:
        one.begin(notice("i-1", 30))
        await one.finished()
        one.told.events.clear()
        driver.known = [
            Ending("pod", "before", 1, "1", ago(60)),
            Ending("pod", "within", 1, "2", ago(0)),
            Ending("pod", "some time", 1, "3"),
        ]
        await watch(one).look()
        assert [fields["detail"] for _, fields in one.told.events] == ["pod before"]
        assert "notice_id" not in one.told.events[0][1]


async def test_a_scheduler_that_does_not_answer_tells_nothing(tmp_path: Path) -> None:
    driver = Telling()
    driver.known, driver.answers = [Ending("pod", "a", 1, "1", ago(5))], False
    async with bench(tmp_path, driver) as one:
        await watch(one).look()
        assert one.told.events == []
