"""kill -9 of the agent at every step of a drain: the next one goes on, with the same deadline."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.agent.rig import Node, letter, node, notice, until

# Ends the process around the nth time that the drain is kept; the process is as real as the kill.
KILL = """
import os, signal
import agent.drain_record as record
keep, times = record.DrainRecord.save, 0
async def killing(self):
    global times
    times += 1
    if times == {nth} and {before}:
        os.kill(os.getpid(), signal.SIGKILL)
    await keep(self)
    if times == {nth}:
        os.kill(os.getpid(), signal.SIGKILL)
record.DrainRecord.save = killing
"""
AT_ONCE = 4
# Before and after each: what a restart must not do twice, and what it must not leave out.
STEPS = [(nth, before) for nth in (1, 2, 3, 4) for before in (True, False)]


def killed_and_started(one: Node, nth: int, before: bool, *, seconds: float = 60) -> float:
    """The deadline that was kept when the agent was killed; 0 when it had kept none."""
    one.metadata.letters = [letter(notice(one.instance_id, seconds))]
    one.start(prelude=KILL.format(nth=nth, before=before), ready=False)
    assert one.process is not None
    assert one.process.wait(30) == -9
    drain = one.kept().get("drain")
    # Ready, not only started: the phase that is waited for may be the one that was kept.
    one.start()
    until(lambda: one.phase() == "finished")
    return float(drain["ends_at"]) if drain else 0.0


def test_a_killed_agent_goes_on_with_the_same_deadline_and_signals_once(tmp_path: Path) -> None:
    def go(step: tuple[int, bool]) -> None:
        with node(tmp_path / f"{step[0]}{step[1]}") as one:
            work = one.work("checkpoints")
            kept = killed_and_started(one, *step)
            # Nobody can tell a kill just after the signal from one just before it.
            most = 2 if step == (2, True) else 1
            assert 1 <= len(work.said("SIGUSR1")) <= most, step
            assert work.said("checkpoint")
            after = one.kept()["drain"]["ends_at"]
            assert kept == 0.0 or kept - 2 < after <= kept, step
            assert one.story()[-1] == "drained", (step, one.events(), one.log())

    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert list(pool.map(go, STEPS)) == [None] * len(STEPS)


def test_a_drain_record_that_is_corrupt_costs_no_drain(tmp_path: Path) -> None:
    with node(tmp_path / "n", signal="TERM") as one:
        work = one.work("checkpoints")
        one.state.mkdir()
        (one.folder / "run").mkdir()
        for copy in (one.state, one.folder / "run"):
            (copy / "drain.json").write_bytes(b'{"drain": {"phase": "fini')
        one.metadata.letters = [letter(notice(one.instance_id))]
        one.start(ready=False)
        until(lambda: one.phase() == "finished")
        assert work.said("checkpoint")


def test_a_disk_that_takes_nothing_does_not_stop_a_drain(tmp_path: Path) -> None:
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"
    with node(tmp_path / "n") as one:
        work = one.work("checkpoints")
        one.metadata.letters = [letter(notice(one.instance_id))]
        one.start(prelude=full, ready=False)
        until(lambda: work.said("checkpoint"))
        assert len(work.said("SIGUSR1")) == 1
        until(lambda: work.process.poll() is not None)
        assert one.phase() is None
        assert one.process is not None
        assert one.process.poll() is None


def test_stopping_the_agent_leaves_its_drain_to_the_next(tmp_path: Path) -> None:
    with node(tmp_path / "n") as one:
        work = one.work("ignores")
        one.metadata.letters = [letter(notice(one.instance_id, 5))]
        one.start()
        until(lambda: one.phase() == "signalled")
        assert one.stop() == 0
        assert work.runs
        one.start(ready=False)
        until(lambda: one.phase() == "finished")
        assert one.story() == ["notice", "signalled", "overrun", "work_ended"]


def test_an_interrupt_is_never_sent_twice(tmp_path: Path) -> None:
    """A second one means "at once" to many programs, so a kill in the very moment costs the first."""

    def go(step: tuple[int, bool]) -> None:
        with node(tmp_path / f"{step[0]}{step[1]}", signal="INT") as one:
            work = one.work("checkpoints")
            killed_and_started(one, *step, seconds=5)
            assert len(work.said("SIGINT")) <= 1

    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert list(pool.map(go, [(1, False), (2, True)])) == [None, None]


def test_a_deadline_that_a_killed_agent_left_behind_is_taken_away(tmp_path: Path) -> None:
    with node(tmp_path / "n") as one:
        one.deadline_file.parent.mkdir()
        one.deadline_file.write_text("{}")
        one.start()
        until(lambda: not one.deadline_file.exists())
